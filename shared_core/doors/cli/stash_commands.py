"""The commands about stashes: put the end of a branch aside and bring it back."""

from typing import Annotated

import typer

from shared_core.doors.cli.answers import answer_change, copied, stash_line, take_back
from shared_core.doors.cli.options import BranchOptions, CommonOptions, with_options
from shared_core.doors.cli.printed_lines import Full, Lines
from shared_core.doors.cli.printing import count

stash_commands = typer.Typer()

StashNumber = Annotated[int, typer.Argument(metavar="N", min=0, help="The number of the stash; 0 is the newest.")]


@stash_commands.callback(invoke_without_command=True)
def stash(context: typer.Context) -> None:
    """Put the end of a branch aside and bring it back."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@stash_commands.command("push")
@with_options
def stash_push(
    options: BranchOptions,
    since: Annotated[
        str | None, typer.Option(metavar="REVISION", help="The last message that stays on the branch.")
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="A note to recognize the stash by.")] = "",
) -> None:
    """Take the end of a branch off and keep it in a new stash.

    Without --since, the end begins at the newest user message.
    """
    with options.open() as memory:
        stash, branch = memory.stash(since, note), memory.branch
    if stash is None:
        options.answer(None, ["nothing to stash"])
    else:
        options.answer(stash.to_dict(), [f"stashed {count(len(stash.ids))}", *take_back(branch)])


@stash_commands.command("list")
@with_options
def stash_list(options: CommonOptions, full: Full = False) -> None:
    """List the stashes, newest first.

    Each line holds the number, the time (UTC), the branch, the size and the note of a stash.
    """
    with options.open() as memory:
        stashes = memory.stashes()
    lines = Lines.of(full)
    options.answer([stash.to_dict() for stash in stashes], (lines.cut(stash_line(stash)) for stash in stashes))


@stash_commands.command("apply")
@with_options
def stash_apply(options: BranchOptions, number: StashNumber = 0) -> None:
    """Copy stashed messages to a branch; the stash stays."""
    with options.open() as memory:
        result = memory.stash_pop(number, keep=True)
        options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


@stash_commands.command("pop")
@with_options
def stash_pop(options: BranchOptions, number: StashNumber = 0) -> None:
    """Copy stashed messages to a branch and drop the stash."""
    with options.open() as memory:
        result = memory.stash_pop(number)
        options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


@stash_commands.command("drop")
@with_options
def stash_drop(options: CommonOptions, number: StashNumber = 0) -> None:
    """Drop a stash; its messages stay stored.

    Use forget to erase messages.
    """
    with options.open() as memory:
        memory.stash_drop(number)
        answer_change(options, memory, f"dropped stash {number}")
