"""The commands about branches: list, create, check out, move, compare and merge them, and what they answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from shared_core.display import counted, on_one_line, printable, printable_name
from shared_core.doors.cli.models import merge_summarizer
from shared_core.doors.cli.options import BranchOptions, CommonOptions, with_options
from shared_core.doors.cli.printing import Full, Lines, moment
from shared_core.doors.serving.erasing import newest_at
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.records import Branch
from shared_core.tree.copies import CherryPickResult, Stash
from shared_core.tree.merge import How, MergeResult

REVISION = "A branch, a tag, a message ID or its beginning, or an earlier end of a branch such as main@{1}."
Revision = Annotated[str, typer.Argument(metavar="REVISION", help=REVISION)]
At = Annotated[
    str | None,
    typer.Option(metavar="REVISION", help=f"{REVISION} By default, the end of the branch that is checked out."),
]
BranchName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the branch.")]


@with_options
def branches(options: CommonOptions, full: Full = False) -> None:
    """List the branches and the newest message of each.

    A star marks the branch that is checked out. Times are in UTC.

    Example:
      infinite-memory branches
    """
    with options.read() as memory:
        newest, here = ends(memory, memory.branches()), memory.branch
    data = [{**one, "checked_out": one["name"] == here} for one in _records(newest)]
    options.answer(data, end_lines(newest, Lines.of(full), here))


@with_options
def checkout(options: CommonOptions, name: BranchName) -> None:
    """Check out a branch: later commands work on it.

    The store remembers the branch for this conversation. It applies to commands without --branch, not to programs that
    use the store. To go on from an earlier message, create a branch there with fork.

    Example:
      infinite-memory checkout debug
    """
    with options.open() as memory:
        if name not in {branch.name for branch in memory.branches()}:
            newest_at(memory, name)  # an error that lists the branches, if there is no such message either
            raise ValueError(f"{name!r} is not a branch; to go on from there: fork NAME --at {name}")
    options.check_out(name)
    options.answer({"branch": name}, [printable(f"checked out {name!r}")])


@with_options
def fork(
    options: CommonOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new branch.")],
    at: At = None,
) -> None:
    """Create a branch and check it out.

    Later commands work on the new branch. It shares all messages up to --at. What is said on it from now on is not seen
    from other branches.

    Examples:
      infinite-memory fork debug
      infinite-memory fork retry --at 3f2a9c01
    """
    with options.open() as memory:
        before = memory.branch
        memory.fork(name, at)
        options.check_out(name)
        back = f"; to go back: checkout {before}"
        answer_change(options, memory, f"created branch {name!r} at {at or before} and checked it out{back}")


@with_options
def rename(
    options: CommonOptions,
    name: BranchName,
    to: Annotated[str, typer.Argument(metavar="TO", help="The new name of the branch.")],
) -> None:
    """Rename a branch.

    Example:
      infinite-memory rename debug tokenizer
    """
    with options.open() as memory:
        memory.rename_branch(name, to)
        answer_change(options, memory, f"renamed {name!r} to {to!r}")


@with_options
def delete_branch(options: CommonOptions, name: BranchName) -> None:
    """Delete a branch; its messages stay stored.

    Use forget to erase messages.

    Example:
      infinite-memory delete-branch debug
    """
    with options.open() as memory:
        memory.delete_branch(name)
        answer_change(options, memory, f"deleted {name!r}", *take_back(memory.branch))


@with_options
def tag(
    options: CommonOptions,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The name of the tag. Without it, the tags are listed.")
    ] = None,
    at: At = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the tag.")] = False,
    full: Full = False,
) -> None:
    """Give a message a name that never moves, or list these names.

    Examples:
      infinite-memory tag decided --at 3f2a9c01
      infinite-memory tag
      infinite-memory tag decided --delete
    """
    with options.open() as memory:
        if name is None:
            newest = ends(memory, memory.tags())
            options.answer(_records(newest), end_lines(newest, Lines.of(full)), "there are no tags yet")
        elif delete:
            memory.delete_tag(name)
            answer_change(options, memory, f"deleted {name!r}")
        else:
            memory.tag(name, at)
            answer_change(options, memory, f"tagged {at or memory.branch} as {name!r}")


@with_options
def reset(options: BranchOptions, to: Revision) -> None:
    """Move the end of a branch; undo takes it back.

    Examples:
      infinite-memory reset main@{1}
      infinite-memory reset 3f2a9c01 --branch debug
    """
    with options.open() as memory:
        memory.reset(to)
        answer_change(options, memory, f"{memory.branch!r} now ends at {to}", *take_back(memory.branch))


@with_options
def undo(options: BranchOptions) -> None:
    """Take back the last command that moved a branch.

    That is a merge, cherry-pick, rebase, reset or stash on it, or else the last
    deletion of a branch. What was said since stays stored, and another undo
    brings it back.

    Examples:
      infinite-memory undo
      infinite-memory undo --branch debug
    """
    with options.open() as memory:
        done = memory.undo()
        again = "undo --branch" if done.branch == memory.branch else "delete-branch"
        end = Lines.of().id(done.after) or "the beginning"
        lines = [f"{done.why}: {done.branch!r} ends at {end} again", f"to take it back: {again} {done.branch}"]
        options.answer(done.to_dict(), map(printable, lines))


@with_options
def reflog(
    options: CommonOptions,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="List only moves of this branch.")] = None,
    full: Full = False,
) -> None:
    """List how branches were moved and where they ended before.

    Each line holds the time (UTC), how to name where the branch ended before, why it was moved, and the newest message
    before and after. What a merge or a copy adds comes after that.

    Example:
      infinite-memory reflog --branch main
    """
    with options.read() as memory:
        moves = memory.reflog(branch)
    lines = Lines.of(full)
    texts = (
        f"{moment(move.at)}  {printable_name(move.reference)}  {on_one_line(move.why)}: "
        + " -> ".join(lines.id(end) or "-" for end in dict.fromkeys((move.before, move.after)))
        for move in moves
    )
    options.answer([move.to_dict() for move in moves], map(lines.cut, texts), "no branch was moved yet")


@with_options
def diff(
    options: CommonOptions,
    a: Revision,
    b: Annotated[
        str | None,
        typer.Argument(metavar="REVISION", help="Another one. By default, what is checked out."),
    ] = None,
    full: Full = False,
) -> None:
    """List the messages that only one of two revisions has.

    Examples:
      infinite-memory diff debug
      infinite-memory diff debug main
    """
    shown = Lines.of(full)

    def lines() -> Iterator[str]:
        yield printable(f"both: up to {shown.id(found.base) or 'nothing'}")
        for name, sign, ids in ((a, "<", found.only_a), (b or memory.branch, ">", found.only_b)):
            yield printable(f"only {name}: {counted(len(ids), 'message')}")
            for id_ in ids:
                yield shown.message(memory.get(id_), f"{sign} ")

    with options.read() as memory:
        found = memory.diff(a, b)
        options.answer(found.to_dict(), lines())


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

    Examples:
      infinite-memory merge debug
      infinite-memory merge debug --how squash --model openai:gpt-4o-mini
    """
    with options.open() as memory:
        result = memory.merge(source, how, prompt=prompt, summarizer=merge_summarizer(model))
        options.answer(
            result.to_dict(), [merged(result, memory.branch or ""), *take_back(memory.branch, result.how != "nothing")]
        )


