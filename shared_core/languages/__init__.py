"""What recall knows about each language: one file per language, all of which `detection.LANGUAGES` lists."""
