"""What keeps a store in order: copies, checks and counts of everything it holds."""
