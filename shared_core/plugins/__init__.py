"""What the caller plugs in: the interfaces, what the package brings for them, and how they are called."""
