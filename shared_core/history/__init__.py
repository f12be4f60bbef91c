"""A history that a client sends again: which of its messages are stored already, and which are new."""
