"""Rolling summaries of messages that have left the window: when they are renewed, and how they are written."""
