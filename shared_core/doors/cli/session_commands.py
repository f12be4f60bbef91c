"""The commands about whole conversations: list and name them."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer

from shared_core.display import printable, printable_name
from shared_core.doors.cli.options import BranchOptions, CommonOptions, say, with_options
from shared_core.doors.cli.printing import Full, Lines, columns, moment, table
from shared_core.records import SessionInfo
from shared_core.stores import open_store


@with_options
def sessions(
    options: CommonOptions,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="List only this many of the newest.")
    ] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="List the conversations of all users.")] = False,
    find: Annotated[
        str, typer.Option("--find", metavar="WORDS", help="List only those with these words in the title.")
    ] = "",
    full: Full = False,
) -> None:
    """List the conversations of a user, newest first.

    The first is the one that was added to last. Without --user, these are the conversations that belong to no user.
    Each line holds the ID, how many messages and branches there are, the day of the first and the time of the last
    message (UTC), and the title: the one given, or else the first question. On a terminal, the beginning of random IDs
    is shown, which is enough to name a conversation.

    Examples:
      infinite-memory sessions -n 5
      infinite-memory sessions --all-users
    """
    if all_users and options.user is not None:
        raise typer.BadParameter("--all-users lists the conversations of every user: leave out --user")
    options.require_store()
    with closing(open_store(options.store).for_user(options.user)) as store:
        words = find.casefold().split()
        most = {} if limit is None or words else {"limit": limit}
        found = store.overview(*([] if all_users else [options.user]), **most)
        found = [one for one in found if all(word in (one.title or "").casefold() for word in words)][:limit]
    if not found:
        whose = options.of_user() or " without a user"
        others = "" if all_users else f"{whose}; --all-users lists those of everybody"
        say(f"note: {options.shown_store!r} holds no conversations{others}")
    options.answer([info.to_dict() for info in found], session_table(found, Lines.of(full), all_users=all_users))


@with_options
def title(
    options: CommonOptions,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The title; empty: the first question again.")],
) -> None:
    """Give a conversation a title, which sessions lists.

    Example:
      infinite-memory title "Portugal in May" --session trip
    """
    with options.with_whole_id().open() as memory:
        memory.set_title(text)
        data = {"session": memory.session_id, "title": text or None}
    options.answer(data, [printable(f"the title of {data['session']!r} is {text!r}")])


@with_options
def rename_session(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="OLD", help="The current ID of the conversation.")],
    to: Annotated[str, typer.Argument(metavar="NEW", help="The new ID of the conversation.")],
) -> None:
    """Give a conversation another ID; it keeps everything.

    Example:
      infinite-memory rename-session default "trip to Porto"
    """
    with replace(options, session=name).with_whole_id().open() as memory:
        name = memory.session_id
        memory.rename_session(to)
        data = {"session": memory.session_id, "user": memory.user_id, "was": name}
    options.answer(data, [printable(f"renamed {name!r} to {to!r}")])


@with_options
def status(options: BranchOptions) -> None:
    """Say where you are, and how much is stored.

    The conversation is that of --session and --user, the branch the one that is checked out.

    Example:
      infinite-memory status
    """
    lines = Lines.of()
    with options.read() as memory:
        newest, title = (
            memory.newest(1),
            next((one.title for one in memory.sessions() if one.session_id == memory.session_id), None),
        )
        data = {
            "store": options.shown_store, "session": memory.session_id, "user": memory.user_id, "title": title,
            "branch": memory.branch, "newest": newest[0].id if newest else None, **memory.stats(),
        }  # fmt: skip
    told = {name: value for name, value in data.items() if name != "segments"}  # of the tree, for programs
    options.answer(data, [table(told), *(lines.message(message) for message in newest)])


def session_table(found: Sequence[SessionInfo], lines: Lines, *, all_users: bool = False) -> Iterator[str]:
    """Yield a line for each session, under a head; on a terminal, none is wider than the terminal."""
    head = ["SESSION", "MESSAGES", "BRANCHES", "FIRST", "LAST", "TITLE"]
    rows = [
        [
            lines.id(info.session_id), f"{info.messages:,}", f"{info.branches:,}", moment(info.first).partition(" ")[0],
            moment(info.last), printable(info.title or "-"),
        ]
        for info in found
    ]  # fmt: skip
    if all_users:
        head = ["USER", *head]
        rows = [[printable_name(info.user_id or "-"), *row] for info, row in zip(found, rows, strict=True)]
    yield from map(lines.cut, columns(head, rows))
