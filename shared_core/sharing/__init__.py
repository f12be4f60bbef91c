"""Conversations as files: one documented format to share them, and what other programs write."""
