"""Strippers: set apart text that only served one turn, such as documents pasted around a question."""

from shared_core.strippers.pasted_context import PASTED_CONTEXT
from shared_core.strippers.stripper import TOOL_RESULTS, Stripper, keep_beginning, set_apart, strip, stripper_list

__all__ = ["PASTED_CONTEXT", "TOOL_RESULTS", "Stripper", "keep_beginning", "set_apart", "strip", "stripper_list"]
