"""EventSource: makes the events of one memory; a `Watch` notes what a verb does while it runs."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from shared_core.events import EventName, MemoryEvent, Note, Outcome, SafeHook, Stage
from shared_core.messages import Message
from shared_core.plugins.calls import Failure, Late, Plugin, Request, Steps
from shared_core.plugins.embedding import Embedded
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Hit
from shared_core.prompt.window import Selection
from shared_core.recall.search import Found
from shared_core.session.live import LiveSession

Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])
Describe = Callable[["Watch", Any], None]
"""Notes in a watch what a verb returned."""

STAGES: dict[Plugin, str] = {"embedder": "embed", "reranker": "rerank", "summarizer": "summarize"}


class Watch:
    """What one call of a verb does, noted while it runs.

    Args:
        name: the verb.
        live: the session it reads.
        hook: told when the verb has ended.
        index_cached: whether the session's index is in memory.

    Attributes:
        fields: the fields of the event, as far as they are known.
        silent: whether the call is no event.
    """

    def __init__(self, name: EventName, live: LiveSession, hook: SafeHook, *, index_cached: bool | None = None) -> None:
        self.name: EventName = name
        self.hook = hook
        self.content = hook.wants_content
        self.fields: dict[str, Any] = {}
        self.silent = False
        self._live, self._index_cached = live, index_cached
        self._read, self._cached = live.rows_read, live.rows_cached
        self._stages: list[Stage] = []
        self._embedded = 0
        self.time_ns = time.time_ns()
        self._began = self._marked = time.perf_counter()

    def mark(self, name: str) -> None:
        """Note that a stage ends, which began where the one before it ended."""
        now = time.perf_counter()
        self._stages.append(Stage(name, self._marked - self._began, now - self._marked))
        self._marked = now

    def asked(self, request: object, reply: object, since: float) -> None:
        """Note a request to a model, which was asked `since` then, and its reply."""
        now = time.perf_counter()
        if not isinstance(request, Request):
            return
        outcome: Outcome = "late" if isinstance(reply, Late) else "failed" if isinstance(reply, Failure) else ""
        if isinstance(reply, Embedded):
            self._embedded += len(reply.whole)
        elif isinstance(reply, int):  # of messages that wait for their vectors
            self._embedded += reply
        if outcome and request.plugin == "reranker":  # a search has no report that says so
            self.fields["degraded"] = (*self.fields.get("degraded", ()), "not_reranked")
        name = STAGES[request.plugin]
        self._stages.append(Stage(name, since - self._began, now - since, request.texts, outcome))

    def told(self, messages: Sequence[Message], scores: Sequence[float] = ()) -> None:
        """Note the messages that a verb was about, and their texts if they are wanted."""
        self.fields.update(
            ids=tuple(message.id or "" for message in messages), count=len(messages), scores=tuple(scores)
        )
        if self.content:
            self.fields["texts"] = tuple(message.content for message in messages)

    def hits(self, hits: Sequence[Hit]) -> None:
        """Note the results of a search."""
        self.told([one.message for one in hits], [float(one.score) for one in hits])

    def searched(self, found: Found) -> None:
        """Note what was found."""
        self.fields.update(
            candidates=len(found.ranked), pending=found.pending, embedder=found.embedder,
            index_cached=self._index_cached,
        )  # fmt: skip
        self._degraded(found.notes)

    def composed(self, context: Context, selection: Selection, question: str) -> None:
        """Note a prompt. The report's lines are not made for that."""
        report = context.report
        entries = [(entry.message, float(one.score)) for one in selection.recalled for entry in one.entries]
        self.told([message for message, _ in entries], [score for _, score in entries])
        self.fields.update(
            tokens={kind.value: tokens for kind, tokens in report.totals.items() if tokens}, budget=report.budget
        )
        self._degraded(report.degraded, over_budget=report.over_budget)
        self.ask(question)

    def ask(self, query: str) -> None:
        """Note the query, if it is wanted."""
        if self.content:
            self.fields["query"] = query

    def _degraded(self, notes: Sequence[Note], *, over_budget: bool = False) -> None:
        found = [code for note in notes for code in note.codes]
        found += ["vectors_pending"] if self.fields.get("pending") else []
        found += ["over_budget"] if over_budget else []
        self.fields["degraded"] = tuple(dict.fromkeys(found))
        if self.content:
            self.fields["notes"] = tuple(notes)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the hook when the block has ended; nothing if a caller gives up, as a task that is cancelled does."""
        try:
            yield
        except Exception as error:
            self.hook(self.event(error))
            raise
        if not self.silent:
            self.hook(self.event())

    def event(self, error: Exception | None = None, seconds: float | None = None) -> MemoryEvent:
        """Return the event of a verb that ends now; `seconds`: how long it took, if it began before the watch did."""
        live = self._live
        if self.name == "index":
            self.fields["count"] = self._embedded
        return MemoryEvent(
            name=self.name, session_id=live.session_id, user_id=live.user_id, branch=live.head.branch,
            time_ns=self.time_ns - int((seconds or 0.0) * 1e9),
            seconds=time.perf_counter() - self._began if seconds is None else seconds,
            error=None if error is None else type(error).__name__, embedded=self._embedded,
            rows_read=live.rows_read - self._read, rows_cached=live.rows_cached - self._cached,
            stages=tuple(self._stages), **self.fields,
        )  # fmt: skip


def nothing(watch: Watch, result: object) -> None:
    """Note nothing of what a verb returned."""


class EventSource:
    """Tells a hook what a memory does.

    Args:
        hook: the hook. None: nobody is told.
        live: the session.
        index_cached: returns whether the session's search index is in memory.
    """

    def __init__(self, hook: SafeHook | None, live: LiveSession, index_cached: Callable[[], bool]) -> None:
        self._hook = hook
        self._live = live
        self._index_cached = index_cached

    def watch(self, name: EventName, live: LiveSession | None = None) -> Watch | None:
        """Return what notes a call that begins now; None without a hook. `live`: the session it reads."""
        if self._hook is None:
            return None
        cached = self._index_cached() if name in ("context", "search") else None
        return Watch(name, live or self._live, self._hook, index_cached=cached)

    def steps(self, watch: Watch | None, steps: Steps[Result], describe: Describe = nothing) -> Steps[Result]:
        """Pass on the requests of a verb's steps, and tell the hook when they have ended."""
        return steps if watch is None else self._watched(watch, steps, describe)

    def _watched(self, watch: Watch, steps: Steps[Result], describe: Describe) -> Steps[Result]:
        reply: Any = None
        with watch.telling():
            try:
                while True:
                    request = steps.send(reply)
                    since = time.perf_counter()
                    reply = yield request
                    watch.asked(request, reply, since)
            except StopIteration as stop:
                result: Result = stop.value
            describe(watch, result)
        return result

    def snapshot(self, rows: int, seconds: float) -> None:
        """Tell the hook that an index of so many messages was saved just now, which took so long."""
        watch = self.watch("snapshot")
        if watch is not None:
            watch.fields["count"] = rows
            watch.hook(watch.event(seconds=seconds))


def reported(name: EventName, describe: Describe = nothing) -> Callable[[Method], Method]:
    """Return a decorator for verbs of a memory whose calls are events, if the memory has a hook."""

    def decorated(method: Method) -> Method:
        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            events: EventSource = self._events
            watch = events.watch(name)
            if watch is None:
                return method(self, *args, **kwargs)
            with watch.telling():
                result = method(self, *args, **kwargs)
                describe(watch, result)
            return result

        return call  # type: ignore[return-value]

    return decorated
