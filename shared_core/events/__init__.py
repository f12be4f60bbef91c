"""What a memory tells a hook, `on_event=`: an event after each verb, without anything that was said."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from typing_extensions import override

from shared_core.arguments import function
from shared_core.messages import short_repr

EventName = Literal[
    "context", "search", "add", "follow", "import_file", "forget", "fork", "merge", "cherry_pick", "rebase", "reset",
    "make_main", "rewind", "delete_branch", "undo", "stash", "stash_pop", "index", "summarize",
    "snapshot",
]  # fmt: skip
"""The verbs that events tell of, named as methods of `InfiniteMemory`; `"snapshot"`: a search index was saved."""

Degradation = Literal[
    "words_alone", "embedder_failed", "embedder_late", "vectors_pending", "other_embedders", "text_shortened",
    "index_rebuilt", "not_reranked", "summarizer_failed", "summary_late", "left_out", "over_budget", "other",
]  # fmt: skip
"""What a prompt or a search could not have: stable codes for programs. The report says it in a sentence."""

Outcome = Literal["", "failed", "late"]

NO_TOKENS: Mapping[str, int] = MappingProxyType({})

logger = logging.getLogger("shared_core")
events_log = logging.getLogger("shared_core.events")


class Note(str):
    """A sentence on what could not be done, with what it means for programs.

    Attributes:
        codes: what a prompt or a search could not have.
    """

    codes: tuple[Degradation, ...]

    def __new__(cls, text: str, *codes: Degradation) -> "Note":
        """Return a note that equals its text."""
        note = super().__new__(cls, text)
        note.codes = codes or ("other",)
        return note


class Stage(NamedTuple):
    """A part of what a verb did.

    Attributes:
        name: `"plan"` reads what is new and chooses the window, `"recall"` searches and reads what is found,
            `"summary"` chooses a summary, `"compose"` writes the prompt. Inside of them, `"embed"`, `"rerank"` and
            `"summarize"` wait for a model.
        began: when it began, in seconds after the event did.
        seconds: how long it took.
        texts: how many texts or messages a model was given.
        outcome: `"failed"` or `"late"` if the model's answer is not used; else empty.
    """

    name: str
    began: float
    seconds: float
    texts: int = 0
    outcome: Outcome = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvent:
    """Something a memory did. It holds names, numbers and ids; what was said and asked only for hooks that want it.

    Attributes:
        name: the verb.
        session_id: the conversation; empty for a prompt that a server builds before the conversation has a name.
        user_id: its user; None: it has none.
        branch: the branch that was checked out when the verb ended; None: the head was detached.
        time_ns: when the verb began, in nanoseconds since 1970.
        seconds: how long it took. For the asynchronous memory, this includes waiting for a thread.
        error: the class of the error that the verb raised; None: it raised none. Then what follows may be missing.
        count: how many messages it was about: recalled, found, stored, erased, copied, embedded, or in the snapshot.
        ids: their ids, as far as they are known. Those recalled are in the order of the report, best first.
        scores: a recall score for each id; empty for verbs that do not search.
        tokens: the size of a prompt, by the part of it (`Kind`).
        budget: the tokens that the prompt may take; 0 for other verbs.
        candidates: how many messages matched the question or query and were ranked.
        pending: how many messages had no vector yet.
        embedder: the key of the embedder whose vectors were searched; None: words alone, or nothing was searched.
        embedded: how many texts of messages got vectors.
        rows_read: how many messages were read from the store. Other threads that use this object count, too.
        rows_cached: how many that recall needed were in memory already.
        index_cached: whether the session's search index was in memory; None: it was not needed.
        degraded: what the prompt or the search could not have.
        stages: the parts of what was done, in the order in which they ended.
        query: the question or query; None: there was none, or the hook does not want content.
        texts: the text of each message in `ids`, if the hook wants content.
        notes: `degraded` in sentences, which may quote an embedder's error, if the hook wants content.
    """

    name: EventName
    session_id: str
    time_ns: int
    seconds: float
    user_id: str | None = None
    branch: str | None = None
    error: str | None = None
    count: int = 0
    ids: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=lambda: NO_TOKENS)
    budget: int = 0
    candidates: int = 0
    pending: int = 0
    embedder: str | None = None
    embedded: int = 0
    rows_read: int = 0
    rows_cached: int = 0
    index_cached: bool | None = None
    degraded: tuple[Degradation, ...] = ()
    stages: tuple[Stage, ...] = ()
    query: str | None = None
    texts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def at(self) -> datetime:
        """When the verb began."""
        return datetime.fromtimestamp(self.time_ns / 1e9, UTC)

    def __repr__(self) -> str:
        return short_repr(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data, without what has its default."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        told = {one.name: values[one.name] for one in fields(self) if values[one.name] != one.default}
        lists = {name: list(value) for name, value in told.items() if isinstance(value, tuple)}
        stages = {"stages": [stage._asdict() for stage in self.stages]} if self.stages else {}
        return {**told, **lists, **stages, "tokens": dict(self.tokens)}


OnEvent = Callable[[MemoryEvent], object]
"""A hook: it is called after each verb, in the thread that did the work, and must not wait for other threads."""


class EventHook:
    """A hook that says what it wants; a plain function gets nothing that was said.

    Args:
        hook: takes an event. What it raises is logged once, and the verb goes on.
        wants_content: whether events are to hold questions, queries and texts.
    """

    def __init__(self, hook: OnEvent, *, wants_content: bool = False) -> None:
        self._hook = hook
        self.wants_content = wants_content

    def __call__(self, event: MemoryEvent, /) -> None:
        """Take an event."""
        self._hook(event)


def with_content(hook: OnEvent) -> EventHook:
    """Return a hook whose events hold what was asked, searched for, stored and found."""
    function("hook", hook, "(event) -> None")
    return EventHook(hook, wants_content=True)


class SafeHook(EventHook):
    """Calls a hook, and logs the first thing that it raises: nothing that it does can fail a verb."""

    def __init__(self, hook: OnEvent) -> None:
        super().__init__(hook, wants_content=isinstance(hook, EventHook) and hook.wants_content)
        self._failed = False

    @override
    def __call__(self, event: MemoryEvent, /) -> None:
        try:
            self._hook(event)
        except Exception as error:  # a plug-in, which may raise anything
            if not self._failed:
                self._failed = True
                # Its message could hold what was said.
                logger.warning("on_event failed at %r, which is not logged again: %s", event.name, type(error).__name__)
                logger.debug("on_event failed", exc_info=error)


def as_hook(on_event: OnEvent | None) -> SafeHook | None:
    """Return the hook for an argument `on_event`; TypeError if it cannot be called."""
    if on_event is None or isinstance(on_event, SafeHook):
        return on_event
    function("on_event", on_event, "(event) -> None")
    return SafeHook(on_event)


def log_event(event: MemoryEvent) -> None:
    """Log an event on one line to the logger `shared_core.events`: a warning if something went wrong, else as info."""
    wrong = [*event.degraded, *([event.error] if event.error else [])]
    events_log.log(
        logging.WARNING if wrong else logging.INFO, "%s of session %r took %.1f ms: %d messages, %d tokens%s",
        event.name, event.session_id, event.seconds * 1000, event.count, sum(event.tokens.values()),
        "".join(f", {code}" for code in wrong),
    )  # fmt: skip
