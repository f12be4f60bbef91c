"""Commands for the stash: push, list, apply, pop and drop; with --json, for programs."""

from typing import Annotated

import typer

from shared_core.cli.options import AsJson, On, Session, StorePath, User, change, done, opened, picked, write_json
from shared_core.cli.printing import count, printable
from shared_core.records import MAIN

__all__ = ["putting_aside"]

putting_aside = typer.Typer(help="Put the end of a branch aside, and bring it back.", no_args_is_help=True)

Number = Annotated[int, typer.Argument(min=0, help="Which stash; 0 is the newest.")]


@putting_aside.command("push")
def stash_push(
    branch: On = MAIN,
    since: Annotated[str | None, typer.Option(metavar="PLACE", help="The last message that stays.")] = None,
    note: Annotated[str, typer.Option(help="To tell it by.")] = "",
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Take the end of a branch away and keep it."""
    with opened(store, session, user) as memory:
        memory.checkout(branch)
        stash = memory.stash(since, note)
    if as_json:
        write_json(None if stash is None else stash.to_dict())
        return
    typer.echo("nothing to put aside" if stash is None else f"put aside {count(len(stash.ids))}")


@putting_aside.command("list")
def stash_list(
    store: StorePath = "chat.db", session: Session = "default", user: User = None, as_json: AsJson = False
) -> None:
    """List what was put aside."""
    with opened(store, session, user) as memory:
        stashes = memory.stashes()
    if as_json:
        write_json([stash.to_dict() for stash in stashes])
        return
    for stash in stashes:
        text = f"{stash.number}  {stash.at:%Y-%m-%d %H:%M}  {stash.branch}  {count(len(stash.ids))}  {stash.note}"
        typer.echo(printable(text.rstrip()))


@putting_aside.command("apply")
def stash_apply(
    number: Number = 0,
    branch: On = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Add copies of what was put aside; the stash stays."""
    change(store, session, user, branch, lambda memory: memory.stash_apply(number), picked, as_json)


@putting_aside.command("pop")
def stash_pop(
    number: Number = 0,
    branch: On = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Add copies of what was put aside and drop the stash."""
    change(store, session, user, branch, lambda memory: memory.stash_pop(number), picked, as_json)


@putting_aside.command("drop")
def stash_drop(
    number: Number = 0,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Drop a stash; its messages stay until they are forgotten."""
    with opened(store, session, user) as memory:
        memory.stash_drop(number)
        done(memory, f"dropped stash {number}", as_json)
