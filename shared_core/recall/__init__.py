"""What of the past answers a question: search, ranking, and the vectors they need."""
