"""What the command prints: lines and reports that are safe for a terminal, progress bars, and the drawing of a tree."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from shared_core.display import on_one_line, printable, printable_name, short_id
from shared_core.doors.cli.options import say
from shared_core.formats.fields import Role
from shared_core.messages import Message
from shared_core.prompt.hits import Hit, Kind
from shared_core.prompt.report import ContextReport
from shared_core.records import Position
from shared_core.tree.log import LogEntry

Full = Annotated[bool, typer.Option("--full", help="Print whole lines and IDs on a terminal, too; pipes get them.")]

PREVIEW_LIMIT = 20
"""How many messages are listed before the user confirms that they are forgotten."""

WIDEST = 36
"""The widest column of names, which a UUID fills; a longer name pushes the rest of its line to the right."""

SMALLEST = 10
"""The fewest lines that are printed at once, however small the terminal is."""

COLOURS: Mapping[Role, str] = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}

FOUND_STYLE = "bold green"

STYLES: Mapping[str, str] = {"!": "yellow", ">": FOUND_STYLE, "-": "dim", "…": "dim"}
"""The styles of the lines of a report, by what they begin with."""

KIND_STYLES: Mapping[Kind, str] = {
    Kind.SYSTEM: "black on magenta", Kind.TOOLS: "black on white", Kind.QUESTION: "black on yellow",
    Kind.GROUNDING: "black on cyan", Kind.SUMMARY: "black on bright_yellow", Kind.RECALLED: "black on green",
    Kind.WINDOW: "black on blue",
}  # fmt: skip

# Output


def confirm(question: str, otherwise: str = "nothing was forgotten") -> None:
    """Ask a question, and end the command unless the answer is yes."""
    typer.echo(f"{printable(question)} [y/N] ", nl=False, err=True)  # stdout is for the answer alone
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        typer.echo(err=True)
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        say(otherwise)
        raise typer.Exit(1)


@contextmanager
def progress(title: str, total: int = 0) -> Iterator[Callable[[int, int], None]]:
    """Provide a callable(done, total) that draws a progress bar; `total` is 0 if only the first call tells it."""
    with stages() as advance:
        if total:
            advance(title, 0, total)
        yield partial(advance, title)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """Provide a callable(what, done, total) that draws a bar for each thing that is done, with the time that is left.

    The bars are drawn on stderr, if that is a terminal, and are gone at the end.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}

        def advance(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done, total=of)

        yield advance


def show_report(report: ContextReport, *, full: bool, more: str) -> None:
    """Print a report in short, or in full; `more` names what shows it in full. On a terminal it is in colour."""
    console = Console(highlight=False, markup=False)
    console.print(report_text(report.full() if full else report.render(more=more)), soft_wrap=True)


def report_text(drawn: str) -> Text:
    """Return a report with colours: those of the parts of the prompt in the bar, warnings, matches and the rest."""
    lines = [Text(line, STYLES.get(line[:1], "")) for line in drawn.split("\n")]
    for kind in Kind:
        lines[0].highlight_regex(f"{kind.letter}+", KIND_STYLES[kind])
    return Text("\n").join(lines)


def show_prompt(messages: Iterable[Message], found: Sequence[str] = ()) -> None:
    """Print messages, each in a box if stdout is a terminal. There, the texts that were found are marked."""
    console = Console(highlight=False, markup=False)
    for message in messages:
        title = message.role if message.name is None else f"{message.role} ({printable_name(message.name)})"
        if console.is_terminal:
            text, style = Text(message_text(message)), COLOURS[message.role]
            text.highlight_words([printable(said) for said in found if said], FOUND_STYLE)
            console.print(Panel(text, title=Text(title), title_align="left", border_style=style))
        else:
            console.file.write(f"[{title}]\n{message_text(message)}\n\n")


# Text


def message_text(message: Message) -> str:
    """Return the text of a message and the tools it calls."""
    calls = [f"calls {call.name}({call.arguments})" for call in message.tool_calls]
    return printable("\n".join([*([message.content] if message.content else []), *calls]))


def scored(hit: Hit) -> str:
    """Return how well a message that was found matches, in a word."""
    return f"{hit.band or '':<6} "


