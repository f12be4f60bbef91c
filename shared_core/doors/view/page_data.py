"""The data of the page: messages in lanes, and the prompts of questions with their reports."""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared_core.arguments import whole_number
from shared_core.display import on_one_line
from shared_core.doors.view.lanes import lay_out
from shared_core.doors.view.overview import overview
from shared_core.errors import BudgetError, StoreError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Grounding, GroundingItem, Message
from shared_core.prompt.context import Context
from shared_core.prompt.hits import PART, Kind, Reason
from shared_core.prompt.relevance import Band
from shared_core.prompt.report import ContextReport, ReportLine
from shared_core.queries import After
from shared_core.records import Position, Record
from shared_core.session.paths import Head
from shared_core.store import Store
from shared_core.stores import open_store, store_exists
from shared_core.tree.copies import Stash
from shared_core.tree.log import Lineage, LogEntry

QUESTIONS = 50
"""The default number of questions per branch whose prompts are built, newest first."""

BEGINNING = 240
"""Characters of a message that are shown in a report that stands alone."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A prompt that was sent to a model.

    Attributes:
        report: the report on it.
        at: when it was built.
        model: the name of the model. None: it is not known.
    """

    report: ContextReport
    at: datetime
    model: str | None


NOTHING_SENT: Mapping[str, SentPrompt] = MappingProxyType({})


class _Visitor(InfiniteMemory):
    """A memory that moves along the tree freely: its position is its own, and no branch moves with it."""

    def context_at(self, position: Position) -> Context:
        """Return the prompt for the question at a position. An ID would not do: it may also be the name of a branch."""
        self._checkout.stand(Head(None, position))
        return self.context()


