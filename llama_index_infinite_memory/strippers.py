"""Strippers of what LlamaIndex's agents write: their steps, results of executed code, and state around a message."""

from shared_core.messages import Message
from shared_core.strippers import PASTED_CONTEXT, TOOL_RESULTS, Stripper, keep_beginning, set_apart

__all__ = ["DEFAULT_STRIPPERS", "Stripper", "set_apart"]

EXECUTED = "Result of executing the code given:"
"""The beginning of the results of a `CodeActAgent`'s code, which come in the user's role."""


def _execution_result(message: Message) -> Message:
    executed = message.role in ("user", "assistant") and message.content.startswith(EXECUTED)
    return keep_beginning(message) if executed else message


def _react_observations(message: Message) -> Message:
    """Keep the last step of a ReAct agent, which stores its steps and its answer as one text."""
    text = message.content
    if message.role != "assistant" or not text.startswith("Thought:") or "\nObservation:" not in text:
        return message
    last = text.rfind("\nThought:", 0, text.rfind("\nAnswer:") + 1)
    return set_apart(message, last + 1, len(text)) if last > text.find("\nObservation:") else message


def _state_prompt(message: Message) -> Message:
    text = message.content
    if message.role != "user" or not text.startswith("Current state:\n"):
        return message
    found = text.find(marker := "\n\nCurrent message:\n")
    return set_apart(message, found + len(marker), len(text)) if found >= 0 else message


STATE_PROMPTS = Stripper("state_prompts", _state_prompt)
REACT_OBSERVATIONS = Stripper("react_observations", _react_observations)
EXECUTION_RESULTS = Stripper("execution_results", _execution_result)

DEFAULT_STRIPPERS: tuple[Stripper, ...] = (
    STATE_PROMPTS, PASTED_CONTEXT, REACT_OBSERVATIONS, EXECUTION_RESULTS, TOOL_RESULTS,
)  # fmt: skip
