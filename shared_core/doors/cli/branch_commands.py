"""The commands about branches: list, create, check out, move, compare and merge them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from shared_core.display import on_one_line, printable, printable_name
from shared_core.doors.cli.answers import answer_change, branch_lines, copied, merged, tag_lines, take_back, taken_back
from shared_core.doors.cli.completion import branch_names, revisions
from shared_core.doors.cli.models import merge_summarizer
from shared_core.doors.cli.options import BranchOptions, CommonOptions, with_options
from shared_core.doors.cli.printed_lines import Full, Lines
from shared_core.doors.cli.printing import count, moment
from shared_core.memory import InfiniteMemory
from shared_core.records import Branch
from shared_core.tree.merge import How

branch_commands = typer.Typer()

REVISION = "A branch, a tag, a message ID or its beginning, or an earlier end of a branch such as main@{1}."
Revision = Annotated[str, typer.Argument(metavar="REVISION", autocompletion=revisions, help=REVISION)]
At = Annotated[
    str | None,
    typer.Option(
        metavar="REVISION", autocompletion=revisions,
        help=f"{REVISION} By default, the end of the branch that is checked out.",
    ),
]  # fmt: skip
Since = Annotated[
    str | None,
    typer.Option(metavar="REVISION", autocompletion=revisions, help="Copy only the messages after this one."),
]


def _branch(help: str) -> Any:
    return typer.Argument(metavar="NAME", autocompletion=branch_names, help=help)


@branch_commands.command()
@with_options
def branches(options: CommonOptions, full: Full = False) -> None:
    """List the branches and the newest message of each.

    A star marks the branch that is checked out. Times are in UTC.
    """
    with options.open() as memory:
        data = [{**one, "checked_out": one["name"] == memory.branch} for one in _newest_ids(memory, memory.branches())]
        options.answer(data, branch_lines(memory, Lines.of(full)))


@branch_commands.command()
@with_options
def tags(options: CommonOptions, full: Full = False) -> None:
    """List the tags and the message that each one names. Times are in UTC."""
    with options.open() as memory:
        options.answer(_newest_ids(memory, memory.tags()), tag_lines(memory, Lines.of(full)))


@branch_commands.command()
@with_options
def checkout(options: CommonOptions, name: Annotated[str, _branch("The name of the branch.")]) -> None:
    """Check out a branch: later commands work on it.

    The store remembers the branch for this conversation. It applies to commands without --branch, not to programs that
    use the store. To go on from an earlier message, create a branch there with fork.
    """
    with options.open() as memory:
        if name not in {branch.name for branch in memory.branches()}:
            memory._newest_at(name)  # an error that lists the branches, if there is no such message either
            raise ValueError(f"{name!r} is not a branch; to go on from there: fork NAME --at {name}")
    options.check_out(name)
    options.answer({"branch": name}, [printable(f"checked out {name!r}")])


@branch_commands.command()
@with_options
def fork(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new branch.")],
    at: At = None,
) -> None:
    """Create a branch and check it out.

    Later commands work on the new branch. It shares all messages up to --at. What is said on it from now on is not seen
    from other branches.
    """
    with options.open() as memory:
        before = memory.branch
        memory.fork(name, at)
        options.check_out(name)
        back = f"; to go back: checkout {before}"
        answer_change(options, memory, f"created branch {name!r} at {at or before} and checked it out{back}")


@branch_commands.command()
@with_options
def rename(
    options: CommonOptions,
    name: Annotated[str, _branch("The current name of the branch.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The new name of the branch.")],
) -> None:
    """Rename a branch."""
    with options.open() as memory:
        memory.rename_branch(name, to)
        answer_change(options, memory, f"renamed {name!r} to {to!r}")


@branch_commands.command("delete-branch")
@with_options
def delete_branch(options: CommonOptions, name: Annotated[str, _branch("The name of the branch.")]) -> None:
    """Delete a branch; its messages stay stored.

    Use forget to erase messages.
    """
    with options.open() as memory:
        memory.delete_branch(name)
        answer_change(options, memory, f"deleted {name!r}", *take_back(memory.branch))


@branch_commands.command()
@with_options
def tag(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new tag.")],
    at: At = None,
) -> None:
    """Give a message a name that never moves."""
    with options.open() as memory:
        memory.tag(name, at)
        answer_change(options, memory, f"tagged {at or memory.branch} as {name!r}")


@branch_commands.command("delete-tag")
@with_options
def delete_tag(
    options: CommonOptions, name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the tag.")]
) -> None:
    """Delete a tag."""
    with options.open() as memory:
        memory.delete_tag(name)
        answer_change(options, memory, f"deleted {name!r}")


@branch_commands.command()
@with_options
def reset(options: BranchOptions, to: Revision) -> None:
    """Move the end of a branch; undo takes it back."""
    with options.open() as memory:
        memory.reset(to)
        answer_change(options, memory, f"{memory.branch!r} now ends at {to}", *take_back(memory.branch))


@branch_commands.command()
@with_options
def undo(options: BranchOptions) -> None:
    """Take back the last command that moved a branch.

    That is a merge, cherry-pick, rebase, reset or stash on it, or else the last
    deletion of a branch. What was said since stays stored, and another undo
    brings it back.
    """
    with options.open() as memory:
        done = memory.undo()
        again = "undo --branch" if done.branch == memory.branch else "delete-branch"
        options.answer(done.to_dict(), [taken_back(done), printable(f"to take it back: {again} {done.branch}")])


@branch_commands.command()
@with_options
def reflog(
    options: CommonOptions,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", autocompletion=branch_names, help="List only moves of this branch.")
    ] = None,
    full: Full = False,
) -> None:
    """List how branches were moved and where they ended before.

    Each line holds the time (UTC), how to name where the branch ended before, why it was moved, and the newest message
    before and after. What a merge or a copy adds comes after that.
    """
    with options.open() as memory:
        moves = memory.reflog(branch)
    lines = Lines.of(full)
    texts = (
        f"{moment(move.at)}  {printable_name(move.reference)}  {on_one_line(move.why)}: "
        + " -> ".join(lines.id(end) or "-" for end in dict.fromkeys((move.before, move.after)))
        for move in moves
    )
    options.answer([move.to_dict() for move in moves], map(lines.cut, texts))


@branch_commands.command()
@with_options
def diff(
    options: CommonOptions,
    a: Revision,
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="REVISION", autocompletion=revisions, help="Another one. By default, what is checked out."
        ),
    ] = None,
    full: Full = False,
) -> None:
    """List the messages that only one of two revisions has."""
    shown = Lines.of(full)

    def lines() -> Iterator[str]:
        yield printable(f"both: up to {shown.id(found.base) or 'nothing'}")
        for name, sign, ids in ((a, "<", found.only_a), (b or memory.branch, ">", found.only_b)):
            yield printable(f"only {name}: {count(len(ids))}")
            for id_ in ids:
                yield shown.message(memory.get(id_), f"{sign} ")

    with options.open() as memory:
        found = memory.diff(a, b)
        options.answer(found.to_dict(), lines())


@branch_commands.command()
@with_options
def merge(
    options: BranchOptions,
    source: Revision,
    how: Annotated[How, typer.Option(metavar="WAY", help="The way to merge; they are listed above.")] = "auto",
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The question that a squash or three-way merge asks, instead of its own."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER:MODEL",
            help="The model that answers it, for example openai:gpt-4o-mini; see chat --help. Without a model, the "
            "answer lists what was said, and so it does with echo.",
        ),
    ] = None,
) -> None:
    """Merge another branch into a branch; the other one stays.

    The other branch can be continued and merged again.

    \b
    The ways to merge:
      auto          fast-forward if possible, otherwise full
      fast-forward  The end of the branch moves to the end of the other one, which
                    must hold all of its messages.
      full          All messages of the other branch become part of the branch,
                    before what is added next.
      squash        A question and its answer are added. The answer sums the
                    other branch up.
      three-way     A full merge, followed by a question and its answer, which
                    say what each side added and where the two contradict
                    each other. Nothing is decided.
    """  # noqa: D301  # \b keeps the list as it is
    with options.open() as memory:
        result = memory.merge(source, how, prompt=prompt, summarizer=merge_summarizer(model))
        options.answer(
            result.to_dict(), [merged(result, memory.branch or ""), *take_back(memory.branch, result.how != "nothing")]
        )


@branch_commands.command("cherry-pick")
@with_options
def cherry_pick(
    options: BranchOptions,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The IDs of the messages, or their beginnings.")],
) -> None:
    """Copy messages to a branch.

    The result of a tool is copied together with the call.
    """
    with options.open() as memory:
        result = memory.cherry_pick(ids)
        options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


@branch_commands.command()
@with_options
def rebase(options: BranchOptions, onto: Revision, since: Since = None) -> None:
    """Move a branch, with its own messages, onto a revision."""
    with options.open() as memory:
        result = memory.rebase(onto, since)
        options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


def _newest_ids(memory: InfiniteMemory, refs: Sequence[Branch]) -> list[dict[str, Any]]:
    newest = [(name, memory._newest_at(name)) for name, _ in refs]
    return [{"name": name, "newest": message.id if message is not None else None} for name, message in newest]