def moment(when: datetime) -> str:
    """Return a time to the minute, in UTC, which is the clock of everything that the command prints."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M}"


def message_line(message: Message, *, short: bool = False) -> str:
    """Return time (UTC), role, ID and text of a message on one line; `short`: only the beginning of a random ID."""
    when = moment(message.created_at) if message.created_at else ""
    id_ = printable_name(message.id or "")
    return f"{when:<16}  {message.role:<9}  {short_id(id_) if short else id_}  {on_one_line(message_text(message))}"


def table(data: Mapping[str, Any]) -> str:
    """Return names and values, one pair per line."""
    width = max(map(len, data), default=0)
    rows = ((name, ", ".join(value) if isinstance(value, list) else value) for name, value in data.items())
    shown = ((name, "-" if value in (None, "") else on_one_line(str(value))) for name, value in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table, if it has rows. Columns of numbers are aligned to the right; the last one is as wide as it is."""
    if not rows:
        return
    numbers = [all(re.fullmatch(r"[\d,]+|-", cell) for cell in cells) for cells in zip(*rows, strict=True)]
    wide = [min(WIDEST, max(map(len, cells))) for cells in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = zip(row[:-1], wide, numbers, strict=False)
        yield "  ".join([*(f"{cell:>{size}}" if right else f"{cell:<{size}}" for cell, size, right in cells), row[-1]])


# Messages as lines: whole in a pipe or a file, one line of a terminal each


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


# The drawing of a tree: a column for each line of conversation


def draw(entries: Sequence[LogEntry]) -> Iterator[tuple[str, LogEntry | None]]:
    """Yield the lines of a drawing, each with its entry, if it has one: `*` is a message, `o` a merge.

    Args:
        entries: newest first, a parent after all its children, as `InfiniteMemory.log` returns them.
    """
    lanes: list[Position | None] = []
    """The position that each column waits for, from left to right; None: the column is free."""
    for entry in entries:
        mine = [column for column, awaited in enumerate(lanes) if awaited == entry.position]
        column = mine[0] if mine else _free(lanes)
        for other in mine[1:]:
            yield _joined(lanes, column, other), None
            lanes[other] = None
        lanes[column] = entry.position
        yield _row(lanes, column, "o" if entry.message is None else "*"), entry
        first, *others = entry.parents or (None,)
        lanes[column] = first
        for parent in others:
            there = parent in lanes
            side = lanes.index(parent) if there else _free(lanes)
            lanes[side] = parent
            yield _parted(lanes, column, side, there=there), None


def _free(lanes: list[Position | None]) -> int:
    """Return a free column; add one if there is none."""
    if None not in lanes:
        lanes.append(None)
    return lanes.index(None)


def _row(lanes: Sequence[Position | None], column: int, mark: str) -> str:
    marks = ["|" if awaited is not None else " " for awaited in lanes]
    marks[column] = mark
    return " ".join(marks).rstrip()


def _joined(lanes: Sequence[Position | None], column: int, other: int) -> str:
    """Return the line on which one column ends in another to its left."""
    marks = list(" ".join("|" if awaited is not None else " " for awaited in lanes))
    marks[2 * other] = " "
    marks[2 * other - 1] = "/"
    _bridge(marks, column, 2 * other - 1)
    return "".join(marks).rstrip()


def _parted(lanes: Sequence[Position | None], column: int, side: int, *, there: bool) -> str:
    """Return the line on which a column branches off to another one, which may exist already."""
    marks = list(" ".join("|" if awaited is not None else " " for awaited in lanes))
    marks[2 * side] = "|" if there else " "
    if side > column:
        marks[2 * side - 1] = "\\"
        _bridge(marks, column, 2 * side - 1)
    else:
        marks[2 * side + 1] = "/"
        _bridge(marks, side + 1, 2 * column)
    return "".join(marks).rstrip()


def _bridge(marks: list[str], column: int, upto: int) -> None:
    """Draw a horizontal line through free cells, to the right of a column."""
    for at in range(2 * column + 1, upto):
        if marks[at] == " ":
            marks[at] = "_"


# JSON


def openai_message(message: Message) -> dict[str, Any]:
    """Return the message in the form of an OpenAI request; only its text, if that form cannot hold its media."""
    try:
        return message.to_openai()
    except ValueError:
        return message.replace(payload=None).to_openai()


def hit_record(hit: Hit) -> dict[str, Any]:
    """Return a message found as plain data."""
    found = {"band": hit.band, "score": hit.score, "source": hit.source}
    return {**found, **message_record(hit.message)}


def message_record(message: Message) -> dict[str, Any]:
    """Return the message with its ID, time, turn and grounding, in a form that `read_messages` reads."""
    when = message.created_at.isoformat() if message.created_at else None
    grounding = message.grounding.model_dump(exclude_defaults=True) if message.grounding else None
    stored = {"id": message.id, "created_at": when, "turn_id": message.turn_id, "grounding": grounding}
    exact = {"name": message.name}  # a request takes no blanks in it
    return _given(stored) | openai_message(message.replace(grounding=None)) | _given(exact)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
