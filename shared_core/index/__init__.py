"""The derived indexes of a session: words and vectors in memory, rebuilt from the store at any time."""
