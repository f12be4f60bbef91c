"""Build a prompt from turns: the plan, the window, the budget, the grounding, the wording and the report."""
