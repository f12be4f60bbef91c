# ruff: noqa: E402
"""InfiniteStore: LangGraph's store on the same file as the conversations, and a tool that saves facts in it."""

from shared_core.errors import UnknownReferenceError, require

require("langgraph", 'pip install "infinite-memory[langchain]"')

import heapq
import operator
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)
from langgraph.store.base.embed import get_text_at_path, tokenize_path

from langchain_infinite_memory.identity import ThreadResolver
from langchain_infinite_memory.sessions import Locks, SessionKey, open_pool
from shared_core.arguments import instance
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message, Payload
from shared_core.pool import SessionPool
from shared_core.records import MAIN
from shared_core.runtime.threads import threads_of
from shared_core.store import Store

__all__ = ["InfiniteStore", "remember_tool"]

FORMAT = "langgraph-store/1"
"""The format of the payload of an item: its key, its value, and when it was created."""

USER, ITEMS = "user", "store/"
"""What the namespace of a user's items begins with, and how the sessions are called in which items are."""

NAME = "note"
"""Who says an item in a prompt that recalls it: the user need not have said it, nor in these words."""

Namespace = tuple[str, ...]

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq, "$ne": operator.ne, "$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt,
    "$lte": operator.le,
}  # fmt: skip


class InfiniteStore(BaseStore):
    """Keeps items for `create_agent(store=...)`, LangMem's tools and your own nodes, beside what was said.

    An item is a message in a session of its own. Those under `("user", id)` are the user's: with `scope="user"`, an
    agent recalls them in its prompts, and `forget(user=True)` erases them, too. `("user",)` and `()` find those of all
    users. Other namespaces belong to nobody.

    A deleted item is erased, and so is the older value of one that is put again. A search with a query returns what
    matches, best first, which may be less than its limit, with scores from 0 to 2 that are comparable between searches;
    one without a query returns items, the newest first. What was said in conversations is not among the items:
    `recall_tool` and `HistoryRetriever` find that.

    Args:
        store: a path, a `Store`, or the `SessionPool` of the agent's memory; None: in memory.
        settings: as for `InfiniteMemoryMiddleware`; not for a `SessionPool`, which has its own.

    Raises:
        TypeError, ValueError: an argument is unknown or out of range.
        StoreError: the store cannot be opened.
    """

    def __init__(self, store: str | Path | Store | SessionPool | None = None, **settings: Any) -> None:
        self._owns_pool = not isinstance(store, SessionPool)
        self.pool = open_pool(store, **settings)
        # A pool that recalls from all sessions of a user has no memory for items of nobody.
        self._memories = self.pool.sharing(**{**self.pool.settings, "scope": "session"})
        self._putting = Locks()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what the operations say, in their order; of several that put one item, all are done."""
        return [self._done(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what `batch` does without blocking the event loop."""
        return await threads_of(self.pool.store).run(self.batch, list(ops))

    def _done(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            with self._memories.use(*_session(op.namespace)) as memory:
                return _newest_of(memory, op.namespace).get(str(op.key))
        if isinstance(op, PutOp):
            self._put(op)
            return None
        if isinstance(op, ListNamespacesOp):
            return self._namespaces(op)
        matches = self._found(op, op.query) if op.query else self._newest(op.namespace_prefix)
        kept = [
            item for item in matches if all(_fits(item.value.get(key), to) for key, to in (op.filter or {}).items())
        ]
        return kept[op.offset : op.offset + op.limit]

    def _put(self, op: PutOp) -> None:
        if not isinstance(op.value, Mapping | None):
            raise TypeError(f"value={op.value!r:.80}: expected a dict, such as {{'text': '...'}}")
        session, now = _session(op.namespace), datetime.now(UTC)
        with self._putting.hold(session), self._memories.use(*session) as memory:
            old = {id_: item for id_, item in _items(memory, op.namespace) if item.key == str(op.key)}
            if op.value is not None:
                created = min((item.created_at for item in old.values()), default=now)
                data = {"key": str(op.key), "value": dict(op.value), "created": created.isoformat()}
                payload = Payload(format=FORMAT, data=data)
                # A search finds what users and assistants said. Without an id, equal system messages would be one.
                role: Any = "system" if op.index is False else "user"
                said = _text(op.value, op.index)
                id_ = uuid.uuid4().hex
                memory.add(Message(role=role, name=NAME, content=said, payload=payload, created_at=now, id=id_))
            if old:
                with suppress(UnknownReferenceError):  # another process has erased it meanwhile
                    memory.forget(ids=list(old))

    def _newest(self, prefix: Namespace) -> list[SearchItem]:
        found: list[SearchItem] = []
        for namespace in self._namespaces_under(prefix):
            with self._memories.use(*_session(namespace)) as memory:
                found += _newest_of(memory, namespace).values()
        return sorted(found, key=lambda item: item.updated_at, reverse=True)

    def _found(self, op: SearchOp, query: str) -> list[SearchItem]:
        most, found = 4 * (op.offset + op.limit), list[list[SearchItem]]()
        for namespace in self._namespaces_under(op.namespace_prefix):
            with self._memories.use(*_session(namespace)) as memory:
                hits = memory.search(query, most)
            # The score of a hit says nothing beside those of another search; its closeness does.
            items = (_item(hit.message, namespace, hit.closeness) for hit in hits)
            found.append([item for item in items if item is not None])
        return [*heapq.merge(*found, key=lambda item: item.score or 0.0, reverse=True)]

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        found = (one for one in self._namespaces_under(()) if all(_matches(one, to) for to in conditions))
        listed = sorted({one[: op.max_depth] for one in found})
        return listed[op.offset : op.offset + op.limit]

    def _namespaces_under(self, prefix: Namespace) -> list[Namespace]:
        store, prefix = self.pool.store, tuple(prefix)
        users = {key.user_id for key in store.sessions() if key.session_id.startswith(ITEMS)}
        if prefix[:1] == (USER,) and len(prefix) > 1:
            users &= {prefix[1]}
        infos = store.overview(*users) if users else []
        found = (_namespace(one.session_id, one.user_id) for one in infos if one.session_id.startswith(ITEMS))
        return [one for one in found if one[: len(prefix)] == prefix]

    def close(self) -> None:
        """Release the store, if it was opened here."""
        if self._owns_pool:
            self.pool.close()


def _session(namespace: Namespace) -> SessionKey:
    """Return the session in which the items of a namespace are, and its user."""
    namespace = tuple(namespace)
    user = namespace[1] if namespace[:1] == (USER,) and len(namespace) > 1 else None
    rest = namespace if user is None else namespace[2:]
    return ITEMS + "/".join(quote(part, safe="") for part in rest), user


def _namespace(session_id: str, user_id: str | None) -> Namespace:
    rest = tuple(unquote(part) for part in session_id[len(ITEMS) :].split("/") if part)
    return rest if user_id is None else (USER, user_id, *rest)


def _items(memory: InfiniteMemory, namespace: Namespace) -> Iterator[tuple[str, SearchItem]]:
    memory.checkout(MAIN)
    for message in memory.messages():
        if message.id is not None and (item := _item(message, namespace, None)) is not None:
            yield message.id, item


def _newest_of(memory: InfiniteMemory, namespace: Namespace) -> dict[str, SearchItem]:
    """Return the items by key. Of one that was put twice, because a process was killed, the newer one counts."""
    return {item.key: item for _, item in _items(memory, namespace)}


def _item(message: Message, namespace: Namespace, score: float | None) -> SearchItem | None:
    if message.payload is None or message.payload.format != FORMAT:
        return None
    data = message.payload.data
    created, updated = datetime.fromisoformat(data["created"]), message.created_at or datetime.now(UTC)
    return SearchItem(namespace, data["key"], data["value"], created, updated, score)


def _text(value: Mapping[str, Any], index: Any) -> str:
    """Return the text by which an item is found: its texts, or those of the fields that `index` names."""
    if isinstance(index, list):
        return "\n".join(text for path in index for text in get_text_at_path(value, tokenize_path(path)))
    return "\n".join(_texts(value)) or str(dict(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _texts(inner)


def _fits(value: Any, wanted: Any) -> bool:
    """Return whether a value is the one of a filter, or stands to it as its operators say."""
    if not isinstance(wanted, Mapping) or not any(str(key).startswith("$") for key in wanted):
        return bool(value == wanted)
    if unknown := wanted.keys() - _OPERATORS.keys():
        raise ValueError(f"unsupported operator: {', '.join(sorted(unknown))}")
    return value is not None and all(_OPERATORS[key](value, to) for key, to in wanted.items())


def _matches(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return len(namespace) >= len(path) and all(to in ("*", own) for own, to in zip(part, path, strict=True))


def remember_tool(
    store: InfiniteStore, *, name: str = "remember", user_key: str = "user_id",
    description: str = "Save a fact about the user that should be known in all later conversations.",
) -> StructuredTool:  # fmt: skip
    """Return a tool that saves a fact of the run's user, beside `recall_tool`, which searches.

    The tool takes one argument, `fact`, and keeps the same fact once, as the item `{"text": fact}`. With `scope="user"`
    and the same pool, the middleware recalls it in each of the user's threads.

    Args:
        store: where it is saved, under `("user", id)`.
        name: the tool's name.
        user_key: as for `InfiniteMemoryMiddleware`.
        description: tells the model when to use the tool.
    """
    instance("store", store, InfiniteStore)
    threads = ThreadResolver(None, user_key)

    def remember(fact: str, config: RunnableConfig) -> str:
        if (user := threads.user(config=config)) is None:
            return "Nothing was saved: this run names no user."
        store.put((USER, user), sha256(fact.encode("utf-8", "surrogatepass")).hexdigest(), {"text": fact})
        return "Saved."

    return StructuredTool.from_function(remember, name=name, description=description)
