"""The derived indexes of a session: words and vectors in memory, which can be rebuilt from the store at any time."""
