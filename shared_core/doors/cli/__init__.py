"""The `infinite-memory` command. It needs the extra `cli`."""
