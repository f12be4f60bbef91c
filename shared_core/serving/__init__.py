"""What every server of the memory shares: the bearer tokens of its users, and the address at which it listens."""
