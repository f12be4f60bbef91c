"""The commands that read or write a file: import, export and view."""

import os
import shlex
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from shared_core.display import counted, printable
from shared_core.doors.cli.options import (
    DEFAULT_SESSION,
    DEFAULT_STORE,
    STORE,
    CommonOptions,
    EmbedderName,
    MaxTokens,
    ReserveTokens,
    say,
    with_options,
    write_json,
)
from shared_core.doors.cli.printing import import_summary, progress, session_line
from shared_core.doors.view import gather, write_page
from shared_core.doors.view.page_data import QUESTIONS
from shared_core.memory import InfiniteMemory
from shared_core.sharing.export import Progress
from shared_core.sharing.files import SUFFIXES, FileFormat, SeveralSessionsError, export_sessions, import_sessions
from shared_core.sharing.format import is_ours
from shared_core.sharing.importer import ImportResult, seconds_held
from shared_core.sharing.readers import FORMATS
from shared_core.sharing.redact import Redact, drop_grounding, drop_tool_results, replace_names

ANNOUNCED = 1.0
"""The seconds from which on an import says that others wait for it."""


@with_options
def import_file(
    options: CommonOptions,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file written by export; the export of ChatGPT, Claude or Gemini (zip or JSON); or messages of "
            "OpenAI, Anthropic, the Gemini API, LangChain or LlamaIndex.",
        ),
    ],
    chats: Annotated[
        list[str] | None,
        typer.Option(
            "--chat", metavar="ID|TITLE", help="The conversation to import, if the file holds several. Can be repeated."
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"The file's format, if it is not recognized: {', '.join(FORMATS)}."),
    ] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Import the other conversations if one is invalid.")
    ] = False,
    embedder: EmbedderName = None,
) -> None:
    """Store the messages of a file.

    The file is stored as a whole or not at all. Messages that are already stored stay as they are: run the command
    again with a newer export to add what is new.

    Examples:
      infinite-memory import chatgpt-export.zip
      infinite-memory import shared.jsonl --session ana
    """
    started = time.monotonic()
    given: dict[str, Any] = {"format": format, "user_id": options.user}
    if options.session is not None:
        results = [_import_one(options, file, chats, format)]
    else:
        with _storing() as advance:
            results = import_sessions(
                options.store, file, sessions=chats, skip_invalid=skip_invalid, progress=advance, **given
            )
    if len(results) == 1 and results[0].error is None:
        _answer_session(options, file, results[0], embedder, started)
        return
    if embedder is not None:
        for one in (one for one in results if one.new):
            _index(options, one, embedder)
    _answer_sessions(options, file, results, started)
    if any(one.error for one in results):
        raise typer.Exit(1)


def _import_one(options: CommonOptions, file: str, chats: list[str] | None, format: str | None) -> ImportResult:
    """Import one conversation into the session that the user named."""
    if chats is not None and len(chats) > 1:
        raise typer.BadParameter("--session takes one conversation: give one --chat, or leave out --session")
    is_ours(file)  # so that a file that cannot be read does not create a store
    with InfiniteMemory(options.store, session_id=options.session_id, user_id=options.user) as memory:
        try:
            with _storing() as advance:
                return memory.import_file(file, session=chats[0] if chats else None, format=format, progress=advance)
        except SeveralSessionsError as error:
            raise typer.BadParameter(
                f"{error.name!r} holds {error.count:,} conversations: choose one with --chat, or leave out --session "
                f"to import all; it has {error.listed}"
            ) from None


@contextmanager
def _storing() -> Iterator[Progress]:
    """Provide a progress bar for an import, which first says for how long it keeps other writers waiting."""
    with progress("storing") as bar:

        def advance(done: int, total: int) -> None:
            seconds = seconds_held(total)
            if not done and seconds >= ANNOUNCED:
                say(f"storing {counted(total, 'message')}; other programs that write wait for up to {seconds:.0f} s")
            bar(done, total)

        yield advance


def _index(options: CommonOptions, result: ImportResult, embedder: str | None) -> dict[str, Any]:
    """Embed the messages of a session, and return what it holds now."""
    settings: dict[str, Any] = {"session_id": result.session_id, "user_id": result.user_id, "embedder": embedder}
    with InfiniteMemory(options.store, **settings) as memory:
        with progress("indexing", result.new) as advance:
            memory.index(progress=advance)
        return _imported(memory, result)


