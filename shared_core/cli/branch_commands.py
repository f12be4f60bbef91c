"""The commands about branches: list, create, move, compare and merge them, and stash the end of one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from shared_core.cli.options import BranchName, CommonOptions, with_options
from shared_core.cli.printing import count, message_line, printable
from shared_core.memory import InfiniteMemory
from shared_core.records import MAIN, Branch
from shared_core.tree.copies import CherryPickResult
from shared_core.tree.merge import How, MergeResult

branch_commands = typer.Typer()
stash_commands = typer.Typer(help="Put the end of a branch aside and bring it back.", no_args_is_help=True)
branch_commands.add_typer(stash_commands, name="stash")

REVISION = "A branch, a tag, a message ID, or an earlier end of a branch such as main@{1}."
Revision = Annotated[str, typer.Argument(metavar="REVISION", help=REVISION)]
StashNumber = Annotated[int, typer.Argument(min=0, help="The number of the stash; 0 is the newest.")]


@branch_commands.command()
@with_options
def branches(options: CommonOptions) -> None:
    """List the branches and the newest message of each."""
    with options.open() as memory:
        _list(options, memory, memory.branches())


@branch_commands.command()
@with_options
def tags(options: CommonOptions) -> None:
    """List the tags and the message each one names."""
    with options.open() as memory:
        _list(options, memory, memory.tags())


@branch_commands.command()
@with_options
def fork(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(help="The name of the new branch.")],
    at: Annotated[
        str, typer.Option(metavar="REVISION", help="The last message that the new branch shares; see reset --help.")
    ] = MAIN,
) -> None:
    """Create a branch."""
    with options.open() as memory:
        memory.fork(name, at=at)
        _confirm_change(options, memory, f"created branch {name!r} at {at}")


@branch_commands.command()
@with_options
def rename(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(help="The current name of the branch.")],
    to: Annotated[str, typer.Argument(help="The new name of the branch.")],
) -> None:
    """Rename a branch."""
    with options.open() as memory:
        memory.rename(name, to)
        _confirm_change(options, memory, f"renamed {name!r} to {to!r}")


@branch_commands.command("delete-branch")
@with_options
def delete_branch(options: CommonOptions, name: Annotated[str, typer.Argument(help="The name of the branch.")]) -> None:
    """Delete a branch; its messages stay stored.

    Use forget to erase messages.
    """
    with options.open() as memory:
        memory.delete_branch(name)
        _confirm_change(options, memory, f"deleted {name!r}; to restore it: fork {name} --at {name}@{{1}}")


@branch_commands.command()
@with_options
def tag(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(help="The name of the new tag.")],
    at: Annotated[str, typer.Option(metavar="REVISION", help="The message to tag; see reset --help.")] = MAIN,
) -> None:
    """Give a message a name that never moves."""
    with options.open() as memory:
        memory.tag(name, at)
        _confirm_change(options, memory, f"tagged {at} as {name!r}")


@branch_commands.command("delete-tag")
@with_options
def delete_tag(options: CommonOptions, name: Annotated[str, typer.Argument(help="The name of the tag.")]) -> None:
    """Delete a tag."""
    with options.open() as memory:
        memory.delete_tag(name)
        _confirm_change(options, memory, f"deleted {name!r}")


@branch_commands.command()
@with_options
def reset(options: CommonOptions, to: Revision, branch: BranchName = MAIN) -> None:
    """Move the end of a branch; reflog shows how to undo it."""
    with options.open() as memory:
        memory.checkout(branch)
        memory.reset(to)
        undo = f"reset {branch}@{{1}} --branch {branch}"
        _confirm_change(options, memory, f"{branch!r} now ends at {to}; to undo it: {undo}")


@branch_commands.command()
@with_options
def reflog(
    options: CommonOptions,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="List only the moves of this branch.")] = None,
) -> None:
    """List how branches were moved and where they ended before."""
    with options.open() as memory:
        moves = memory.reflog(branch)
    lines = (
        f"{move.at:%Y-%m-%d %H:%M}  {move.reference}  {move.why}: {move.before or '-'} -> {move.after or '-'}"
        for move in moves
    )
    options.answer([move.to_dict() for move in moves], map(printable, lines))


@branch_commands.command()
@with_options
def diff(options: CommonOptions, a: Revision, b: Revision = MAIN) -> None:
    """List the messages that only one of two revisions has."""

    def lines() -> Iterator[str]:
        yield printable(f"both: up to {found.base or 'nothing'}")
        for name, sign, ids in ((a, "<", found.only_a), (b, ">", found.only_b)):
            yield printable(f"only {name}: {count(len(ids))}")
            for id_ in ids:
                yield f"{sign} {message_line(memory.get(id_))}"

    with options.open() as memory:
        found = memory.diff(a, b)
        options.answer(found.to_dict(), lines())


@branch_commands.command()
@with_options
def merge(
    options: CommonOptions,
    source: Revision,
    branch: BranchName = MAIN,
    how: Annotated[
        How, typer.Option(help="The kind of merge; auto is fast-forward if that is possible, otherwise full.")
    ] = "auto",
    prompt: Annotated[str | None, typer.Option(help="The question that a squash or three-way merge asks.")] = None,
) -> None:
    """Merge another branch into a branch; the other one stays."""
    _change(options, branch, lambda memory: memory.merge(source, how, prompt=prompt), _merged)


@branch_commands.command("cherry-pick")
@with_options
def cherry_pick(
    options: CommonOptions,
    ids: Annotated[list[str], typer.Argument(help="The IDs of the messages.")],
    branch: BranchName = MAIN,
) -> None:
    """Copy messages to a branch.

    The result of a tool is copied together with the call.
    """
    _change(options, branch, lambda memory: memory.cherry_pick(ids), _copied)


@branch_commands.command()
@with_options
def rebase(
    options: CommonOptions,
    onto: Revision,
    branch: BranchName,
    since: Annotated[
        str | None, typer.Option(metavar="REVISION", help="Copy only the messages after this one.")
    ] = None,
) -> None:
    """Move a branch, with its own messages, onto a revision."""
    _change(options, branch, lambda memory: memory.rebase(onto, since), _copied)


# The stash


@stash_commands.command("push")
@with_options
def stash_push(
    options: CommonOptions,
    branch: BranchName = MAIN,
    since: Annotated[
        str | None, typer.Option(metavar="REVISION", help="The last message that stays on the branch.")
    ] = None,
    note: Annotated[str, typer.Option(help="A note to recognise the stash by.")] = "",
) -> None:
    """Take the end of a branch off and keep it in a new stash.

    Without --since, the end begins at the newest user message.
    """
    with options.open() as memory:
        memory.checkout(branch)
        stash = memory.stash(since, note)
    if stash is None:
        options.answer(None, ["nothing to stash"])
    else:
        options.answer(stash.to_dict(), [f"stashed {count(len(stash.ids))}"])


@stash_commands.command("list")
@with_options
def stash_list(options: CommonOptions) -> None:
    """List the stashes, newest first."""
    with options.open() as memory:
        stashes = memory.stashes()
    lines = (
        f"{stash.number}  {stash.at:%Y-%m-%d %H:%M}  {stash.branch}  {count(len(stash.ids))}  {stash.note}".rstrip()
        for stash in stashes
    )
    options.answer([stash.to_dict() for stash in stashes], map(printable, lines))


@stash_commands.command("apply")
@with_options
def stash_apply(options: CommonOptions, number: StashNumber = 0, branch: BranchName = MAIN) -> None:
    """Copy stashed messages to a branch; the stash stays."""
    _change(options, branch, lambda memory: memory.stash_apply(number), _copied)


@stash_commands.command("pop")
@with_options
def stash_pop(options: CommonOptions, number: StashNumber = 0, branch: BranchName = MAIN) -> None:
    """Copy stashed messages to a branch and drop the stash."""
    _change(options, branch, lambda memory: memory.stash_pop(number), _copied)


@stash_commands.command("drop")
@with_options
def stash_drop(options: CommonOptions, number: StashNumber = 0) -> None:
    """Drop a stash; its messages stay stored.

    Use forget to erase messages.
    """
    with options.open() as memory:
        memory.stash_drop(number)
        _confirm_change(options, memory, f"dropped stash {number}")


# Answers


def _list(options: CommonOptions, memory: InfiniteMemory, refs: Sequence[Branch]) -> None:
    newest = {name: memory.newest_at(name) for name, _ in refs}
    data = [{"name": name, "newest": message.id if message else None} for name, message in newest.items()]
    lines = (
        f"{printable(name)}  {message_line(message) if message else '(empty)'}" for name, message in newest.items()
    )
    options.answer(data, lines)


def _confirm_change(options: CommonOptions, memory: InfiniteMemory, text: str) -> None:
    """Answer with what was done, or as JSON with the branches and tags that there are now."""
    data = {"branches": [branch.name for branch in memory.branches()], "tags": [tag.name for tag in memory.tags()]}
    options.answer(data, [printable(text)])


def _change(
    options: CommonOptions, branch: str, verb: Callable[[InfiniteMemory], Any], text: Callable[[Any], str]
) -> None:
    """Change a branch and answer with the result."""
    with options.open() as memory:
        memory.checkout(branch)
        result = verb(memory)
    options.answer(result.to_dict(), [printable(text(result))])


def _copied(result: CherryPickResult) -> str:
    parts = [f"copied {count(len(result.messages))}"]
    if result.skipped:
        parts.append(f"on the branch already: {', '.join(result.skipped)}")
    if result.halves:
        parts.append(f"copied without the other half of their exchange: {', '.join(result.halves)}")
    return "; ".join(parts)


def _merged(result: MergeResult) -> str:
    if result.how == "nothing":
        return f"nothing to merge: the branch already has all of {result.source}"
    lines = [f"merged {result.source} ({result.how})", *(message.content for message in result.messages[1:])]
    return "\n".join(lines)
