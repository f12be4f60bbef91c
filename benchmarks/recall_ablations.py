"""Our ranking with one ingredient switched off."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import Any

from shared_core import RecallTemplate
from shared_core.recall.query import Query, parse_query

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


RANKING, LIFTING = "shared_core.recall.rank", "shared_core.recall.rank"
SIGNALS, QUERY = "shared_core.recall.signals", "shared_core.recall.query"
READ, SEARCH = "shared_core.recall.candidates", "shared_core.recall.search"
WORTH = "shared_core.recall.worth"


def _with_names(*arguments: Any) -> Query:
    """Parse a question and leave the names of participants in the text to embed."""
    query = parse_query(*arguments)
    return replace(query, dense_text=query.text)


ABLATIONS = (
    Ablation("speaker boost", {(SIGNALS, "SPEAKER_BOOST"): 0.0}),
    Ablation("what the assistant said", {(SIGNALS, "ASKED_BACK"): 0.0}),
    Ablation("date boost", {(SIGNALS, "DATE_BOOST"): 0.0}),
    Ablation("standing instructions", {(SIGNALS, "INSTRUCTION_BOOST"): 0.0}),
    Ablation("of whom it speaks", {(SIGNALS, "REACTION_BOOST"): 0.0, (SIGNALS, "NOT_OF_SELF"): 1.0}),
    Ablation("lifting", {(LIFTING, "LIFT"): 0.0}),
    Ablation("neighbours' meaning", {(SIGNALS, "AROUND"): {}}),
    Ablation("neighbours' words", {("shared_core.index.lexical", "NEIGHBOURS"): {1: 0.0}}),
    # The words are parsed once; who asks for them gets none.
    Ablation("words about the talk", {(QUERY, "_about_talk"): lambda language: frozenset()}),
    Ablation("excerpts", arguments={"recall_template": RecallTemplate(excerpt_tokens=None)}),
    Ablation("relaxed floor", {(RANKING, "RELAXED"): 1.0}),
    Ablation("meaning", weight=0.0),
    Ablation("the first by themselves", {(RANKING, "FIRST"): 0}),
    Ablation("names out of the vector", {(SEARCH, "parse_query"): _with_names}),
)
"""Every ingredient of the ranking by itself."""

PROMPT_ABLATIONS = (
    Ablation("the stop", arguments={"recall": "thorough"}),
    Ablation("doubt", {(WORTH, "DOUBT"): 1}),
    Ablation("one message with all words", {(WORTH, "HOLDS_ALL"): 2.0}),
    Ablation("words of small talk", {(QUERY, "_small_talk"): lambda language: frozenset()}),
    Ablation("the conversation", {(SEARCH, "in_conversation"): lambda query, said: query}),
    Ablation("borrowed words", {(SEARCH, "points_back"): lambda query: False}),
    Ablation("openings of sittings", {(SIGNALS, "OPENS_BOOST"): 0.0, (RANKING, "SITTING_SHARE"): 0.0}),
    Ablation("newer messages", {(READ, "newer"): lambda *_: None}),
    Ablation("the user without a name", {(SIGNALS, "ANOTHER_USER"): 0.0}),
    Ablation("shorter excerpts", {(READ, "excerpt_size"): lambda tokens, room, most: most}),
    *ABLATIONS,
)
"""Every ingredient of a prompt by itself."""
