"""Measure recall with your own questions: what reaches the prompt, what it costs, and which settings are worth it."""

from shared_core.evaluation.comparison import Comparison
from shared_core.evaluation.evaluator import evaluate
from shared_core.evaluation.questions import Question, read_questions
from shared_core.evaluation.result import Evaluation, Outcome

__all__ = ["Comparison", "Evaluation", "Outcome", "Question", "evaluate", "read_questions"]
