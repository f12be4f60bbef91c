"""Vectors in SQLite: kept by message and space, found by message or by the hash of the text."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from shared_core.records import Position
from shared_core.stores.connection import Database
from shared_core.stores.rows import plain, text

__all__ = ["all_vectors", "put_vectors", "spaces", "vectors", "vectors_of"]

_PAGE = 1000


def put_vectors(database: Database, session: int, space: str, rows: Iterable[tuple[Position, str, bytes]]) -> None:
    """Keep vectors, as `Store.put_vectors`."""
    # Read before the transaction: the caller's iterable may call the store, or take its time.
    values = [(*position, text(hash_), vector) for position, hash_, vector in rows]
    with database.writing() as connection:
        connection.execute(
            "INSERT INTO spaces (session, name, written) "
            "SELECT session, ?2, (SELECT coalesce(max(written), 0) + 1 FROM spaces WHERE session = ?1) "
            "FROM sessions WHERE session = ?1 "
            "ON CONFLICT (session, name) DO UPDATE SET written = excluded.written",
            (session, text(space)),
        )
        connection.executemany(
            "INSERT INTO vectors (session, space, segment, depth, hash, vector) "
            "SELECT m.session, s.space, m.segment, m.depth, ?5, ?6 FROM messages AS m JOIN spaces AS s "
            "ON s.session = m.session AND s.name = ?2 WHERE m.session = ?1 AND m.segment = ?3 AND m.depth = ?4 "
            "ON CONFLICT (session, segment, depth, space) "
            "DO UPDATE SET hash = excluded.hash, vector = excluded.vector, live = 1",
            [(session, text(space), *value) for value in values],
        )


def vectors(
    database: Database, session: int, space: str, positions: Sequence[Position]
) -> dict[Position, tuple[str, bytes]]:
    """Return those of some messages, as `Store.vectors`."""
    sql = (
        "SELECT hash, vector FROM vectors WHERE session = ?1 AND segment = ?3 AND depth = ?4 "
        "AND live = 1 AND space = (SELECT space FROM spaces WHERE session = ?1 AND name = ?2)"
    )
    found: dict[Position, tuple[str, bytes]] = {}
    with database.reading() as connection:
        for position in positions:
            row = connection.execute(sql, (session, text(space), *position)).fetchone()
            if row is not None:
                found[Position(*position)] = (plain(row[0]), row[1])
    return found


def all_vectors(database: Database, session: int, space: str) -> Iterator[tuple[Position, str, bytes]]:
    """Iterate over all of a space, as `Store.all_vectors`."""
    sql = (
        "SELECT segment, depth, hash, vector FROM vectors WHERE session = ?1 AND (segment, depth) > (?3, ?4) "
        "AND live = 1 AND space = (SELECT space FROM spaces WHERE session = ?1 AND name = ?2) "
        "ORDER BY segment, depth LIMIT ?5"
    )
    last: tuple[int, int] = (-1, -1)
    # By pages, because the caller may call the store, or stop, between two vectors.
    while rows := database.query(sql, (session, text(space), *last, _PAGE)):
        for segment, depth, hash_, vector in rows:
            yield Position(segment, depth), plain(hash_), vector
        last = rows[-1][:2]


def vectors_of(database: Database, session: int, space: str, hashes: Collection[str]) -> dict[str, bytes]:
    """Return those of equal texts, as `Store.vectors_of`."""
    sql = (
        "SELECT vector FROM vectors WHERE hash = ?3 AND live = 1 "
        "AND space = (SELECT space FROM spaces WHERE session = ?1 AND name = ?2) LIMIT 1"
    )
    found: dict[str, bytes] = {}
    with database.reading() as connection:
        for hash_ in hashes:
            row = connection.execute(sql, (session, text(space), text(hash_))).fetchone()
            if row is not None:
                found[hash_] = row[0]
    return found


def spaces(database: Database, session: int) -> list[str]:
    """Return the spaces that hold any, as `Store.spaces`."""
    sql = (
        "SELECT name FROM spaces AS s WHERE session = ? "
        "AND EXISTS (SELECT 1 FROM vectors AS v WHERE v.space = s.space AND live = 1) ORDER BY written DESC"
    )
    return [plain(row[0]) for row in database.query(sql, (session,))]
