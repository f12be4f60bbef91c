"""The framework-neutral engine of infinite-memory."""