@with_options
def cherry_pick(
    options: BranchOptions,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The IDs of the messages, or their beginnings.")],
) -> None:
    """Copy messages to a branch.

    The result of a tool is copied together with the call.

    Example:
      infinite-memory cherry-pick 3f2a9c01 77b0e2d4
    """
    with options.open() as memory:
        result = memory.cherry_pick(ids)
        options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


@with_options
def rebase(
    options: BranchOptions,
    onto: Revision,
    since: Annotated[
        str | None, typer.Option(metavar="REVISION", help="Copy only the messages after this one.")
    ] = None,
) -> None:
    """Move a branch, with its own messages, onto a revision.

    Example:
      infinite-memory rebase main --branch debug
    """
    with options.open() as memory:
        result = memory.rebase(onto, since)
        options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


@with_options
def stash(
    options: BranchOptions,
    verb: Annotated[
        Literal["push", "list", "apply", "pop", "drop"],
        typer.Argument(metavar="VERB", help="What to do: push, list, apply, pop or drop."),
    ] = "push",
    number: Annotated[int, typer.Argument(metavar="N", min=0, help="The number of the stash; 0 is the newest.")] = 0,
    since: Annotated[
        str | None, typer.Option(metavar="REVISION", help="The last message that stays on the branch.")
    ] = None,
    note: Annotated[str, typer.Option(metavar="TEXT", help="A note to recognize the stash by.")] = "",
    full: Full = False,
) -> None:
    """Put the end of a branch aside, or bring it back.

    push takes the end of the branch off and keeps it. Without --since, the end begins at the newest user message. list
    shows number, time (UTC), branch, size and note of each stash. apply copies a stash to the branch, pop also drops
    it. The messages of a dropped stash stay stored; use forget to erase them.

    Examples:
      infinite-memory stash push --note "the second hotel"
      infinite-memory stash list
      infinite-memory stash pop
    """
    if (since is not None or note) and verb != "push":
        raise typer.BadParameter(f"--since and --note are for stash push, not for stash {verb}")
    with options.open() as memory:
        if verb == "list":
            lines, stashes = Lines.of(full), memory.stashes()
            shown = (lines.cut(stash_line(one)) for one in stashes)
            options.answer([one.to_dict() for one in stashes], shown, "nothing is stashed")
        elif verb == "drop":
            memory.stash_drop(number)
            answer_change(options, memory, f"dropped stash {number}")
        elif verb == "push":
            made = memory.stash(since, note)
            done = ["nothing to stash"]
            if made is not None:
                done = [f"stashed {counted(len(made.ids), 'message')}", *take_back(memory.branch)]
            options.answer(made and made.to_dict(), done)
        else:
            result = memory.stash_pop(number, keep=verb == "apply")
            options.answer(result.to_dict(), [copied(result), *take_back(memory.branch, result.messages)])


