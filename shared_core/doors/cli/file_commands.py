"""The commands that read or write a file: import, export and view."""

import os
import shlex
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shared_core.display import counted, on_one_line, printable
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
from shared_core.doors.cli.printing import progress
from shared_core.doors.view import gather, write_page
from shared_core.doors.view.page_data import QUESTIONS
from shared_core.memory import InfiniteMemory
from shared_core.sharing.files import SUFFIXES, FileFormat, SeveralSessionsError, export_sessions, import_sessions
from shared_core.sharing.format import is_ours
from shared_core.sharing.importer import ImportResult
from shared_core.sharing.readers import FORMATS
from shared_core.sharing.redact import Redact, drop_grounding, drop_tool_results, replace_names


@with_options
def import_file(
    options: CommonOptions,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file written by export; the export of ChatGPT, Claude or Gemini (zip or JSON); or messages of the "
            "APIs of OpenAI or Anthropic.",
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
        with progress("storing") as advance:
            results = import_sessions(
                options.store, file, sessions=chats, skip_invalid=skip_invalid, progress=advance, **given
            )
    changed = [one for one in results if one.new]
    if embedder is not None or len(results) == 1:
        for one in changed:
            _index(options.store, one, embedder)
    _answer(options, file, results, round(time.monotonic() - started, 3))
    if any(one.error for one in results):
        raise typer.Exit(1)


def _import_one(options: CommonOptions, file: str, chats: list[str] | None, format: str | None) -> ImportResult:
    """Import one conversation into the session that the user named."""
    if chats is not None and len(chats) > 1:
        raise typer.BadParameter("--session takes one conversation: give one --chat, or leave out --session")
    is_ours(file)  # so that a file that cannot be read does not create a store
    with InfiniteMemory(options.store, session_id=options.session_id, user_id=options.user) as memory:
        try:
            with progress("storing") as advance:
                return memory.import_file(file, session=chats[0] if chats else None, format=format, progress=advance)
        except SeveralSessionsError as error:
            raise typer.BadParameter(
                f"{error.name!r} holds {error.count:,} conversations: choose one with --chat, or leave out --session "
                f"to import all; it has {error.listed}"
            ) from None


def _index(store: str, result: ImportResult, embedder: str | None) -> None:
    """Embed the messages of a session."""
    settings: dict[str, Any] = {"session_id": result.session_id, "user_id": result.user_id, "embedder": embedder}
    with InfiniteMemory(store, **settings) as memory, progress("indexing", result.new) as advance:
        memory.index(progress=advance)


def _answer(options: CommonOptions, file: str, results: Sequence[ImportResult], seconds: float) -> None:
    """Report an import: a line for each conversation that has something new, and what to type next."""
    changed = [one for one in results if one.new or one.error]
    new = sum(one.new for one in results)
    done = f"{counted(new, 'new message')} in {counted(len(changed), 'session')}, {seconds:.1f} s"
    lines = [f"{file} -> {options.shown_store}: {done}", *map(_imported, changed)]
    if len(changed) < len(results):
        lines.append(f"nothing new in {counted(len(results) - len(changed), 'session')}")
    data = {"file": file, "store": options.shown_store, "sessions": [one.to_dict() for one in results]}
    options.answer(data | {"seconds": seconds}, [*map(printable, lines), *_next(options, results)])


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
    if format is None and Path(file).suffix.lower() not in {*SUFFIXES, ".jsonl", ""}:
        say(f"note: {file!r} holds jsonl; --format chooses another form")
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
        made = gather(options.store, **settings) if options.as_json else write_page(options.store, target, **settings)
    if isinstance(made, dict):
        write_json(made)
        return
    typer.echo(printable(f"{made} ({made.stat().st_size / 2**20:.1f} MiB)"))
    if out is None and not webbrowser.open(made.resolve().as_uri()):
        say(f"note: no browser was found; open {made} in yours")


def _imported(result: ImportResult) -> str:
    """Return what was imported into a session."""
    name = " ".join(filter(None, [result.session_id, result.title]))
    if result.error is not None:
        return on_one_line(f"skipped {name}: {result.error}")
    counts = [counted(result.new, "new message")]
    counts += [f"{number:,} {what}" for number, what in (
        (result.known, "known"), (result.forgotten, "forgotten earlier"), (len(result.remapped), "under new IDs"),
    ) if number]  # fmt: skip
    left_out = f"; left out: {', '.join(result.left_out)}" if result.left_out else ""
    return on_one_line(f"{name}: {', '.join(counts)}{left_out}")


def _next(options: CommonOptions, results: Sequence[ImportResult]) -> Iterator[str]:
    """Yield what to type next."""
    there = [result for result in results if result.new]
    if not there:
        return
    title = next((result.title for result in there if result.title), None)
    about = ["explain", "What did we talk about?", "--prompt"] if title is None else ["search", title]
    where = [] if options.store == os.environ.get(STORE, DEFAULT_STORE) else ["--store", options.shown_store]
    where += [] if options.user is None else ["--user", options.user]
    if len(there) > 1:
        scope = ["--scope", "user"] if options.user is None else []
        commands = [["sessions", *where], [*about, *scope, *where]]
    else:
        (session,) = (result.session_id for result in there)
        where += [] if options.user is None and session == DEFAULT_SESSION else ["--session", session]
        commands = [["log", *where], [*about, *where]]
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