def _answer_session(
    options: CommonOptions, file: str, result: ImportResult, embedder: str | None, started: float
) -> None:
    data = {"file": file, "store": options.shown_store, **_index(options, result, embedder)}
    data["seconds"] = round(time.monotonic() - started, 3)
    options.answer(data, [import_summary(data), *_next(options, [result])])


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

    The file appears complete or not at all; the documentation describes it. import reads jsonl and openai.

    Examples:
      infinite-memory export chat.jsonl
      infinite-memory export debug.md --branch debug
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
    data = {"file": file, "store": options.shown_store, "messages": written, "bytes": os.path.getsize(file)}
    text = f"{options.shown_store} -> {file}: {counted(written, 'message')}, {data['bytes']:,} bytes"
    options.answer(data, [printable(text)])


@with_options
def view(
    options: CommonOptions,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the page to this file, which is replaced, and do not open it."),
    ] = None,
    questions: Annotated[
        str, typer.Option(metavar="N|all", help="Build the prompts of the newest N questions of each branch.")
    ] = str(QUESTIONS),
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
    embedder: EmbedderName = None,
) -> None:
    """Open an HTML page that shows a conversation.

    The page shows the tree, its messages, and why each prompt holds what it holds. --json writes the page's data.

    Examples:
      infinite-memory view
      infinite-memory view --out page.html
    """
    if out is not None and options.as_json:
        raise typer.BadParameter("--json writes the page's data to stdout: leave out --out")
    settings: dict[str, Any] = {
        "session_id": options.session_id, "user_id": options.user, "max_tokens": max_tokens, "embedder": embedder,
        "questions": _number(questions), "reserve_tokens": reserve_tokens,
    }  # fmt: skip
    with options.open():
        pass  # exits if there is no such session
    target = out or Path(tempfile.mkdtemp(prefix="infinite-memory-")) / "conversation.html"
    with progress("building prompts", 1) as settings["progress"]:
        made = gather(options.store, **settings) if options.as_json else _write_page(options.store, target, settings)
    if isinstance(made, dict):
        write_json(made)
        return
    typer.echo(printable(f"{made} ({made.stat().st_size / 2**20:.1f} MiB)"))
    if out is None and not webbrowser.open(made.resolve().as_uri()):
        say(f"note: no browser was found; open {made} in yours")


def _imported(memory: InfiniteMemory, result: ImportResult) -> dict[str, Any]:
    ends = [*islice(memory.messages(), 1), *memory.newest(1)]
    times = sorted(message.created_at for message in ends if message.created_at)
    stats = memory.stats()
    return {
        "session": result.session_id,
        "title": result.title,
        "format": result.format,
        "new": result.new,
        "known": result.known,
        "forgotten": result.forgotten,
        "remapped": len(result.remapped),
        "branches": dict(result.branches),
        "left_out": list(result.left_out),
        "turns": stats["turns"],
        "first": times[0].isoformat() if times else None,
        "last": times[-1].isoformat() if times else None,
        "embedder": next(iter(stats.get("embedders", ())), None),
    }


def _answer_sessions(options: CommonOptions, file: str, results: Sequence[ImportResult], started: float) -> None:
    """Report an import of several conversations: a line for each that has something new."""
    sessions, seconds = [result.to_dict() for result in results], round(time.monotonic() - started, 3)
    changed = [one for one in sessions if one["new"] or one["error"]]
    new = sum(one["new"] for one in sessions)
    done = f"{counted(new, 'new message')} in {counted(len(changed), 'session')}, {seconds:.1f} s"
    lines = [f"{file} -> {options.shown_store}: {done}"]
    lines += map(session_line, changed)
    if len(changed) < len(sessions):
        lines.append(f"nothing new in {counted(len(sessions) - len(changed), 'session')}")
    data = {"file": file, "store": options.shown_store, "sessions": sessions, "seconds": seconds}
    options.answer(data, [*map(printable, lines), *_next(options, results)])


def _next(options: CommonOptions, results: Sequence[ImportResult]) -> Iterator[str]:
    """Yield what to type next."""
    there = [result for result in results if result.new]
    if not there:
        return
    about = next((result.title for result in there if result.title), "What did we talk about?")
    where = [] if options.store == os.environ.get(STORE, DEFAULT_STORE) else ["--store", options.shown_store]
    where += [] if options.user is None else ["--user", options.user]
    if len(there) > 1:
        commands = [["sessions", *where], ["search", about, "--scope", "user", *where]]
    else:
        (session,) = (result.session_id for result in there)
        where += [] if options.user is None and session == DEFAULT_SESSION else ["--session", session]
        commands = [["log", *where], ["explain", about, *where]]
    for command in commands:
        yield printable(f"next: infinite-memory {shlex.join(command)}")


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


def _write_page(store: str, out: str | Path, settings: dict[str, Any]) -> Path:
    try:
        return write_page(store, out, **settings)
    except OSError as error:
        reason = error.strerror or str(error)
        raise typer.BadParameter(f"--out {str(out)!r} cannot be written: {reason}") from error
