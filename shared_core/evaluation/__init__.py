"""Measure recall with your own questions: what reaches the prompt, what it costs, and what another setting changes."""

from shared_core.evaluation.questions import Question, read_questions
from shared_core.evaluation.result import Evaluation, Outcome
from shared_core.evaluation.runner import evaluate

__all__ = ["Evaluation", "Outcome", "Question", "evaluate", "read_questions"]
