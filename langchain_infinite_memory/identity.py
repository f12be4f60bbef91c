"""Identity: the session and the user that a run belongs to, and what its list of messages says about them."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args
from uuid import UUID
from weakref import ref

from langchain_core.runnables import RunnableConfig, ensure_config

from shared_core.arguments import function, name_value, one_of
from shared_core.display import shown
from shared_core.prompt.report import ContextReport

if TYPE_CHECKING:
    from langgraph.runtime import Runtime

logger = logging.getLogger("langchain_infinite_memory")

SessionName: TypeAlias = "str | Callable[[Runtime[Any]], str | None] | None"
"""The session of all runs; or a function that names the session of a run; or None: the run's own ids name it."""

Removed = Literal["keep", "leave_out"]

Key = TypeVar("Key")
Value = TypeVar("Value")

UNDER = "//"
"""What separates the session of a nested graph from the one above it; a single slash is common in ids."""

# What LangGraph keeps in a run's configuration without documenting it. `tests/langchain/test_identity.py` fails where a
# version has it otherwise. Without an entry, a run counts as one that has no checkpointer, is not nested, and so on.

CHECKPOINTER = "__pregel_checkpointer"
"""The entry that holds the checkpointer. Only a list that one has kept is the whole conversation, with lasting ids."""

NAMESPACE, LEVEL, TASK = "checkpoint_ns", "|", ":"
"""The entry that names the graphs which a task is in, what separates them, and what separates the name of a node from
the id of its task. Nothing else tells a nested graph from the one above it, as both have the `thread_id`. Tasks of a
subgraph with a checkpointer of its own have names without ids, and the same namespace in every run."""

NOBODY = ""
"""The owner of a thread that was begun without a user; the id of a user is never empty."""

AUTHENTICATED = "langgraph_auth_user_id"
"""The entry in which LangGraph's server names the user whom it has authenticated."""

STATE = "infinite_memory"
"""The private entry of a graph's state with what its `ThreadRecord` says."""


class RunError(ValueError):
    """A run must not go on, whatever `on_error` is: it names no session, or the wrong user, or asks nothing."""


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """What the private state of a graph records of its thread at each run, so that it goes back with a checkpoint.

    Attributes:
        owner: the user whose thread it is, or NOBODY.
        session_id: the session in which it is stored.
        newest: the id of the newest message that is stored for its list.
        before: the ids of the stored messages before its list, the nearest last. None: it was not followed yet.
        summary: the id of the summary that stands for those.
    """

    owner: str = NOBODY
    session_id: str | None = None
    newest: str | None = None
    before: list[str] | None = None
    summary: str | None = None

    @classmethod
    def of(cls, state: Any) -> "ThreadRecord | None":
        """Return the record in a graph's state."""
        data = entry_of(state, STATE)
        return None if data is None else cls(**data)


@dataclass(frozen=True, slots=True)
class Thread:
    """The conversation that a list belongs to.

    Attributes:
        session_id: the session's id.
        user_id: the user's id.
        thread_id: the run's thread; several may share a session.
        stable_ids: whether a message keeps its id from one run to the next, as a checkpointer ensures.
        removed: what it means that a list lacks messages of the session, as in `InfiniteMemory.follow`.
        nested: whether the list's graph is nested in another, and has a session under that one's.
        named: whether the session was named for the run, so that a list continues it even if it holds none of it.
        saver: the checkpointer that keeps the state of the run, by the name of its thread and for any user.
        in_memory: whether that keeps its state in memory only, and may have lost it with an earlier process.
        record: what the state records of it; None: nothing yet, or the graph has no such state.
    """

    session_id: str
    user_id: str | None = None
    thread_id: str | None = None
    stable_ids: bool = True
    removed: Removed = "keep"
    nested: bool = field(default=False, compare=False)
    named: bool = field(default=False, compare=False)
    saver: "ref[Any] | None" = field(default=None, compare=False)
    in_memory: bool = field(default=False, compare=False)
    record: ThreadRecord | None = field(default=None, compare=False)

    @property
    def owner(self) -> str:
        """The user, or NOBODY."""
        return self.user_id or NOBODY


