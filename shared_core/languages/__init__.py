"""What recall knows about each language, in one data file, and how the language of a text is told."""
