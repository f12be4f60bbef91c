"""The inspector: a live page of a user's conversations and of the prompts that were sent, behind `serve` at `/`."""
