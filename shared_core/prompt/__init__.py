"""From turns to a prompt: the window, the budget, the grounding, the wording and the report; pure."""
