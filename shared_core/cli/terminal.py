"""What the command draws where somebody watches: a bar for long work, and a prompt in boxes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from shared_core.cli.printing import printable, said
from shared_core.messages import Message, Role

__all__ = ["progress", "show_prompt"]

LONG = 2_000
"""Messages from which on a file shows its progress also where nobody watches."""

COLOURS: Mapping[Role, str] = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Give a callable(done, total) that draws a bar on stderr, on a terminal or for long files."""
    console = Console(stderr=True)
    if not console.is_terminal and total <= LONG:
        yield lambda done, of: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=console.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def show_prompt(messages: Iterable[Message]) -> None:
    """Print messages, in boxes on a terminal."""
    console = Console(highlight=False, markup=False)
    for message in messages:
        title = message.role if message.name is None else f"{message.role} ({printable(message.name)})"
        if console.is_terminal:
            text, style = Text(said(message)), COLOURS[message.role]
            console.print(Panel(text, title=Text(title), title_align="left", border_style=style))
        else:
            console.file.write(f"[{title}]\n{said(message)}\n\n")
