"""What all commands share: their options, opening a store that exists, and answering as text or JSON."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from shared_core.cli.printing import count, printable
from shared_core.errors import StoreError
from shared_core.memory import InfiniteMemory
from shared_core.tree.copies import CherryPickResult

__all__ = [
    "AsJson",
    "Named",
    "On",
    "Session",
    "StorePath",
    "Time",
    "User",
    "answer",
    "change",
    "done",
    "opened",
    "picked",
    "say",
    "write_json",
]


def when(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; expected ISO 8601, as in 2025-03-01T10:00") from None
    return value if value.tzinfo else value.replace(tzinfo=UTC)


StorePath = Annotated[str, typer.Option("--store", envvar="INFINITE_MEMORY_STORE", help="The database.")]
Session = Annotated[str, typer.Option("--session", metavar="ID", help="Which conversation.")]
On = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch to do it on.")]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Whose conversation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Named = Annotated[str | None, typer.Option("--embedder", metavar="NAME", help="Instead of the one used so far.")]
Time = typer.Option(parser=when, metavar="TIME", help="ISO 8601; without a zone it is UTC.")


def say(text: str) -> None:
    """Say something on one line of stderr: stdout is for the answer alone."""
    typer.echo(f"infinite-memory: {printable(' '.join(text.split()))}", err=True)


@contextmanager
def opened(store: str, session: str, user: str | None, **settings: Any) -> Iterator[InfiniteMemory]:
    """Open a store that exists; one that does not is not made."""
    path = store.removeprefix("sqlite:///")
    if "://" not in path and not Path(path).expanduser().exists():
        raise StoreError(f"no store at {store!r}: import a conversation first (infinite-memory import FILE)")
    with InfiniteMemory(store, session_id=session, user_id=user, **settings) as memory:
        if not memory.newest(1) and not memory.log(1):
            say(f"note: session {session!r} holds no messages")
        yield memory


def answer(data: Mapping[str, Any], as_json: bool, as_text: Callable[[Mapping[str, Any]], str]) -> None:
    """Write data to stdout, as JSON or in words."""
    if as_json:
        write_json(data)
    else:
        typer.echo(as_text(data))


def write_json(data: Any) -> None:
    """Write plain data to stdout."""
    typer.echo(json.dumps(data, ensure_ascii=False, indent=2))


def done(memory: InfiniteMemory, text: str, as_json: bool) -> None:
    """Say what was done, or answer with the branches there are now."""
    if as_json:
        write_json(
            {"branches": [branch.name for branch in memory.branches()], "tags": [tag.name for tag in memory.tags()]}
        )
        return
    typer.echo(printable(text))


def change(
    store: str, session: str, user: str | None, branch: str, verb: Callable[[InfiniteMemory], Any],
    as_text: Callable[[Any], str], as_json: bool,
) -> None:  # fmt: skip
    """Do something on a branch and answer with what became of it."""
    with opened(store, session, user) as memory:
        memory.checkout(branch)
        result = verb(memory)
    if as_json:
        write_json(result.to_dict())
        return
    typer.echo(printable(as_text(result)))


def picked(result: CherryPickResult) -> str:
    """Return what was copied, in words."""
    parts = [f"copied {count(len(result.messages))}"]
    if result.skipped:
        parts.append(f"here already: {', '.join(result.skipped)}")
    if result.halves:
        parts.append(f"half an exchange: {', '.join(result.halves)}")
    return "; ".join(parts)
