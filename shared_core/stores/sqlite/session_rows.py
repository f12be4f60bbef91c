"""The sessions of an SQLite database at a glance: two statements, however many sessions there are."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from shared_core.messages import Message
from shared_core.records import SessionInfo, title_of
from shared_core.stores.row_values import shown_record, span_of
from shared_core.stores.sqlite.damage import damaged
from shared_core.stores.sqlite.message_rows import COLUMNS
from shared_core.stores.sqlite.tree_rows import TreeRows, check_names

# The first and the last message are ends of an index, and the count reads that index alone.
_OF_SESSION = "FROM messages AS m INDEXED BY messages_seq WHERE m.session = s.session"
_SESSIONS = (
    "SELECT s.session, s.user_id, s.session_id, "
    f"(SELECT count(*) {_OF_SESSION}), "
    "(SELECT count(*) FROM branches AS b WHERE b.session = s.session), "
    f"(SELECT m.created_at {_OF_SESSION} ORDER BY m.seq LIMIT 1), "
    f"(SELECT m.created_at {_OF_SESSION} ORDER BY m.seq DESC LIMIT 1), "
    "(SELECT r.note FROM refs AS r WHERE r.session = s.session AND r.kind = 'title') "
    "FROM sessions AS s "
)

# The messages that a session is described by: the first, the last, and the first of the user.
_SHOWN = (
    f"SELECT {COLUMNS} FROM json_each(?) AS s CROSS JOIN messages AS m LEFT JOIN texts AS t USING (text) "
    "WHERE m.session = s.value AND m.seq IN ("
    "(SELECT min(n.seq) FROM messages AS n INDEXED BY messages_seq WHERE n.session = s.value), "
    "(SELECT max(n.seq) FROM messages AS n INDEXED BY messages_seq WHERE n.session = s.value), "
    "(SELECT n.seq FROM messages AS n INDEXED BY messages_seq WHERE n.session = s.value AND n.role = 'user' "
    "ORDER BY n.seq LIMIT 1)) ORDER BY m.seq"
)


def overview(rows: TreeRows, user_ids: Collection[str | None], limit: int) -> list[SessionInfo]:
    """Return what `Store.overview` returns; call it in a transaction.

    A damaged message hides no session: a `RuntimeWarning` names it, and its text is no title.

    Raises:
        StoreError: a session has no valid time at all.
    """
    found = sorted(_sessions(rows, user_ids), key=lambda row: (row[0].last, row[1]), reverse=True)
    page = found[: max(limit, 0)]
    said: dict[int, list[Message]] = {key: [] for _, key in page}
    for row in rows.fetch(_SHOWN, (json.dumps(list(said)),)):
        if record := shown_record(damaged, row):
            said[row[0]].append(record.message)
    return [_titled(info, said[key]) for info, key in page]


def _titled(info: SessionInfo, said: Sequence[Message]) -> SessionInfo:
    question = next((message for message in said if message.role == "user"), None)
    return replace(info, title=info.title or (None if question is None else title_of(question.content)))


def _sessions(rows: TreeRows, user_ids: Collection[str | None]) -> Iterator[tuple[SessionInfo, int]]:
    users: list[tuple[str | None, ...]] = [(one,) for one in set(user_ids)]
    condition = "WHERE s.user_id IS ?" if users else ""
    for values in users or [()]:
        for key, *fields in rows.fetch(_SESSIONS + condition, values):
            if fields[2]:
                yield _info(*fields), key


def _info(
    user_id: str | None, session_id: str, messages: int, branches: int, first: str, last: str,
    title: str | None,
) -> SessionInfo:  # fmt: skip
    check_names(user_id, session_id, title)
    try:
        times = span_of(first, last)
    except ValueError as error:
        raise damaged(f"a time of session {session_id!r}", str(error)) from error
    return SessionInfo(session_id, user_id, messages, branches, *times, title)
