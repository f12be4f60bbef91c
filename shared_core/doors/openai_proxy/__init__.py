"""The memory as an OpenAI-compatible HTTP proxy. It needs the extra `server`."""
