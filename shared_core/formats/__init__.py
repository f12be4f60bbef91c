"""OpenAI's and Anthropic's request formats: plain data in and out, without their packages."""
