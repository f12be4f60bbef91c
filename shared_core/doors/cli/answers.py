"""What the verbs on branches answer, in words."""

from collections.abc import Iterator

from shared_core.display import on_one_line, printable, printable_name
from shared_core.doors.cli.options import CommonOptions
from shared_core.doors.cli.printed_lines import Lines
from shared_core.doors.cli.printing import count, moment
from shared_core.memory import InfiniteMemory
from shared_core.tree.branches import ReflogEntry
from shared_core.tree.copies import CherryPickResult, Stash
from shared_core.tree.merge import MergeResult

__all__ = ["answer_change", "branch_lines", "copied", "merged", "stash_line", "tag_lines", "take_back", "taken_back"]


def branch_lines(memory: InfiniteMemory, lines: Lines) -> Iterator[str]:
    """Yield a line for each branch with its newest message; a star marks the branch that is checked out."""
    names = [branch.name for branch in memory.branches()]
    width = max(map(len, names), default=0)
    for name in names:
        mark = "*" if name == memory.branch else " "
        yield lines.message(memory._newest_at(name), f"{mark} {printable_name(name):<{width}}  ")


def tag_lines(memory: InfiniteMemory, lines: Lines) -> Iterator[str]:
    """Yield a line for each tag with the message that it names."""
    names = [tag.name for tag in memory.tags()]
    width = max(map(len, names), default=0)
    for name in names:
        yield lines.message(memory._newest_at(name), f"{printable_name(name):<{width}}  ")


def stash_line(stash: Stash) -> str:
    """Return number, time (UTC), branch, size and note of a stash."""
    told = [printable_name(stash.branch), count(len(stash.ids)), on_one_line(stash.note)]
    return "  ".join([str(stash.number), moment(stash.at), *told]).rstrip()


def take_back(branch: str | None, moved: object = True) -> list[str]:
    """Return how a verb is taken back, as a line, if it moved the branch."""
    return [printable(f"to take it back: undo --branch {branch}")] if moved else []


def taken_back(done: ReflogEntry) -> str:
    """Return what `undo` did."""
    ends = Lines.of(False).id(done.after) or "the beginning"
    return printable(f"{done.why}: {done.branch!r} ends at {ends} again")


def copied(result: CherryPickResult) -> str:
    """Return what was copied, and what was not."""
    parts = [f"copied {count(len(result.messages))}"]
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
