"""What every server of the memory shares: the tokens of its users, its address, and what confirms an erasure."""