def gather(
    store: str | Path | Store, *, session_id: str = "default", user_id: str | None = None,
    questions: int | None = QUESTIONS, also: Collection[str] = (), sent: Mapping[str, SentPrompt] = NOTHING_SENT,
    progress: Progress | None = None, **settings: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the data of a page that shows a session.

    Nothing is stored.

    Args:
        store: the path of an existing database, or a `Store`, which stays open.
        session_id: the ID of the conversation.
        user_id: the ID of its user. None: it has no user.
        questions: how many of the newest questions of each branch get their prompt built. None: all.
        also: the ids of other questions that get theirs built.
        sent: the prompts that were sent, by the ids of their questions. They are shown instead of others built anew.
        progress: called with the number of prompts built and the number of prompts to build.
        settings: other arguments of `InfiniteMemory`, such as `max_tokens`. Pass those of your application to see its
            prompts.

    Raises:
        StoreError: the database does not exist.
        UnknownReferenceError: the session does not exist; `candidates` lists the sessions of the user.
    """
    if questions is not None:
        whole_number("questions", questions, least=0)
    with _open_existing(store) as all_of_it:
        opened = all_of_it.for_user(user_id)
        session = _session(opened, user_id, session_id)
        memory = _Visitor(opened, session_id=session_id, user_id=user_id, **settings)
        wanted = _Wanted(questions, also, sent, progress or (lambda done, total: None))
        while True:
            epoch = opened.state(session).epoch
            data = _session_data(opened, session, memory, wanted)
            # Another epoch means that messages were forgotten in the meantime. The page must not show them.
            if opened.state(session).epoch == epoch:
                return {"session": session_id, "user": user_id, "questions": questions, **data}


@contextmanager
def _open_existing(store: str | Path | Store) -> Iterator[Store]:
    """Open a store for the block. A database that does not exist is not created."""
    if isinstance(store, Store):
        yield store
        return
    if not store_exists(store):
        raise StoreError(f"no store at {str(store)!r}: create one with infinite-memory chat, add or import")
    opened = open_store(store)
    try:
        yield opened
    finally:
        opened.close()


def _session(store: Store, user_id: str | None, session_id: str) -> int:
    session = store.session(user_id, session_id)
    if session is None:
        names = [one.session_id for one in store.sessions(user_id)]
        whose = "without a user" if user_id is None else f"of user {user_id!r}"
        known = f"sessions {whose}: {', '.join(map(repr, names))}" if names else f"there are no sessions {whose}"
        raise UnknownReferenceError(f"no session {session_id!r}; {known}", candidates=names)
    return session


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Which prompts a page shows; see `gather`."""

    questions: int | None
    also: Collection[str]
    sent: Mapping[str, SentPrompt]
    progress: Progress


def _session_data(store: Store, session: int, memory: _Visitor, wanted: _Wanted) -> dict[str, Any]:
    # Branches are read before messages: then a message added in between lacks its branch name, but no branch lacks its
    # message.
    branches = {branch.name: branch.head for branch in store.branches(session)}
    stashes, given = memory.stashes(), store.refs(session, "title", limit=1)
    entries, records = _tree(store, session, branches, {tag.name: tag.head for tag in memory.tags()})
    rows = {entry.position: row for row, entry in enumerate(entries)}
    ids = {entry.message.id or "": row for row, entry in enumerate(entries) if entry.message is not None}
    ends = {name: row for row, entry in enumerate(entries) for name in entry.branches}
    parents = [[rows[parent] for parent in entry.parents if parent in rows] for entry in entries]
    heads = [ends.get(name) for name in branches]
    layout = lay_out(parents, heads)
    sums = _sums(store, session, rows)
    nodes = [
        {**_node(entry, records.get(entry.position), memory), "parents": parents[row], "lane": lane, "owner": owner}
        | ({"sums": sums[row]} if row in sums else {})
        for row, (entry, lane, owner) in enumerate(zip(entries, layout.lanes, layout.owners, strict=True))
    ]
    sent = {ids[id]: one for id, one in wanted.sent.items() if id in ids}
    chosen = {*_asked(nodes, ends.values(), wanted.questions), *(ids[id] for id in wanted.also if id in ids)}
    asked = sorted(row for row in chosen - sent.keys() if nodes[row]["role"] == "user")
    positions = [entry.position for entry in entries]
    built = _reports(memory, positions, asked, partial(_report, ids), wanted.progress)
    built |= {str(row): _sent_report(ids, one) for row, one in sent.items()}
    reports = {row: built[row] for row in sorted(built, key=int)}
    return {
        "overview": overview(nodes, heads) | ({"title": given[0].note} if given else {}),
        **WORDS,
        "branches": [{"name": name, "row": row} for name, row in zip(branches, heads, strict=True)],
        "stashes": [_stash(stash, ids) for stash in stashes],
        "lanes": layout.width,
        "edges": [[edge.parent, edge.child, edge.lane, edge.owner] for edge in layout.edges],
        "nodes": nodes,
        "reports": reports,
    }


def _tree(
    store: Store, session: int, branches: Mapping[str, Position], tags: Mapping[str, Position]
) -> tuple[list[LogEntry], dict[Position, Record]]:
    """Return all messages and merges, oldest first, and the records of the messages by position."""
    records = list(_records(store, session))
    lineage = Lineage(store, session, cache(lambda segment: store.segment(session, segment)))
    return lineage.log(records, branches, tags)[::-1], {record.position: record for record in records}


def _records(store: Store, session: int) -> Iterator[Record]:
    """Yield all messages in the order in which they were stored, and read them in pages."""
    seq = 0
    while page := store.find(session, After(seq, 1_000)):
        yield from page
        seq = page[-1].seq


def _node(entry: LogEntry, record: Record | None, memory: InfiniteMemory) -> dict[str, Any]:
    """Return the data of a message or a merge, without empty fields."""
    names = {"branches": list(entry.branches), "tags": list(entry.tags)}
    fields: dict[str, Any] = _message(entry.message, memory) if entry.message is not None else {"role": "merge"}
    picked = record.picked_from if record is not None else None
    fields |= {**names, "picked_from": picked}
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _message(message: Message, memory: InfiniteMemory) -> dict[str, Any]:
    return {
        "role": message.role,
        "text": message.content,
        "id": message.id,
        "name": message.name,
        "at": message.created_at.astimezone(UTC).isoformat() if message.created_at is not None else None,
        "turn": message.turn_id,
        "tokens": memory._count(message),
        "calls": [call.model_dump() for call in message.tool_calls],
        "answers": message.tool_call_id,
        "grounding": _grounding(message.grounding) if message.grounding is not None else None,
        "pinned": message.pinned or None,
        "media": message.media_tokens or None,
        "payload": message.payload.format if message.payload is not None else None,
    }


def _grounding(grounding: Grounding) -> dict[str, Any]:
    """Return the grounding without scores that are infinite or NaN, which JSON cannot hold."""
    items = [
        item if item.score is None or math.isfinite(item.score) else GroundingItem(text=item.text)
        for item in grounding.items
    ]
    return grounding.model_copy(update={"items": tuple(items)}).model_dump(exclude_defaults=True)


def _stash(stash: Stash, ids: Mapping[str, int]) -> dict[str, Any]:
    at = stash.at.astimezone(UTC).isoformat()
    fields = {"number": stash.number, "branch": stash.branch, "note": stash.note, "at": at}
    return fields | {"rows": [ids[id] for id in stash.ids if id in ids]}


def _sums(store: Store, session: int, rows: Mapping[Position, int]) -> dict[int, list[int]]:
    """Return row of a summary -> rows of the messages it sums up."""
    found: dict[int, list[int]] = {}
    for summary, stretch in store.covers(session, {position.segment for position in rows}):
        positions = (Position(stretch.segment, depth) for depth in range(stretch.start, stretch.upto + 1))
        if summary in rows:
            found.setdefault(rows[summary], []).extend(rows[position] for position in positions if position in rows)
    return {row: sorted(covered) for row, covered in found.items() if covered}


def _asked(nodes: Sequence[Mapping[str, Any]], heads: Iterable[int], questions: int | None) -> list[int]:
    """Return the rows of the newest questions of each branch, oldest first."""
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
    memory: _Visitor, positions: Sequence[Position], asked: Sequence[int],
    as_data: Callable[[ContextReport], dict[str, Any]], progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Return row of a question -> the report on its prompt, or the error that prevents the prompt."""
    reports: dict[str, Any] = {}
    for done, row in enumerate(asked, 1):
        try:
            reports[str(row)] = as_data(memory.context_at(positions[row]).report)
        except BudgetError as error:
            reports[str(row)] = {"error": str(error)}
        progress(done, len(asked))
    return reports


def _report(ids: Mapping[str, int], report: ContextReport) -> dict[str, Any]:
    data = report.to_dict()
    return {
        **{name: data[name] for name in ("budget", "reserve", "total_tokens", "pending", "degraded", "embedder")},
        "totals": list(report.totals.values()),
        "threshold": max((line.threshold for line in report.lines), default=0.0),
        "lines": [_line(line, ids) for line in report.lines],
    }


def _sent_report(ids: Mapping[str, int], sent: SentPrompt) -> dict[str, Any]:
    """Return the report on a prompt that was sent. Of a message that is not stored any more it shows no text."""
    kept = [line if line.id is None or line.id in ids else line._replace(text="") for line in sent.report.lines]
    report = replace(sent.report, lines=tuple(kept))
    return _report(ids, report) | {"sent": {"at": sent.at.astimezone(UTC).isoformat(), "model": sent.model}}


def sent_prompt(sent: SentPrompt) -> dict[str, Any]:
    """Return the data of a report alone: its lines are about `messages`, by their index."""
    shown = {line.id: line for line in sent.report.lines if line.id is not None}
    messages = [{"id": id, "role": line.role, "text": on_one_line(line.text[:BEGINNING])} for id, line in shown.items()]
    return {**WORDS, "messages": messages, **_sent_report({id: number for number, id in enumerate(shown)}, sent)}


def _line(line: ReportLine, ids: Mapping[str, int]) -> list[Any]:
    """Return a line: row, kind, included, reason, tokens, tokens left, score, lexical and dense score, band.

    A line about no message of the page has no row and ends with a preview of its text.
    """
    row = ids.get(line.id) if line.id is not None else None
    scores = [None if score is None else round(float(score), 3) for score in (line.score, line.lexical, line.dense)]
    close = None if line.band is None else BANDS[line.band]
    why = 2 * REASONS[line.reason] + line.part
    cells = [row, KINDS[line.kind], int(line.included), why, line.tokens, line.left, *scores, close]
    return cells if row is not None else [*cells, line.preview]


WORDS: Mapping[str, list[str]] = {
    "kinds": [kind.value for kind in Kind],
    "bands": [each.value for each in Band],
    "reasons": [why for reason in Reason for why in (reason.why, f"{reason.why}; {PART}")],
}
"""What the numbers in a report stand for."""

KINDS = {kind: number for number, kind in enumerate(Kind)}
BANDS = {band: number for number, band in enumerate(Band)}
REASONS = {reason: number for number, reason in enumerate(Reason)}
