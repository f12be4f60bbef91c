"""Recall: find the stored messages that answer a question, by their words and by their vectors."""
