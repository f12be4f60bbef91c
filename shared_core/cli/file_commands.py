"""Commands that share conversations: import and export; with --json, for programs."""

import os
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from shared_core.cli.options import AsJson, Named, Session, StorePath, User, answer, opened
from shared_core.cli.printing import count, imported, printable
from shared_core.cli.terminal import progress
from shared_core.engine import InfiniteMemory
from shared_core.sharing.reading import is_ours, read_header
from shared_core.sharing.redacting import Redact, drop_grounding, drop_tool_results, replace_names
from shared_core.sharing.result import ImportResult
from shared_core.sharing.whole import export_sessions, import_sessions

__all__ = ["sharing"]

sharing = typer.Typer()


@sharing.command("import")
def import_file(
    file: Annotated[str, typer.Argument(help="One that export wrote; or of ChatGPT, LangChain, LlamaIndex, OpenAI.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    of: Annotated[str | None, typer.Option("--from", metavar="ID", help="Which session of the file.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the file, under their own ids.")] = False,
    embedder: Named = None,
    as_json: AsJson = False,
) -> None:
    """Store the messages of a file, all or none; what is stored already is left as it is."""
    if everything and of is not None:
        raise typer.BadParameter("--all takes every session: leave out --from")
    started, size = time.monotonic(), _size(file)  # a file that cannot be read leaves no store behind
    if everything:
        with progress("storing", size) as advance:
            results = import_sessions(store, file, user_id=user, progress=advance)
        answer(_all_taken(file, store, results, started), as_json, _all_imported)
        return
    with InfiniteMemory(store, session_id=session, user_id=user, embedder=embedder) as memory:
        with progress("storing", size) as advance:
            result = memory.import_file(file, session=of, progress=advance)
        with progress("indexing", result.new) as advance:
            memory.index(progress=advance)
        answer(_taken(file, store, memory, result, started), as_json, imported)


@sharing.command("export")
def export(
    file: Annotated[str, typer.Argument(help="The file to write; one that ends in .md is for people to read.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions: of --user, or of the store.")] = False,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Stand there, in what is written.")] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="With its vectors.")] = False,
    no_grounding: Annotated[bool, typer.Option("--no-grounding", help="Without what was retrieved.")] = False,
    no_tools: Annotated[bool, typer.Option("--no-tool-results", help="Without what tools returned.")] = False,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="NAME=OTHER", help="Write another name; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a conversation to a file to share, whole or not at all; docs/format.md says what is in it."""
    rules: list[Redact] = [drop_grounding] if no_grounding else []
    rules += [drop_tool_results] if no_tools else []
    rules += [replace_names(_names(rename))] if rename else []
    how: dict[str, Any] = {"vectors": vectors, "redact": rules}
    with opened(store, session, user) as memory:
        if everything:
            if branch is not None or Path(file).suffix.lower() in (".md", ".markdown"):
                raise typer.BadParameter("--all writes whole sessions: leave out --branch and .md")
            users = None if user is None else [user]
            with progress("writing", 0) as advance:
                written = export_sessions(store, file, users=users, progress=advance, **how)
        else:
            if branch is not None:
                memory.checkout(branch)
            with progress("writing", memory.stats()["messages"]) as advance:
                written = memory.export(file, progress=advance, **how)
    told = {"file": file, "store": store, "messages": written, "bytes": os.path.getsize(file)}
    answer(told, as_json, lambda data: printable(f"{store} -> {file}: {count(written)}, {data['bytes']:,} bytes"))


def _names(pairs: Sequence[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        name, separator, other = pair.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"--rename {pair!r}: expected NAME=OTHER")
        names[name] = other
    return names


def _size(file: str) -> int:
    """Return how many messages a file of ours says it holds, or about so many lines another has."""
    if is_ours(file):
        return read_header(file).messages
    with open(file, "rb") as lines:
        return sum(1 for _ in lines)


def _taken(file: str, store: str, memory: InfiniteMemory, result: ImportResult, started: float) -> dict[str, Any]:
    ends = [*islice(memory.messages(), 1), *memory.newest(1)]
    times = sorted(message.created_at for message in ends if message.created_at)
    stats = memory.stats()
    return {
        "file": file,
        "store": store,
        "session": result.session_id,
        "format": result.format,
        "new": result.new,
        "known": result.known,
        "forgotten": result.forgotten,
        "remapped": len(result.remapped),
        "branches": dict(result.branches),
        "turns": stats["turns"],
        "first": times[0].isoformat() if times else None,
        "last": times[-1].isoformat() if times else None,
        "embedder": next(iter(stats.get("embedders", ())), None),
        "seconds": round(time.monotonic() - started, 3),
    }


def _all_taken(file: str, store: str, results: Sequence[ImportResult], started: float) -> dict[str, Any]:
    sessions = [result.to_dict() for result in results]
    return {"file": file, "store": store, "sessions": sessions, "seconds": round(time.monotonic() - started, 3)}


def _all_imported(data: Mapping[str, Any]) -> str:
    rows = [f"{one['session_id']}: {count(one['new'])} new, {one['known']:,} known" for one in data["sessions"]]
    return printable("\n".join([f"{data['file']} -> {data['store']}: {len(rows):,} sessions", *rows]))
