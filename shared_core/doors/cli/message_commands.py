"""The commands about messages: add, ask, search, log, stats and forget."""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from shared_core.display import printable
from shared_core.doors.cli.options import (
    AsOf,
    BranchOptions,
    CommonOptions,
    EmbedderName,
    MaxTokens,
    ReserveTokens,
    role_option,
    time_option,
    with_options,
)
from shared_core.doors.cli.printed_lines import Full, Lines, whole_ids
from shared_core.doors.cli.printing import (
    PREVIEW_LIMIT,
    confirm,
    count,
    forget_preview,
    hit_record,
    message_record,
    openai_message,
    say,
    scored,
    show_prompt,
    show_report,
    table,
    write_json,
)
from shared_core.doors.cli.session_commands import forget_sessions, search_sessions
from shared_core.doors.cli.store_tables import answer_store_stats
from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.formats.fields import Role
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message

GRAPH_LIMIT = 200
"""How many of the newest messages `log --graph` draws without `--limit`."""

message_commands = typer.Typer()


@message_commands.command()
@with_options
def add(
    options: BranchOptions,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The text. Without it, and if it is -, it is read from stdin.")
    ] = None,
    role: Annotated[Role, role_option("The role of the speaker: user, assistant or system.")] = "user",
) -> None:
    """Store a message at the end of a branch.

    The store and the conversation are created if they do not exist. A reply belongs to the newest question. --json
    answers with the message as it is stored.
    """
    if text is None and sys.stdin.isatty():
        raise typer.BadParameter("say what to add: an argument, or text on stdin")
    content = sys.stdin.read().removesuffix("\n") if text in (None, "-") else text
    if not content:
        raise typer.BadParameter("there is nothing to add: the text is empty")
    if role == "tool":
        raise typer.BadParameter("a tool's result belongs to a call: import both from a file")
    with options.create() as memory:
        (message,) = memory.add(Message(role=role, content=content))
    options.answer(message_record(message), [Lines.of().message(message)])


@message_commands.command()
@with_options
def ask(
    options: BranchOptions,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question you would ask the model.")],
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
    top_k: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The largest number of messages to recall.")
    ] = None,
    as_of: AsOf = None,
    embedder: EmbedderName = None,
    placement: Annotated[
        Literal["grounding", "messages", "system"],
        typer.Option(help="The part of the prompt that holds recalled text."),
    ] = "grounding",
    full: Annotated[bool, typer.Option("--full", help="Say for every message why it is in the prompt or not.")] = False,
    prompt: Annotated[
        bool, typer.Option("--prompt", help="Print the prompt. With --full, the report follows.")
    ] = False,
) -> None:
    """Explain the prompt for a question.

    A report shows how the token budget is used and which messages are recalled. Nothing is stored.
    """
    limits = {"max_tokens": max_tokens, "reserve_tokens": reserve_tokens, "top_k": top_k}
    with options.open(embedder=embedder, placement=placement, **limits) as memory:
        context = memory.context(question, as_of=as_of)
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
    options: BranchOptions,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The text to search for.")],
    top_k: Annotated[int, typer.Option(metavar="N", min=1, help="The largest number of messages to list.")] = 10,
    since: Annotated[datetime | None, time_option("List only messages from this time on.")] = None,
    until: Annotated[datetime | None, time_option("List only messages up to this time.")] = None,
    role: Annotated[
        Role | None, role_option("List only messages of this role: user, assistant, system or tool.")
    ] = None,
    all_sessions: Annotated[
        bool, typer.Option("--all-sessions", help="Search all conversations of the user, in each its main branch.")
    ] = False,
    as_of: AsOf = None,
    full: Full = False,
) -> None:
    """List the messages that match a query, best first.

    Each line holds the score, the time (UTC), the role, the ID and the text of a message. Without --role, messages of
    users and assistants are searched.
    """
    if all_sessions:
        if options.branch is not None:
            raise typer.BadParameter("--all-sessions searches main branches: leave out --branch")
        search_sessions(options, query, top_k, full=full, since=since, until=until, role=role, as_of=as_of)
        return
    with options.open() as memory:
        found = memory.search(query, top_k, since=since, until=until, role=role, as_of=as_of)
        if not found and memory.newest(1):
            say("note: nothing matches")
    lines = Lines.of(full)
    options.answer([*map(hit_record, found)], (lines.message(hit.message, f"{scored(hit)} ") for hit in found))


