"""Hostile and odd input: nothing blocks, nothing forges, nothing crashes."""
