"""The commands about messages: ask, search, log, stats and forget."""

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from shared_core.cli.options import CommonOptions, EmbedderName, MaxTokens, time_option, with_options
from shared_core.cli.printing import (
    PREVIEW_LIMIT,
    count,
    forget_preview,
    message_line,
    message_record,
    openai_message,
    printable,
    show_prompt,
    show_report,
    table,
    write_json,
)
from shared_core.cli.session_commands import forget_sessions, search_sessions
from shared_core.messages import Message, Role
from shared_core.tree.log import LogEntry, draw

GRAPH_LIMIT = 200
"""How many of the newest messages `log --graph` draws without `--limit`."""

message_commands = typer.Typer()


@message_commands.command()
@with_options
def ask(
    options: CommonOptions,
    question: Annotated[str, typer.Argument(help="The question you would ask the model.")],
    max_tokens: MaxTokens = 4096,
    top_k: Annotated[int | None, typer.Option(help="The largest number of messages to recall.")] = None,
    embedder: EmbedderName = None,
    placement: Annotated[
        Literal["grounding", "messages", "system"],
        typer.Option(help="The part of the prompt that holds recalled text."),
    ] = "grounding",
    ranking: Annotated[
        Literal["hybrid", "dense", "lexical"], typer.Option(help="The ranking that selects messages to recall.")
    ] = "hybrid",
    full: Annotated[bool, typer.Option("--full", help="Say for every message why it is in the prompt or not.")] = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print the prompt. With --full, the report follows.")
    ] = False,
) -> None:
    """Explain the prompt for a question.

    A report shows how the token budget is used and which messages are recalled. Nothing is stored.
    """
    limits = {"max_tokens": max_tokens, "top_k": top_k}
    with options.open(embedder=embedder, placement=placement, ranking=ranking, **limits) as memory:
        context = memory.context(question)
    if options.as_json:
        messages = [openai_message(message) for message in context.messages]
        write_json({"messages": messages, "report": context.report.to_dict()})
        return
    if prompt:
        show_prompt(context.messages, found=[line.text for line in context.report.found])
    if full or not prompt:
        show_report(context.report, full=full, more="--full")


@message_commands.command()
@with_options
def search(
    options: CommonOptions,
    query: Annotated[str, typer.Argument(help="The text to search for.")],
    top_k: Annotated[int, typer.Option(min=1, help="The largest number of messages to list.")] = 10,
    since: Annotated[datetime | None, time_option("List only messages from this time on.")] = None,
    until: Annotated[datetime | None, time_option("List only messages up to this time.")] = None,
    role: Annotated[Role | None, typer.Option(help="List only messages with this role.")] = None,
    all_sessions: Annotated[
        bool, typer.Option("--all-sessions", help="Search all conversations of the user, in each its main branch.")
    ] = False,
) -> None:
    """List the messages that match a query, best first.

    Example: infinite-memory search "locker code" --all-sessions
    """
    if all_sessions:
        search_sessions(options, query, top_k, since=since, until=until, role=role)
        return
    with options.open() as memory:
        found = memory.search(query, top_k, since=since, until=until, role=role)
    data = [{"score": hit.score, "source": hit.source, **message_record(hit.message)} for hit in found]
    options.answer(data, (f"{hit.score:6.2f}  {message_line(hit.message)}" for hit in found))


@message_commands.command()
@with_options
def log(
    options: CommonOptions,
    limit: Annotated[int | None, typer.Option(min=1, help="Print only this many of the newest messages.")] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="The branch to print; main by default.")] = None,
    graph: Annotated[bool, typer.Option("--graph", help="Draw the tree of all branches, newest first.")] = False,
) -> None:
    """Print the conversation, oldest message first.

    Each line holds the time (UTC), the role, the ID and the text of a message.
    """
    if graph and branch is not None:
        raise typer.BadParameter("--graph draws all branches: leave out --branch")
    with options.open() as memory:
        if graph:
            entries = memory.log(GRAPH_LIMIT if limit is None else limit)
            lines = (_graph_line(drawing, entry) for drawing, entry in draw(entries))
            options.answer([entry.to_dict() for entry in entries], lines)
            return
        if branch is not None:
            memory.checkout(branch)
        messages: Iterable[Message] = memory.messages() if limit is None else memory.newest(limit)
        if options.as_json:
            write_json({"branch": memory.branch, "messages": [message_record(message) for message in messages]})
            return
        for message in messages:
            typer.echo(message_line(message))


@message_commands.command()
@with_options
def stats(options: CommonOptions) -> None:
    """Print how much is stored."""
    with options.open() as memory:
        numbers = memory.stats()
    options.answer(numbers, [table(numbers)])


@message_commands.command()
@with_options
def forget(
    options: CommonOptions,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Forget the message with this ID. Can be repeated.")
    ] = None,
    before: Annotated[datetime | None, time_option("Forget all messages before this time.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget the whole conversation.")] = False,
    all_sessions: Annotated[
        bool, typer.Option("--all-sessions", help="Forget all conversations of the user; needs --user.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which messages would be forgotten.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase messages for good.

    The command lists the messages and asks for confirmation first.

    Example: infinite-memory forget --id 3f9c --dry-run
    """
    if sum((bool(ids), before is not None, everything, all_sessions)) != 1:
        raise typer.BadParameter("choose what to forget: use exactly one of --id, --before, --all and --all-sessions")
    if all_sessions:
        forget_sessions(options, dry_run=dry_run, confirm=None if yes else _confirm)
        return
    which: dict[str, Any] = {"ids": ids or None, "before": before, "session": everything}
    with options.open() as memory:
        result = memory.forget(**which, dry_run=True)
        preview = forget_preview([memory.get(id) for id in result.ids[:PREVIEW_LIMIT]], len(result.ids))
        if result.ids and not dry_run:
            if not yes:
                _confirm(f"{preview}\nForget for good?")
            result = memory.forget(**which)
    lines = [preview if dry_run else f"forgot {count(len(result.ids))}"]
    options.answer(result.to_dict(), [*lines, f"! {result.reason}"] if result.reason else lines)


def _confirm(question: str) -> None:
    typer.echo(f"{question} [y/N] ", nl=False, err=True)  # stdout is for the answer alone
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise typer.Abort


def _graph_line(drawing: str, entry: LogEntry | None) -> str:
    """Return a line of the drawn tree, with the message or merge that stands on it."""
    if entry is None:
        return drawing
    names = [*entry.branches, *(f"tag {tag}" for tag in entry.tags)]
    shown = printable(f" ({', '.join(names)})") if names else ""
    return f"{drawing}{shown} {message_line(entry.message) if entry.message is not None else 'merge'}"
