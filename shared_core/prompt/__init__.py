"""Build a prompt from turns: the window, the budget, the grounding, the wording and the report; pure."""
