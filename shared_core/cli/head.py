"""The branch that the command has checked out in a session: the store keeps it from one command to the next."""

from contextlib import closing

from shared_core.errors import UnknownReferenceError
from shared_core.records import MAIN, Change, Drop, Put
from shared_core.stores import open_store

__all__ = ["read_head", "write_head"]


def read_head(store: str, user_id: str | None, session_id: str) -> str:
    """Return the branch that is checked out in a session: `main`, unless another was checked out and still exists."""
    with closing(open_store(store)) as opened:
        session = opened.session(user_id, session_id)
        if session is None:
            return MAIN
        heads = [ref.name for ref in opened.refs(session, "head", limit=1)]
        return next((branch.name for branch in opened.branches(session) if [branch.name] == heads), MAIN)


def write_head(store: str, user_id: str | None, session_id: str, branch: str) -> None:
    """Check a branch of a session out for the commands to come.

    Raises:
        UnknownReferenceError: there is no such branch.
    """
    with closing(open_store(store)) as opened:
        session = opened.create_session(user_id, session_id)
        ends = {one.name: one.head for one in opened.branches(session)}
        if branch not in ends:
            raise UnknownReferenceError(f"there is no branch {branch!r} any more")
        changes: list[Change] = [Drop(ref.number) for ref in opened.refs(session, "head")]
        opened.change(session, [*changes, Put("head", branch, ends[branch])] if branch != MAIN else changes)
