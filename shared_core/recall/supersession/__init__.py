"""Newest truth first: which statements newer ones replace, and where each stands among the results."""
