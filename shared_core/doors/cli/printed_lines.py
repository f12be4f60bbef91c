"""Messages, branches and stashes as lines: whole in a pipe or a file, one line of a terminal each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from shared_core.display import printable_name, short_id
from shared_core.doors.cli.printing import message_line
from shared_core.doors.cli.tree_drawing import draw
from shared_core.errors import AmbiguousReferenceError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.tree.log import LogEntry

Full = Annotated[bool, typer.Option("--full", help="Print whole lines and IDs on a terminal, too; pipes get them.")]


SMALLEST = 10
"""The fewest lines that are printed at once, however small the terminal is."""


@dataclass(frozen=True, slots=True)
class Lines:
    """How lines are printed.

    Attributes:
        width: the columns that a line may take; longer ones are cut. None: lines and IDs are whole.
        screenful: how many lines fit on the screen with the command and the next prompt. None: any number.
    """

    width: int | None = None
    screenful: int | None = None

    @classmethod
    def of(cls, full: bool = False) -> "Lines":
        """Return lines that are as wide as the terminal; whole ones if stdout is none, or if the user asks for them."""
        console = Console()
        return cls(console.width, max(SMALLEST, console.height - 4)) if console.is_terminal and not full else cls()

    def cut(self, line: str) -> str:
        """Return a line that is not too wide; it ends in an ellipsis if it was."""
        if self.width is None or len(line) * 2 <= self.width:  # no character is wider than two columns
            return line
        text = Text(line)
        text.truncate(self.width, overflow="ellipsis")
        return text.plain

    def id(self, id_: str | None) -> str:
        """Return an ID, or on a terminal the beginning of a random one; empty for None."""
        shown = printable_name(id_ or "")
        return shown if self.width is None else short_id(shown)

    def message(self, message: Message | None, before: str = "") -> str:
        """Return time (UTC), role, ID and text of a message on one line, after what comes before it on the line."""
        if message is None:
            return self.cut(f"{before}(empty)")
        return self.cut(f"{before}{message_line(message, short=self.width is not None)}")

    def graph(self, entries: Iterable[LogEntry]) -> Iterator[str]:
        """Yield the drawing of a tree, each message and each merge on a line of its own."""
        for drawing, entry in draw(list(entries)):
            if entry is None:
                yield self.cut(drawing)
                continue
            names = [*entry.branches, *(f"tag {tag}" for tag in entry.tags)]
            before = f"{drawing} ({printable_name(', '.join(names))}) " if names else f"{drawing} "
            yield self.message(entry.message, before) if entry.message else self.cut(f"{before}merge")


def whole_ids(memory: InfiniteMemory, ids: Iterable[str]) -> list[str]:
    """Return IDs of which only the beginning may be given, as a terminal shows them; unknown ones as they are.

    What names a branch or a tag is no beginning of an ID.

    Raises:
        AmbiguousReferenceError: the beginning fits several messages.
    """
    names = {ref.name for ref in [*memory.branches(), *memory.tags()]}
    return [id_ if id_ in names else _whole_id(memory, id_) for id_ in ids]


def _whole_id(memory: InfiniteMemory, beginning: str) -> str:
    try:
        newest = memory._newest_at(beginning)
    except AmbiguousReferenceError:
        raise
    except UnknownReferenceError:
        return beginning
    whole = newest.id if newest is not None else None
    return whole if whole is not None and whole.startswith(beginning) else beginning
