"""Commands for branches: fork, merge, pick, move and compare them; with --json, for programs."""

from collections.abc import Sequence
from typing import Annotated

import typer

from shared_core.branches.graph import draw
from shared_core.branches.lineage import LogEntry
from shared_core.branches.merging import How, MergeResult
from shared_core.cli.options import AsJson, On, Session, StorePath, User, change, done, opened, picked, write_json
from shared_core.cli.printing import count, line, printable
from shared_core.engine import InfiniteMemory
from shared_core.records import MAIN, Branch

__all__ = ["GRAPH_LIMIT", "answer_graph", "branching"]

GRAPH_LIMIT = 200
"""Messages that are drawn unless another number is asked for."""

branching = typer.Typer()

Place = Annotated[str, typer.Argument(metavar="PLACE", help="A branch, tag or message, or main@{1}.")]


@branching.command()
def branches(
    store: StorePath = "chat.db", session: Session = "default", user: User = None, as_json: AsJson = False
) -> None:
    """List the branches, and the newest message of each."""
    with opened(store, session, user) as memory:
        _list(memory, memory.branches(), as_json)


@branching.command()
def tags(
    store: StorePath = "chat.db", session: Session = "default", user: User = None, as_json: AsJson = False
) -> None:
    """List the tags, and the message each stands at."""
    with opened(store, session, user) as memory:
        _list(memory, memory.tags(), as_json)


@branching.command()
def fork(
    name: Annotated[str, typer.Argument(help="Of the new branch.")],
    at: Annotated[str, typer.Option(metavar="PLACE", help="The last message the branches share.")] = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Open a branch."""
    with opened(store, session, user) as memory:
        memory.fork(name, at=at)
        done(memory, f"opened {name!r} at {at}", as_json)


@branching.command()
def rename(
    name: Annotated[str, typer.Argument(help="Of the branch.")],
    to: Annotated[str, typer.Argument(help="Its new name.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Give a branch another name."""
    with opened(store, session, user) as memory:
        memory.rename(name, to)
        done(memory, f"{name!r} is {to!r} now", as_json)


@branching.command("delete-branch")
def delete_branch(
    name: Annotated[str, typer.Argument(help="Of the branch.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Drop a branch; its messages stay until they are forgotten."""
    with opened(store, session, user) as memory:
        memory.delete_branch(name)
        done(memory, f"deleted {name!r}; to have it back: fork {name} --at {name}@{{1}}", as_json)


@branching.command()
def tag(
    name: Annotated[str, typer.Argument(help="Of the tag.")],
    at: Annotated[str, typer.Option(metavar="PLACE", help="What it is to name.")] = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Name a place for good."""
    with opened(store, session, user) as memory:
        memory.tag(name, at)
        done(memory, f"tagged {at} as {name!r}", as_json)


@branching.command("delete-tag")
def delete_tag(
    name: Annotated[str, typer.Argument(help="Of the tag.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Drop a tag."""
    with opened(store, session, user) as memory:
        memory.delete_tag(name)
        done(memory, f"deleted {name!r}", as_json)


@branching.command()
def reset(
    to: Place,
    branch: On = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Have a branch end elsewhere; nothing is lost, see reflog."""
    with opened(store, session, user) as memory:
        memory.checkout(branch)
        memory.reset(to)
        done(memory, f"{branch!r} ends at {to} now; to undo it: reset {branch}@{{1}} --branch {branch}", as_json)


@branching.command()
def reflog(
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this branch.")] = None,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """List how branches were moved, and where they ended before."""
    with opened(store, session, user) as memory:
        moves = memory.reflog(branch)
    if as_json:
        write_json([move.to_dict() for move in moves])
        return
    for move in moves:
        text = f"{move.at:%Y-%m-%d %H:%M}  {move.reference}  {move.why}: {move.before or '-'} -> {move.after or '-'}"
        typer.echo(printable(text))


@branching.command()
def diff(
    a: Place,
    b: Place = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Show what two places do not share."""
    with opened(store, session, user) as memory:
        found = memory.diff(a, b)
        if as_json:
            write_json(found.to_dict())
            return
        typer.echo(printable(f"both: up to {found.base or 'nothing'}"))
        for name, sign, ids in ((a, "<", found.only_a), (b, ">", found.only_b)):
            typer.echo(printable(f"only {name}: {count(len(ids))}"))
            for id_ in ids:
                typer.echo(f"{sign} {line(memory.get(id_))}")


@branching.command()
def merge(
    source: Place,
    branch: On = MAIN,
    how: Annotated[How, typer.Option(help="See the manual.")] = "auto",
    prompt: Annotated[str | None, typer.Option(help="The question of a squash or three-way merge.")] = None,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Bring what another branch has to a branch; the other one stays."""
    change(store, session, user, branch, lambda memory: memory.merge(source, how, prompt=prompt), _merged, as_json)


@branching.command("cherry-pick")
def cherry_pick(
    ids: Annotated[list[str], typer.Argument(help="Of the messages.")],
    branch: On = MAIN,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Copy messages to a branch; a tool's result brings its call."""
    change(store, session, user, branch, lambda memory: memory.cherry_pick(ids), picked, as_json)


@branching.command()
def rebase(
    onto: Place,
    branch: On,
    since: Annotated[str | None, typer.Option(metavar="PLACE", help="Copy only what comes after.")] = None,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Have a branch end elsewhere, followed by copies of what only it has."""
    change(store, session, user, branch, lambda memory: memory.rebase(onto, since), picked, as_json)


def answer_graph(entries: Sequence[LogEntry], as_json: bool) -> None:
    """Draw the tree, or write it as JSON."""
    if as_json:
        write_json([entry.to_dict() for entry in entries])
        return
    for drawn, entry in draw(entries):
        if entry is None:
            typer.echo(drawn)
            continue
        names = f" ({', '.join([*entry.branches, *(f'tag {tag}' for tag in entry.tags)])})"
        named = printable(names) if entry.branches or entry.tags else ""
        typer.echo(f"{drawn}{named} {line(entry.message) if entry.message is not None else 'merge'}")


def _list(memory: InfiniteMemory, places: Sequence[Branch], as_json: bool) -> None:
    newest = {name: memory.newest_at(name) for name, _ in places}
    if as_json:
        write_json([{"name": name, "newest": said.id if said is not None else None} for name, said in newest.items()])
        return
    for name, said in newest.items():
        typer.echo(f"{printable(name)}  {line(said) if said is not None else '(empty)'}")


def _merged(result: MergeResult) -> str:
    if result.how == "nothing":
        return f"nothing to merge: all of {result.source} is here"
    lines = [f"merged {result.source} ({result.how})", *(message.content for message in result.messages[1:])]
    return "\n".join(lines)
