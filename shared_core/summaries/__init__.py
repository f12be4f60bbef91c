"""Rolling summaries of what has left the window: what is kept, how it is written, and when it is renewed."""