@message_commands.command()
@with_options
def log(
    options: BranchOptions,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Print only this many of the newest messages."),
    ] = None,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph", help=f"Draw the tree of all branches, newest first, {GRAPH_LIMIT} messages by default."
        ),
    ] = False,
    full: Full = False,
) -> None:
    """Print the conversation on a branch, oldest message first.

    Each line holds the time (UTC), the role, the ID and the text of a message. On a terminal, the newest messages that
    fit on the screen are printed. Lines are cut to fit, and of random IDs the beginning is shown, which is enough to
    name a message.
    """
    if graph and options.branch is not None:
        raise typer.BadParameter("--graph draws all branches: leave out --branch")
    lines = Lines.of(full)
    with options.open() as memory:
        shown = limit if limit is not None or options.as_json else lines.screenful
        if graph:
            entries = memory.log(GRAPH_LIMIT if shown is None else shown)
            options.answer([entry.to_dict() for entry in entries], lines.graph(entries))
            return
        messages: Sequence[Message] = memory.messages() if shown is None else memory.newest(shown)
        if options.as_json:
            write_json({"branch": memory.branch, "messages": [message_record(message) for message in messages]})
            return
        if limit is None and (earlier := len(memory.messages(replaced=True)) - len(messages)) > 0 and shown is not None:
            typer.echo(f"… {count(earlier, 'earlier message')}: --limit N shows more, --full everything")
        for message in messages:
            typer.echo(lines.message(message))


@message_commands.command()
@with_options
def stats(
    options: CommonOptions,
    all_sessions: Annotated[
        bool, typer.Option("--all-sessions", help="Count everything in the store, of all users.")
    ] = False,
) -> None:
    """Print how much is stored.

    With --all-sessions, it says how many conversations, users and messages there are, what each kind of row takes, the
    vectors of each embedder, and the largest conversations. The database counts, which may take minutes.
    """
    if all_sessions:
        answer_store_stats(options)
        return
    with options.open() as memory:
        numbers = memory.stats()
    options.answer(numbers, [table(numbers)])


@message_commands.command()
@with_options
def forget(
    options: CommonOptions,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="Forget the message with this ID, or its beginning. Can be repeated."),
    ] = None,
    before: Annotated[datetime | None, time_option("Forget all messages before this time.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Forget the whole conversation.")] = False,
    all_sessions: Annotated[
        bool, typer.Option("--all-sessions", help="Forget all conversations of the user; needs --user.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which messages would be forgotten.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase messages for good, on all branches.

    The command lists the messages and asks for confirmation first.
    """
    if sum((bool(ids), before is not None, everything, all_sessions)) != 1:
        raise typer.BadParameter("choose what to forget: use exactly one of --id, --before, --all and --all-sessions")
    if all_sessions:
        forget_sessions(options, dry_run=dry_run, confirm=None if yes else confirm)
        return
    with options.open() as memory:
        which: dict[str, Any] = {"ids": whole_ids(memory, ids or []) or None, "before": before, "session": everything}
        result = memory.forget(**which, dry_run=True)
        lines = [_line(memory, id) for id in result.ids[:PREVIEW_LIMIT]]
        preview = forget_preview(lines, len(result.ids))
        if result.ids and not dry_run:
            if not yes:
                confirm(f"{preview}\nForget for good?")
            result = memory.forget(**which)
    done = [preview if dry_run else f"forgot {count(len(result.ids))}"]
    options.answer(result.to_dict(), [*done, f"! {result.reason}"] if result.reason else done)


def _line(memory: InfiniteMemory, id: str) -> str:
    try:
        return Lines.of().message(memory.get(id))
    except StoreUnavailableError:
        raise
    except StoreError:
        return f"{printable(id)}  damaged, its text cannot be read"
