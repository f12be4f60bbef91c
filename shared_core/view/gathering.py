"""All that a page shows of one session, as plain JSON data: the tree, and why each prompt was as it was."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from shared_core.arguments import whole_number
from shared_core.errors import BudgetError, StoreError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Grounding, GroundingItem, Message
from shared_core.prompt.context import Context, ContextReport, Kind, Reason, ReportLine
from shared_core.records import After, Position, Record
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tree.copies import Stash
from shared_core.tree.log import Lineage, LogEntry
from shared_core.tree.paths import Head
from shared_core.view.lanes import lay_out

__all__ = ["QUESTIONS", "gather"]

QUESTIONS = 50
"""Questions of each branch whose prompts are built, the newest, unless another number is asked for."""

PATIENCE_MS = 60_000
"""How long one prompt may embed messages without a vector: nobody waits for an answer, and the page should be right."""

Progress = Callable[[int, int], None]


class _Visitor(InfiniteMemory):
    """An object of its own on a session, which other objects do not notice."""

    def ask_at(self, place: Position) -> Context:
        """Return the prompt for the question that stands at a place; by place, as an id may be a branch's name."""
        self._stand(Head(None, place))
        return self.context()


def gather(
    store: str | Path | Store, *, session_id: str = "default", user_id: str | None = None,
    questions: int | None = QUESTIONS, progress: Progress | None = None, **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return what a page shows of a session. Stores no more than asking does: vectors that were missing.

    Args:
        store: a path of a database that exists, or a `Store`, which stays open.
        session_id: which conversation.
        user_id: whose.
        questions: build the prompts of so many of the newest questions of each branch; None: of all.
        progress: called with how many prompts are built and how many there are to build.
        settings: other arguments of `InfiniteMemory`, so that prompts are built as yours are, such as `max_tokens`.

    Raises:
        StoreError: there is no such database.
        UnknownReferenceError: there is no such session; `candidates` are those there are.
    """
    if questions is not None:
        whole_number("questions", questions, least=0)
    settings = {"embed_budget_ms": PATIENCE_MS} | settings
    with opened(store) as there:
        session = _session(there, user_id, session_id)
        memory = _Visitor(there, session_id=session_id, user_id=user_id, **settings)
        while True:
            epoch = there.state(session).epoch
            data = _gathered(there, session, memory, questions, progress or (lambda done, total: None))
            if there.state(session).epoch == epoch:  # else something was forgotten meanwhile, and must not be shown
                return {"session": session_id, "user": user_id, "questions": questions, **data}


@contextmanager
def opened(store: str | Path | Store) -> Iterator[Store]:
    """Open a store that exists, for as long as it is used; one that does not is not made."""
    if isinstance(store, Store):
        yield store
        return
    path = str(store).removeprefix("sqlite:///")
    if "://" not in path and not Path(path).expanduser().exists():
        raise StoreError(f"no store at {str(store)!r}: import a conversation first (infinite-memory import FILE)")
    there = open_store(store)
    try:
        yield there
    finally:
        there.close()


def _session(store: Store, user_id: str | None, session_id: str) -> int:
    session = store.session(user_id, session_id)
    if session is None:
        names = [one.session_id for one in store.sessions(user_id)]
        whose = "without a user" if user_id is None else f"of user {user_id!r}"
        known = f"sessions {whose}: {', '.join(map(repr, names))}" if names else f"there are no sessions {whose}"
        raise UnknownReferenceError(f"no session {session_id!r}; {known}", candidates=names)
    return session


def _gathered(
    store: Store, session: int, memory: _Visitor, questions: int | None, progress: Progress
) -> dict[str, Any]:
    # The names first: a message that is added meanwhile is then without a name rather than a name without its message.
    branches = {branch.name: branch.head for branch in store.branches(session)}
    stashes = memory.stashes()
    entries, records = _tree(store, session, branches, {tag.name: tag.head for tag in memory.tags()})
    rows = {entry.place: row for row, entry in enumerate(entries)}
    ids = {entry.message.id or "": row for row, entry in enumerate(entries) if entry.message is not None}
    ends = {name: row for row, entry in enumerate(entries) for name in entry.branches}
    parents = [[rows[parent] for parent in entry.parents if parent in rows] for entry in entries]
    layout = lay_out(parents, [ends.get(name) for name in branches])
    sums = _sums(store, session, rows)
    nodes = [
        _node(entry, records.get(entry.place), memory)
        | {"parents": parents[row], "lane": layout.lanes[row], "owner": layout.owners[row]}
        | ({"sums": sums[row]} if row in sums else {})
        for row, entry in enumerate(entries)
    ]
    asked = _asked(nodes, ends.values(), questions)
    return {
        "kinds": [kind.value for kind in Kind],
        "reasons": [reason.value for reason in Reason],
        "branches": [{"name": name, "row": ends.get(name)} for name in branches],
        "stashes": [_stash(stash, ids) for stash in stashes],
        "lanes": layout.width,
        "edges": [[edge.parent, edge.child, edge.lane, edge.owner] for edge in layout.edges],
        "nodes": nodes,
        "reports": _reports(memory, [entry.place for entry in entries], asked, ids, progress),
    }


def _tree(
    store: Store, session: int, branches: Mapping[str, Position], tags: Mapping[str, Position]
) -> tuple[list[LogEntry], dict[Position, Record]]:
    """Return all messages and merges as nodes, the oldest first, and the messages by place."""
    records = list(_records(store, session))
    lineage = Lineage(store, session, cache(lambda segment: store.segment(session, segment)))
    return lineage.log(records, branches, tags)[::-1], {record.position: record for record in records}


def _records(store: Store, session: int) -> Iterator[Record]:
    """Yield all messages, in order of storing, a page at a time."""
    seq = 0
    while page := store.find(session, After(seq, 1_000)):
        yield from page
        seq = page[-1].seq


def _node(entry: LogEntry, record: Record | None, memory: InfiniteMemory) -> dict[str, Any]:
    """Return a message or a merge; what is not there is left out."""
    names = {"branches": list(entry.branches), "tags": list(entry.tags)}
    said = _said(entry.message, memory) if entry.message is not None else {"role": "merge"}
    picked = record.picked_from if record is not None else None
    return {name: value for name, value in {**said, **names, "picked_from": picked}.items() if value not in (None, [])}


def _said(message: Message, memory: InfiniteMemory) -> dict[str, Any]:
    return {
        "role": message.role,
        "text": message.content,
        "id": message.id,
        "name": message.name,
        "at": message.created_at.isoformat() if message.created_at is not None else None,
        "turn": message.turn_id,
        "tokens": memory.count(message),
        "calls": [call.model_dump() for call in message.tool_calls],
        "answers": message.tool_call_id,
        "grounding": _found_for(message.grounding) if message.grounding is not None else None,
        "pinned": message.pinned or None,
        "media": message.media_tokens or None,
        "payload": message.payload.format if message.payload is not None else None,
    }


def _found_for(grounding: Grounding) -> dict[str, Any]:
    """Return what was retrieved; a score that is no number, which JSON has no form for, is left out."""
    items = [
        item if item.score is None or math.isfinite(item.score) else GroundingItem(text=item.text)
        for item in grounding.items
    ]
    return grounding.model_copy(update={"items": tuple(items)}).model_dump(exclude_defaults=True)


def _stash(stash: Stash, ids: Mapping[str, int]) -> dict[str, Any]:
    fields = {"number": stash.number, "branch": stash.branch, "note": stash.note, "at": stash.at.isoformat()}
    return fields | {"rows": [ids[id] for id in stash.ids if id in ids]}


def _sums(store: Store, session: int, rows: Mapping[Position, int]) -> dict[int, list[int]]:
    """Return row of a summary -> rows of what it sums up."""
    found: dict[int, list[int]] = {}
    for place, stretch in store.covers(session, {place.segment for place in rows}):
        positions = (Position(stretch.segment, depth) for depth in range(stretch.start, stretch.upto + 1))
        if place in rows:
            found.setdefault(rows[place], []).extend(rows[position] for position in positions if position in rows)
    return {row: sorted(covered) for row, covered in found.items() if covered}


def _asked(nodes: Sequence[Mapping[str, Any]], heads: Iterable[int], questions: int | None) -> list[int]:
    """Return the rows of the newest questions of each branch, in order."""
    asked: set[int] = set()
    if questions is None:
        return [row for row, node in enumerate(nodes) if node["role"] == "user"]
    for head in set(heads):
        left, waiting, seen = questions, [-head], {head}
        while waiting and left:
            row = -heapq.heappop(waiting)
            if nodes[row]["role"] == "user":
                asked.add(row)
                left -= 1
            for parent in nodes[row]["parents"]:
                if parent not in seen:
                    seen.add(parent)
                    heapq.heappush(waiting, -parent)
    return sorted(asked)


def _reports(
    memory: _Visitor, places: Sequence[Position], asked: Sequence[int], ids: Mapping[str, int], progress: Progress
) -> dict[str, Any]:
    """Return row of a question -> why its prompt is as it is."""
    reports: dict[str, Any] = {}
    for done, row in enumerate(asked, 1):
        try:
            reports[str(row)] = _report(memory.ask_at(places[row]).report, ids)
        except BudgetError as error:
            reports[str(row)] = {"error": str(error)}
        progress(done, len(asked))
    return reports


def _report(report: ContextReport, ids: Mapping[str, int]) -> dict[str, Any]:
    data = report.to_dict()
    return {
        **{name: data[name] for name in ("budget", "reserve", "total_tokens", "pending", "degraded", "embedder")},
        "totals": list(report.totals.values()),
        "lines": [_line(line, ids) for line in report.lines],
    }


def _line(line: ReportLine, ids: Mapping[str, int]) -> list[Any]:
    """Return one decision: row, kind, in the prompt, reason, tokens, left, score, words, cosine; else what it says."""
    row = ids.get(line.id) if line.id is not None else None
    scores = [None if score is None else round(float(score), 3) for score in (line.score, line.lexical, line.dense)]
    cells = [row, KINDS[line.kind], int(line.included), REASONS[line.reason], line.tokens, line.left, *scores]
    return cells if row is not None else [*cells, line.preview]


KINDS = {kind: number for number, kind in enumerate(Kind)}
REASONS = {reason: number for number, reason in enumerate(Reason)}
