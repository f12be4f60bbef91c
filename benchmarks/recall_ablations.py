"""Our ranking with one ingredient switched off."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any

__all__ = ["ABLATIONS", "PROMPT_ABLATIONS", "Ablation"]


@dataclass(frozen=True, slots=True)
class Ablation:
    """One ingredient.

    Attributes:
        name: what is switched off.
        constants: module and name of each constant that is replaced, and by what.
        arguments: for the memory.
        weight: how much meaning counts against words, instead of the embedder's own; None: the embedder's.
    """

    name: str
    constants: Mapping[tuple[str, str], Any] = field(default_factory=lambda: MappingProxyType({}))
    arguments: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    weight: float | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the constants for a while.

        Raises:
            AttributeError: there is no such constant any more.
        """
        before: list[tuple[Any, str, Any]] = []
        try:
            for (module, name), value in self.constants.items():
                owner = import_module(module)
                before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)


RANKING, LIFTING = "shared_core.recall.ranking", "shared_core.recall.ranking"
SIGNALS, QUERY = "shared_core.recall.signals", "shared_core.recall.query"

ABLATIONS = (
    Ablation("speaker boost", {(SIGNALS, "SPEAKER_BOOST"): 0.0}),
    Ablation("what the assistant said", {(SIGNALS, "ASKED_BACK"): 0.0}),
    Ablation("date boost", {(SIGNALS, "DATE_BOOST"): 0.0}),
    Ablation("standing instructions", {(SIGNALS, "INSTRUCTION_BOOST"): 0.0}),
    Ablation("beginnings", {(SIGNALS, "BEGINNING_BOOST"): 0.0}),
    Ablation("of whom it speaks", {(SIGNALS, "REACTION_BOOST"): 0.0, (SIGNALS, "NOT_OF_SELF"): 1.0}),
    Ablation("lifting", {(LIFTING, "LIFT"): 0.0}),
    Ablation("neighbours' meaning", {(SIGNALS, "AROUND"): {}}),
    Ablation("neighbours' words", {("shared_core.index.lexical", "NEIGHBOURS"): {1: 0.0}}),
    # The words are parsed once; who asks for them gets none.
    Ablation("words about the talk", {(QUERY, "_about_talk"): lambda language: frozenset()}),
    Ablation("excerpts", arguments={"excerpt_tokens": None}),
    Ablation("relaxed floor", {("shared_core.recall.rules", "RELAXED"): 1.0}),
    Ablation("meaning", weight=0.0),
)
"""Every ingredient of the ranking by itself."""

CANDIDATES, SEARCH = "shared_core.recall.candidates", "shared_core.recall.search"

PROMPT_ABLATIONS = (
    Ablation("the stop", arguments={"recall": "thorough"}),
    Ablation("the conversation", {(SEARCH, "in_conversation"): lambda query, said: query}),
    Ablation("openings of sittings", {(SIGNALS, "OPENS_BOOST"): 0.0, (RANKING, "SITTING_SHARE"): 0.0}),
    Ablation("newer sittings", {(SIGNALS, "SINCE_BOOST"): 0.0}),
    Ablation("newest truth", {(CANDIDATES, "candidates_newest_first"): lambda candidates, *_: candidates}),
    Ablation("the user without a name", {(SIGNALS, "ANOTHER_USER"): 0.0}),
    Ablation("standing facts", arguments={"standing_tokens": 0}),
    Ablation("whole lists", {(QUERY, "is_wide"): lambda text: False}),
    Ablation("shorter excerpts", {(CANDIDATES, "excerpt_size"): lambda tokens, room, most: most}),
    Ablation("excerpts", arguments={"excerpt_tokens": None}),
    *(one for one in ABLATIONS if one.name in ("standing instructions", "beginnings", "of whom it speaks")),
    *(one for one in ABLATIONS if one.name in ("words about the talk", "lifting")),
)
"""Every ingredient of a prompt by itself, and those of the ranking that bring least."""
