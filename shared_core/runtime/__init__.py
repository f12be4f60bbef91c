"""Threads, forks and exits of the process."""