# What the verbs answer, in words


def ends(memory: InfiniteMemory, refs: Sequence[Branch]) -> dict[str, Message | None]:
    """Return the newest message of each branch or tag, by its name."""
    return {ref.name: newest_at(memory, ref.name) for ref in refs}


def end_lines(newest: Mapping[str, Message | None], lines: Lines, checked_out: str | None = None) -> Iterator[str]:
    """Yield a line for each name with its newest message; a star marks the branch that is checked out."""
    width = max(map(len, newest), default=0)
    for name, message in newest.items():
        yield lines.message(message, f"{'*' if name == checked_out else ' '} {printable_name(name):<{width}}  ")


def _records(newest: Mapping[str, Message | None]) -> list[dict[str, Any]]:
    return [{"name": name, "newest": None if message is None else message.id} for name, message in newest.items()]


def stash_line(stash: Stash) -> str:
    """Return number, time (UTC), branch, size and note of a stash."""
    told = [printable_name(stash.branch), counted(len(stash.ids), "message"), on_one_line(stash.note)]
    return "  ".join([str(stash.number), moment(stash.at), *told]).rstrip()


def take_back(branch: str | None, moved: object = True) -> list[str]:
    """Return how a verb is taken back, as a line, if it moved the branch."""
    return [printable(f"to take it back: undo --branch {branch}")] if moved else []


def copied(result: CherryPickResult) -> str:
    """Return what was copied, and what was not."""
    parts = [f"copied {counted(len(result.messages), 'message')}"]
    if result.skipped:
        parts.append(f"on the branch already: {', '.join(result.skipped)}")
    if result.halves:
        parts.append(f"copied without the other half of their exchange: {', '.join(result.halves)}")
    return printable("; ".join(parts))


def merged(result: MergeResult, branch: str) -> str:
    """Return what a merge into a branch did, with the summary that it stored."""
    if result.how == "nothing":
        why = f"{branch} already has all of {result.source}"
        if result.source == branch:
            why = f"{branch} is the branch to merge into: check out another one first"
        return printable(f"nothing to merge: {why}")
    done = f"merged {result.source} into {branch} ({result.how})"
    return printable("\n".join([done, *(message.content for message in result.messages[1:])]))


def answer_change(options: CommonOptions, memory: InfiniteMemory, *lines: str) -> None:
    """Answer with what was done, or as JSON with the branches and tags that there are now."""
    branches, tags = memory.branches(), memory.tags()
    data = {"branches": [branch.name for branch in branches], "tags": [tag.name for tag in tags]}
    options.answer(data, map(printable, lines))
