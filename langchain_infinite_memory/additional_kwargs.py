"""Retrieved passages in `additional_kwargs["grounding"]` as the engine's grounding, and back."""

import math
from numbers import Real
from typing import Any

from langchain_core.documents import Document
from pydantic import ValidationError

from langchain_infinite_memory.values import UnstorableError, decode, encode
from shared_core.messages import Grounding, GroundingItem

__all__ = ["GROUNDING", "grounding_form", "grounding_of", "grounding_value"]

GROUNDING = "grounding"
"""The key of `additional_kwargs`."""

SCORE = "relevance_score"
"""The key of a document's metadata that is taken as its score: what LangChain's rerankers write, higher is better."""


def grounding_of(value: Any) -> Grounding | None:
    """Return the grounding that `value` is; None if it is none.

    Args:
        value: a text, a list of texts and `Document`s, best first, or a mapping with the arguments of `Grounding`.
    """
    if isinstance(value, str):
        return Grounding.of(value) if value else None
    if isinstance(value, list) and value and all(isinstance(item, str | Document) for item in value):
        return Grounding(items=tuple(map(_item, value)))
    if isinstance(value, dict):
        try:
            return Grounding.model_validate(value)
        except ValidationError:
            return None
    return None


def _item(value: str | Document) -> GroundingItem:
    if isinstance(value, str):
        return GroundingItem(text=value)
    score = value.metadata.get(SCORE)
    usable = isinstance(score, Real) and math.isfinite(score)
    return GroundingItem(text=value.page_content, score=float(score) if score is not None and usable else None)


def grounding_form(value: Any, grounding: Grounding) -> Any:
    """Return as JSON data what `grounding_value` needs besides the grounding to give `value` back; None if nothing.

    Raises:
        UnstorableError: `value` holds what JSON has no form for.
    """
    if _plainest(grounding) == value:
        return None
    known = {item.text: {"$item": place} for place, item in enumerate(grounding.items)}
    return encode(value, known)


def grounding_value(grounding: Grounding, form: Any) -> Any:
    """Return the grounding as it stands in `additional_kwargs`."""
    if form is not None:
        try:
            value = decode(form, lambda _, place: grounding.items[place].text)
        except (LookupError, UnstorableError):
            return _plainest(grounding)
        if grounding_of(value) == grounding:
            return value
    return _plainest(grounding)


def _plainest(grounding: Grounding) -> Any:
    texts = [item.text for item in grounding.items]
    if texts and grounding == Grounding.of(*texts):
        return texts
    fields = grounding.model_dump(exclude_defaults=True)
    return {**fields, "items": list(fields["items"])} if "items" in fields else fields