@dataclass(frozen=True, slots=True)
class RunIds:
    """Whose prompt a report is on.

    Attributes:
        session_id: the session's id.
        user_id: the user's id.
        thread_id: the run's thread.
        run_id: the `run_id` that the run was given, else the id of the traced run that asked for the prompt. The first
            versions of LangGraph do not tell the former.
    """

    session_id: str
    user_id: str | None = None
    thread_id: str | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadResolver:
    """Finds the conversation of a run.

    Args:
        session_id: the session of all runs, or a function of LangGraph's `Runtime` that names the session of a run.
            None, or if the function returns None: the run's `thread_id`, else its `session_id`.
        user_key: the name of the user's id in the runtime context, else in the configuration; without one, it is the
            user whom LangGraph's server has authenticated.
        removed: what it means that a list lacks messages of the session. None: with a checkpointer, the list is the
            whole conversation, and they were taken back; without one, the caller sends only what is new.
        share_with_subgraphs: whether nested graphs use the session of the graph that they are in.
        session_keys: the entries of the configuration that name the session; the first that is set counts.
    """

    session_id: "SessionName" = None
    user_key: str = "user_id"
    removed: Removed | None = None
    share_with_subgraphs: bool = False
    session_keys: tuple[str, ...] = ("thread_id", "session_id")

    def __post_init__(self) -> None:
        one_of("removed", self.removed, (None, *get_args(Removed)))
        one_of("share_with_subgraphs", self.share_with_subgraphs, (False, True))
        name_value("user_key", self.user_key)
        if self.session_id is not None and not callable(self.session_id):
            name_value("session_id", self.session_id)

    def resolve(
        self, runtime: "Runtime[Any] | None" = None, *, first: str | None = None,
        config: RunnableConfig | None = None, record: ThreadRecord | None = None,
    ) -> Thread:  # fmt: skip
        """Return the conversation of the current run.

        Args:
            runtime: the runtime of the run. None: it is looked up.
            first: the id of the first message of the list whose conversation it is.
            config: the configuration of the run. None: that of the context.
            record: what the graph's state records of the thread.

        Raises:
            RunError: the run names no session.
            ValueError: an id is empty.
        """
        config, runtime = ensure_config(config), runtime or _runtime()
        configurable: Mapping[str, Any] = config.get("configurable") or {}
        own, saver = self._own_name(runtime), configurable.get(CHECKPOINTER)
        session = _first(own, *(named_session(key, configurable.get(key)) for key in self.session_keys))
        if session is None:
            raise RunError(unnamed(self.session_keys[0]))
        nested = "" if self.share_with_subgraphs else _nested_in(configurable)
        if nested:
            session = _nested_session(session, nested, first, record)
        removed = self.removed or ("keep" if saver is None else "leave_out")
        return Thread(
            session,
            self.user(runtime, config),
            named_session("thread_id", configurable.get("thread_id")),
            stable_ids=saver is not None or bool(nested),
            removed="leave_out" if nested else removed,
            nested=bool(nested),
            named=own is not None and not nested,
            saver=None if saver is None else ref(saver),
            in_memory=not nested and _keeps_nothing(saver),
            record=record,
        )

    def user(self, runtime: "Runtime[Any] | None" = None, config: RunnableConfig | None = None) -> str | None:
        """Return the user of the current run; ValueError if the id is empty."""
        configurable, runtime = ensure_config(config).get("configurable") or {}, runtime or _runtime()
        named = entry_of(getattr(runtime, "context", None), self.user_key), configurable.get(self.user_key)
        authenticated = getattr(getattr(runtime, "server_info", None), "user", None)
        return named_user(*named, getattr(authenticated, "identity", None), configurable.get(AUTHENTICATED))

    def named(self, thread_id: str | None, user_id: str | None) -> Thread:
        """Return the conversation of a thread outside of its runs.

        Raises:
            ValueError: no thread is given, and runs have no session in common; or an id is empty.
        """
        session = _first(named_session("thread_id", thread_id), None if callable(self.session_id) else self.session_id)
        if session is None:
            raise ValueError("forget: pass thread_id=, the thread to erase; these runs have no session_id in common")
        return Thread(session, named_user(user_id), _first(thread_id))

    def _own_name(self, runtime: "Runtime[Any] | None") -> str | None:
        named = self.session_id(runtime or _no_runtime()) if callable(self.session_id) else self.session_id
        return named_session("session_id", named)


def unnamed(key: str) -> str:
    """Return what to say if the configuration of a run lacks an entry."""
    return (
        f"config names no {key!r}: call with config={{'configurable': {{{key!r}: '...'}}}}, or bind it by "
        ".with_config(configurable=...)"
    )


def refusal(thread: Thread, owner: str) -> RunError:
    """Return what to raise if a run names a user, and its thread is another's or nobody's."""
    told = (
        'belongs to another user; make thread ids unique over all users, for instance f"{user}:{thread}"'
        if owner != NOBODY
        else "was begun without a user; go on without one, or begin another thread"
    )
    return RunError(f"thread_id={thread.thread_id!r}, user_id={thread.user_id!r}: the state of this thread {told}")


def erased_question() -> RunError:
    """Return what to raise if there is nothing left to answer."""
    return RunError("the newest question of this thread was erased, and the model has nothing to answer: ask again")


OnReport: TypeAlias = Callable[[ContextReport, RunIds], object] | None


