"""An open conversation: what is checked out, its path and turns, and how it is written, read and erased."""
