"""The `infinite-memory` command; needs the extra `cli`."""