def check_report(on_report: OnReport) -> None:
    """Raise TypeError unless reports can be handed to it."""
    if on_report is not None:
        function("on_report", on_report, "on_report(report, run)")


def report(on_report: OnReport, on: ContextReport, thread: Thread) -> None:
    """Hand a report to whoever wants it; what is raised there is logged."""
    if on_report is None:
        return
    try:
        on_report(on, run_ids(thread))
    except Exception as error:  # the caller's own function may raise anything, and the run has to go on
        logger.warning("on_report failed: %r", error, exc_info=error)


def run_ids(thread: Thread) -> RunIds:
    """Return the ids of the current run."""
    config = ensure_config()
    given = getattr(getattr(_runtime(), "execution_info", None), "run_id", None)
    traced = getattr(config.get("callbacks"), "parent_run_id", None)
    return RunIds(thread.session_id, thread.user_id, thread.thread_id, _first(given, config.get("run_id"), traced))


def _keeps_nothing(saver: Any) -> bool:
    """Return whether a checkpointer keeps its state in memory only."""
    if saver is None:
        return False
    from langgraph.checkpoint.memory import InMemorySaver

    return isinstance(saver, InMemorySaver)


class Newest(OrderedDict[Key, Value]):
    """A mapping that keeps the entries that were set last, up to a size in all. It needs a lock around it.

    Args:
        size: the most that its entries may weigh together; one is always kept.
        weight: what an entry weighs.
    """

    def __init__(self, size: int, weight: Callable[[Value], int] = lambda value: 1) -> None:
        super().__init__()
        self._room, self._weight = size, weight

    def __setitem__(self, key: Key, value: Value) -> None:
        if key in self:
            del self[key]
        super().__setitem__(key, value)
        self._room -= self._weight(value)
        while self._room < 0 and len(self) > 1:
            del self[next(iter(self))]

    def __delitem__(self, key: Key) -> None:
        self._room += self._weight(self[key])
        super().__delitem__(key)


def _nested_in(configurable: Mapping[str, Any]) -> str:
    """Return the namespace of the graph that the current task belongs to; empty: it is not nested."""
    return str(configurable.get(NAMESPACE) or "").rpartition(LEVEL)[0]


def _nested_session(above: str, nested: str, first: str | None, record: ThreadRecord | None) -> str:
    """Return the session of a nested graph.

    The graph of a task has no name that lasts, but a list that goes on from run to run begins with the same message,
    which names the session. Once a summary has replaced that message, the record tells.
    """
    if record is not None and record.session_id is not None:
        return record.session_id
    if TASK not in nested or first is None:
        return f"{above}{UNDER}{nested}"
    nodes = [level.partition(TASK)[0] for level in nested.split(LEVEL) if not level.isdigit()]
    return f"{above}{UNDER}{LEVEL.join(nodes)}{TASK}{first}"


def _first(*names: Any) -> str | None:
    """Return the first name that is given, as a text."""
    return next((str(name) for name in names if name is not None and name != ""), None)


def named_session(key: str, id_: Any) -> str | None:
    """Return the id that an entry holds, as a text.

    Raises:
        ValueError: it is no id; or it is empty, as a variable is that was not set: it would count as none, and another
            entry would name the session.
    """
    return _id_text(key, id_, "pass the id of the conversation, or leave it out")


def named_user(*ids: Any) -> str | None:
    """Return the first id of a user that is given, as a text.

    Raises:
        ValueError: it is no id; or it is empty, as a variable is that was not set: all who lack a name would share a
            memory.
    """
    given = next((id_ for id_ in ids if id_ is not None), None)
    return _id_text("user_id", given, "pass the id of the user, or None (or nothing) if there are no users")


def _id_text(key: str, id_: Any, advice: str) -> str | None:
    if id_ == "":
        raise ValueError(f"{key}='': {advice}")
    # The text of another object may be that of a second one, too, whose memory would be the same.
    if id_ is not None and (isinstance(id_, bool) or not isinstance(id_, str | int | UUID)):
        raise ValueError(f"{shown(key, id_)}: expected a text, a whole number or a UUID")
    return _first(id_)


def _runtime() -> "Runtime[Any] | None":
    try:
        from langgraph.runtime import get_runtime

        return get_runtime()
    except (ModuleNotFoundError, RuntimeError, KeyError):  # no LangGraph, or not inside a graph
        return None


def _no_runtime() -> "Runtime[Any]":
    from langgraph.runtime import Runtime

    return Runtime()


def entry_of(holder: Any, key: str) -> Any:
    """Return an entry of a mapping, or an attribute of anything else; None: it has none."""
    return holder.get(key) if isinstance(holder, Mapping) else getattr(holder, key, None)
