"""The commands that read or write a file: import, export and view."""

import os
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from shared_core.cli.options import CommonOptions, EmbedderName, MaxTokens, ReserveTokens, with_options
from shared_core.cli.printing import count, import_summary, printable, progress, say, write_json
from shared_core.memory import InfiniteMemory
from shared_core.redact import Redact, drop_grounding, drop_tool_results, replace_names
from shared_core.sharing.files import SUFFIXES, FileFormat, export_sessions, import_sessions
from shared_core.sharing.format import is_ours, read_header
from shared_core.sharing.importer import ImportResult
from shared_core.view import gather, write_page
from shared_core.view.page_data import QUESTIONS

file_commands = typer.Typer()


@file_commands.command("import")
@with_options
def import_file(
    options: CommonOptions,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file written by export, or by OpenAI, ChatGPT, LangChain or LlamaIndex."
        ),
    ],
    session_in_file: Annotated[
        str | None, typer.Option("--from", metavar="ID", help="The session to import, if the file holds several.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Import all sessions of the file under their own IDs.")
    ] = False,
    embedder: EmbedderName = None,
) -> None:
    """Store the messages of a file, all or none of them.

    Messages that are already stored stay as they are.
    """
    if everything and session_in_file is not None:
        raise typer.BadParameter("--all imports every session: leave out --from")
    started = time.monotonic()
    size = _size(file)  # first of all, so that an unreadable file does not create a store
    if everything:
        with progress("storing", size) as advance:
            results = import_sessions(options.store, file, user_id=options.user, progress=advance)
        _answer_sessions(options, file, results, started)
        return
    settings: dict[str, Any] = {"session_id": options.session, "user_id": options.user, "embedder": embedder}
    with InfiniteMemory(options.store, **settings) as memory:
        with progress("storing", size) as advance:
            result = memory.import_file(file, session=session_in_file, progress=advance)
        with progress("indexing", result.new) as advance:
            memory.index(progress=advance)
        data = {"file": file, "store": options.store, **_imported(memory, result)}
    data["seconds"] = round(time.monotonic() - started, 3)
    options.answer(data, [import_summary(data)])


@file_commands.command("export")
@with_options
def export_file(
    options: CommonOptions,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to write; a name that ends in .md gives text for people.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Export all sessions: those of --user, or the whole store.")
    ] = False,
    branch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Export this branch alone, with nothing that was said only on others."),
    ] = None,
    format: Annotated[
        FileFormat | None,
        typer.Option(
            help="The form of the file: jsonl holds all branches, markdown and openai (a list of chat messages) hold "
            "one. By default jsonl, or markdown for .md."
        ),
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="Include the vectors of the messages.")] = False,
    no_grounding: Annotated[bool, typer.Option("--no-grounding", help="Leave out retrieved passages.")] = False,
    no_tools: Annotated[bool, typer.Option("--no-tool-results", help="Leave out the results of tools.")] = False,
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=OTHER", help="Write OTHER instead of a speaker's name. Can be repeated."),
    ] = None,
) -> None:
    """Write a conversation to a file that can be shared.

    The file appears complete or not at all; docs/format.md describes it. import reads jsonl and openai.
    """
    redact: list[Redact] = [drop_grounding] if no_grounding else []
    redact += [drop_tool_results] if no_tools else []
    redact += [replace_names(_names(rename))] if rename else []
    settings: dict[str, Any] = {"vectors": vectors, "redact": redact}
    if everything:
        if branch is not None or format not in (None, "jsonl") or Path(file).suffix.lower() in SUFFIXES:
            raise typer.BadParameter("--all writes whole sessions as jsonl: leave out --branch, --format and .md")
        options.require_store()
        users = None if options.user is None else [options.user]
        with progress("writing", 0) as advance:
            written = export_sessions(options.store, file, users=users, progress=advance, **settings)
    else:
        with options.open() as memory, progress("writing", memory.stats()["messages"]) as advance:
            written = memory.export(file, format=format, branch=branch, progress=advance, **settings)
    data = {"file": file, "store": options.store, "messages": written, "bytes": os.path.getsize(file)}
    text = f"{options.store} -> {file}: {count(written)}, {data['bytes']:,} bytes"
    options.answer(data, [printable(text)])


@file_commands.command()
@with_options
def view(
    options: CommonOptions,
    database: Annotated[
        str | None, typer.Argument(metavar="STORE", help="The path or URL of the database; the same as --store.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page to write; an existing file is replaced.")
    ] = None,
    questions: Annotated[
        str, typer.Option(metavar="N|all", help="Build the prompts of the newest N questions of each branch.")
    ] = str(QUESTIONS),
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
    embedder: EmbedderName = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write an HTML page that shows a session.

    The page shows the tree, its messages, and why each prompt holds what it holds. --json writes the page's data.
    """
    if (out is None) != options.as_json:
        raise typer.BadParameter("say where the page goes, for example --out page.html, or get its data with --json")
    settings: dict[str, Any] = {
        "session_id": options.session, "user_id": options.user, "max_tokens": max_tokens, "embedder": embedder,
        "questions": _number(questions), "reserve_tokens": reserve_tokens,
    }  # fmt: skip
    store = database or options.store
    with replace(options, store=store).open():
        pass  # exits if there is no such session
    with progress("building prompts", 1) as settings["progress"]:
        if out is None:
            write_json(gather(store, **settings))
        else:
            _write_page(store, out, show, settings)


def _size(file: str) -> int:
    """Return the number of messages that an export says it holds, or the number of lines of another file."""
    if is_ours(file):
        return read_header(file).messages
    with open(file, "rb") as lines:
        return sum(1 for _ in lines)


def _imported(memory: InfiniteMemory, result: ImportResult) -> dict[str, Any]:
    ends = [*islice(memory.messages(), 1), *memory.newest(1)]
    times = sorted(message.created_at for message in ends if message.created_at)
    stats = memory.stats()
    return {
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
    }


def _answer_sessions(options: CommonOptions, file: str, results: Sequence[ImportResult], started: float) -> None:
    sessions, seconds = [result.to_dict() for result in results], round(time.monotonic() - started, 3)
    lines = [f"{file} -> {options.store}: {len(results):,} sessions"]
    lines += [f"{one['session_id']}: {count(one['new'])} new, {one['known']:,} known" for one in sessions]
    data = {"file": file, "store": options.store, "sessions": sessions, "seconds": seconds}
    options.answer(data, map(printable, lines))


def _names(pairs: Sequence[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        name, separator, other = pair.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"--rename {pair!r}: expected NAME=OTHER")
        names[name] = other
    return names


def _number(questions: str) -> int | None:
    """Return the number of questions. None: all."""
    if questions == "all":
        return None
    if not (questions.isascii() and questions.isdigit()):
        raise typer.BadParameter(f"--questions {questions!r}: give a number, or all")
    return int(questions)


def _write_page(store: str, out: str, show: bool, settings: dict[str, Any]) -> None:
    try:
        page = write_page(store, out, **settings)
    except OSError as error:
        reason = error.strerror or str(error)
        raise typer.BadParameter(f"--out {out!r} cannot be written: {reason}") from error
    typer.echo(printable(f"{page} ({page.stat().st_size / 2**20:.1f} MiB)"))
    if show and not webbrowser.open(page.resolve().as_uri()):
        say(f"note: no browser was found; open {page} in yours")
