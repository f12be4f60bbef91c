"""Bring a file, whatever wrote it, into sessions of a store: all of it or nothing."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shared_core.messages import Message
from shared_core.records import MAIN, Draft, Position
from shared_core.sharing.foreign import Foreign, read_foreign
from shared_core.sharing.format import SessionLine
from shared_core.sharing.importing import Imported, Target, import_lines
from shared_core.sharing.listing import add_list
from shared_core.sharing.reading import NumberedLine, is_ours, read_header, read_lines
from shared_core.sharing.result import ImportResult
from shared_core.sharing.writing import Progress
from shared_core.store import Store
from shared_core.tree import Head

__all__ = ["Route", "Spot", "bring", "sessions_in"]

NAMED = 10
"""Sessions that an error names."""


class Spot(NamedTuple):
    """Where a list of messages goes: a branch; with `at`, one that is opened there."""

    branch: str = MAIN
    at: Position | None = None


Route = Callable[[str | None, str, int], Target | None]
"""Says where a session goes: its user and its id in the file (none: ""), and how many there are; None: nowhere."""


def bring(
    store: Store, path: str | os.PathLike[str], route: Route, draft: Callable[[Message], Draft], *,
    spot: Spot | None = None, progress: Progress | None = None,
) -> list[Imported]:  # fmt: skip
    """Bring the sessions of a file into a store.

    Args:
        store: where they go.
        path: a file of our own format, or of one that `read_foreign` knows.
        route: says where each goes.
        draft: returns a message ready to be stored, counted or not.
        spot: where on its session a list goes, which has no branches of its own; None: the end of `main`.
        progress: told how many messages are done and how many there are.

    Returns:
        One for each session that went somewhere.

    Raises:
        InputFileError: the file is not what it should be; the store is as it was.
    """

    def counted(message: Message) -> tuple[str, int] | None:
        done = draft(message)
        return None if done.counter is None or done.tokens is None else (done.counter, done.tokens)

    if is_ours(path):
        header = read_header(path)
        return import_lines(
            store, path, read_lines(path), lambda line: route(line.user_id, line.session_id, header.sessions),
            format="infinite-memory", total=header.messages, counted=counted, progress=progress,
        )  # fmt: skip
    foreign = read_foreign(path)
    with store.transaction():
        lists = [_bring_list(store, foreign, key, route, draft, spot or Spot(), progress) for key in foreign.lists]
        trees = [_bring_tree(store, foreign, key, route, counted, progress) for key in foreign.trees]
    return [one for one in [*lists, *(one for some in trees for one in some)] if one is not None]


def _bring_list(
    store: Store, foreign: Foreign, key: str, route: Route, draft: Callable[[Message], Draft], spot: Spot,
    progress: Progress | None,
) -> Imported | None:  # fmt: skip
    target = route(None, key, len(foreign.sessions))
    if target is None:
        return None
    session = store.create_session(*target)
    created = not store.state(session).last_seq
    listed = add_list(store, session, spot.branch, foreign.lists[key], draft, at=spot.at, progress=progress)
    result = ImportResult(
        foreign.format, target.session_id, target.user_id, listed.new, listed.known, listed.forgotten, listed.renamed,
        head=spot.branch, created=created,
    )  # fmt: skip
    return Imported(result, Head(spot.branch) if foreign.lists[key] else None)


def _bring_tree(
    store: Store, foreign: Foreign, key: str, route: Route,
    counted: Callable[[Message], tuple[str, int] | None], progress: Progress | None,
) -> Sequence[Imported]:  # fmt: skip
    def destination(line: SessionLine) -> Target | None:
        return route(None, line.session_id, len(foreign.sessions))

    lines = (NumberedLine(number, line) for number, line in enumerate(foreign.lines(key), 1))
    return import_lines(
        store, foreign.name, lines, destination, format=foreign.format, total=len(foreign.trees[key]["mapping"]),
        counted=counted, progress=progress,
    )  # fmt: skip


def sessions_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the ids of the sessions of a file, for an error that has to name them; at most some."""
    if not is_ours(path):
        return read_foreign(path).sessions[:NAMED]
    found = []
    for _, line in read_lines(path):
        if isinstance(line, SessionLine):
            found.append(line.session_id)
        if len(found) == NAMED:
            break
    return found
