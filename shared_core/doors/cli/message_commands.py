"""The commands about messages: add, explain, search, show, log and forget."""

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from shared_core.display import counted, printable
from shared_core.doors.cli.options import (
    AsOf,
    BranchOptions,
    CommonOptions,
    EmbedderName,
    MaxTokens,
    ReserveTokens,
    ScopeName,
    role_option,
    say,
    time_option,
    with_options,
    write_json,
)
from shared_core.doors.cli.printing import (
    PREVIEW_LIMIT,
    WIDEST,
    Full,
    Lines,
    confirm,
    hit_record,
    message_record,
    message_text,
    openai_message,
    scored,
    show_prompt,
    show_report,
    table,
)
from shared_core.doors.cli.session_commands import session_table
from shared_core.doors.serving.erasing import DAMAGED, newest_at, readable, whole_id
from shared_core.formats.fields import Role
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.prompt.hits import Hit, without_weak
from shared_core.recall.worth import Recall
from shared_core.records import MAIN, SessionInfo

GRAPH_LIMIT = 200
"""How many of the newest messages `log --graph` draws without `--limit`."""

STAYS = "would keep {} said in the same turn, which may repeat it; name its ID, too, to forget it"
"""What `forget` says of the rest of the turns that lose a message."""


@with_options
def add(
    options: BranchOptions,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="The text. Without it, and if it is -, it is read from stdin."),
    ] = None,
    role: Annotated[Role, role_option("The role of the speaker: user, assistant or system.")] = "user",
) -> None:
    """Store a message at the end of a branch.

    The store and the conversation are created if they do not exist. A reply belongs to the newest question. --json
    answers with the message as it is stored.

    Examples:
      infinite-memory add "We loved the Casa Azul by the river."
      git log -1 | infinite-memory add -
    """
    if not words and sys.stdin.isatty():
        raise typer.BadParameter("say what to add: an argument, or text on stdin")
    content = sys.stdin.read().removesuffix("\n") if words in (None, [], ["-"]) else " ".join(words)
    if not content:
        raise typer.BadParameter("there is nothing to add: the text is empty")
    if role == "tool":
        raise typer.BadParameter("a tool's result belongs to a call: import both from a file")
    with options.create() as memory:
        (message,) = memory.add(Message(role=role, content=content))
    options.answer(message_record(message), [Lines.of().message(message)])


@with_options
def explain(
    options: BranchOptions,
    words: Annotated[list[str], typer.Argument(metavar="QUESTION", help="The question you would ask the model.")],
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
    scope: ScopeName = None,
    recall: Annotated[
        Recall, typer.Option(metavar="HOW", help="How much to recall: precise, balanced or thorough.")
    ] = "balanced",
    top_k: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The largest number of messages to recall.")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model is told first.")] = None,
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
    """Show how the prompt for a question is made up, and why.

    A report shows how the token budget is used and which messages are recalled. No model is asked, so there is no
    answer, and nothing is stored. --prompt prints the prompt, search lists what was said, and chat talks to a model.

    Examples:
      infinite-memory explain "Which hotel did we like?"
      infinite-memory explain "Which hotel did we like?" --max-tokens 2000 --prompt
    """
    home, searched = options.in_scope(scope)
    settings: dict[str, Any] = {
        "max_tokens": max_tokens, "reserve_tokens": reserve_tokens, "top_k": top_k, "scope": searched,
        "recall": recall, "system": system, "embedder": embedder, "placement": placement,
    }  # fmt: skip
    if searched == "user" and options.session is None:
        say(f"note: asked in {home.session_id!r}, and all conversations{options.of_user()} are searched; see --session")
    with home.open(**settings) as memory:
        context = memory.context(" ".join(words), as_of=as_of)
    if options.as_json:
        messages = [openai_message(message) for message in context.messages]
        write_json({"messages": messages, "report": context.report.to_dict()})
        return
    if prompt:
        show_prompt(context.messages, found=[line.text for line in context.report.found])
    if full or not prompt:
        show_report(context.report, full=full, more="--full")


@with_options
def search(
    options: BranchOptions,
    words: Annotated[list[str], typer.Argument(metavar="QUERY", help="The text to search for.")],
    top_k: Annotated[
        int, typer.Option("--top-k", "-n", metavar="N", min=1, help="The largest number of messages to list.")
    ] = 10,
    scope: ScopeName = None,
    since: Annotated[datetime | None, time_option("List only messages from this time on.")] = None,
    until: Annotated[datetime | None, time_option("List only messages up to this time.")] = None,
    role: Annotated[
        Role | None, role_option("List only messages of this role: user, assistant, system or tool.")
    ] = None,
    as_of: AsOf = None,
    all_branches: Annotated[
        bool, typer.Option("--all-branches", help="List what other branches say, too, after the name of the branch.")
    ] = False,
    weak: Annotated[
        bool, typer.Option("--weak", help="List weak matches, too; without it, only where no other is found.")
    ] = False,
    full: Full = False,
) -> None:
    """List the messages that match a query, best first.

    Each line holds how well the message matches, its time (UTC), role, ID and text; before these its conversation, if
    all are searched, each on its main branch. Without --role, messages of users and assistants are searched.

    Examples:
      infinite-memory search Lisbon
      infinite-memory search "hotel by the river" --since 2026-03-01 --role user
    """
    query = " ".join(words)
    home, searched = options.in_scope(scope)
    wanted: dict[str, Any] = {"since": since, "until": until, "role": role, "as_of": as_of}
    with home.read() as memory:
        if searched == "user":
            memory.checkout(MAIN)
        found = memory.search(query, top_k, scope=searched, **wanted)
        branch_of = _on_other_branches(memory, query, top_k, found, wanted) if all_branches else {}
        there = bool(found or memory.newest(1))
    if there and not found:
        say("note: nothing matches")
    close = found if weak else without_weak(found)
    if left_out := len(found) - len(close):
        say(f"note: {counted(left_out, 'weak match', 'weak matches')} left out; --weak lists them")
    lines, wide = Lines.of(full), searched == "user"
    width = min(WIDEST, max((len(lines.id(hit.session_id)) for hit in close), default=0))

    def line(hit: Hit) -> str:
        session = f"{lines.id(hit.session_id):<{width}}  " if wide else ""
        branch = f"{branch_of[hit.message.id]}  " if hit.message.id in branch_of else ""
        return lines.message(hit.message, f"{scored(hit)} {session}{branch}")

    def record(hit: Hit) -> dict[str, Any]:
        where = {"session": hit.session_id if wide else None, "branch": branch_of.get(hit.message.id)}
        return {name: value for name, value in where.items() if value is not None} | hit_record(hit)

    options.answer([record(hit) for hit in close], map(line, close))


def _on_other_branches(
    memory: InfiniteMemory, query: str, top_k: int, found: list[Hit], wanted: dict[str, Any]
) -> dict[str | None, str]:
    """Add what other branches say to what was found, and return the branch of each of these messages, by its id."""
    known, branch_of = {hit.message.id for hit in found}, dict[str | None, str]()
    for name in [branch.name for branch in memory.branches() if branch.name != memory.branch]:
        memory.checkout(name)
        others = [hit for hit in memory.search(query, top_k, scope="session", **wanted) if hit.message.id not in known]
        known |= {hit.message.id for hit in others}
        branch_of |= {hit.message.id: name for hit in others}
        found += others
    return branch_of


@with_options
def show(
    options: BranchOptions,
    revision: Annotated[
        str | None,
        typer.Argument(
            metavar="REVISION",
            help="A message ID or its beginning, a branch or a tag. By default, the newest message.",
        ),
    ] = None,
) -> None:
    """Print a message whole.

    Examples:
      infinite-memory show
      infinite-memory show 3f2a9c01
    """  # fmt: skip
    with options.read() as memory:
        message = newest_at(memory, revision or memory.branch or MAIN)
    if message is None:
        raise ValueError(f"nothing was said on {revision or options.target()!r} yet")
    data, text = message_record(message), message_text(message)
    head = {"id": message.id, "role": message.role, "name": message.name, "said at": data.get("created_at")}
    options.answer(data, [table({name: value for name, value in head.items() if value}), "", text])


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

    Examples:
      infinite-memory log -n 20
      infinite-memory log --graph
    """
    if graph and options.branch is not None:
        raise typer.BadParameter("--graph draws all branches: leave out --branch")
    lines = Lines.of(full)
    with options.read() as memory:
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
            typer.echo(f"… {counted(earlier, 'earlier message')}: --limit N shows more, --full everything")
        for message in messages:
            typer.echo(lines.message(message))


@with_options
def forget(
    options: CommonOptions,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="The IDs of messages, or their beginnings.")
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

    Examples:
      infinite-memory forget 3f2a9c01
      infinite-memory forget --before 2026-01-01 --dry-run
    """
    if sum((bool(ids), before is not None, everything, all_sessions)) != 1:
        raise typer.BadParameter("choose what to forget: use exactly one of ID, --before, --all and --all-sessions")
    if all_sessions and options.user is None:
        raise typer.BadParameter("--all-sessions erases the conversations of one user: say whose, with --user ID")
    with options.open_user() if all_sessions else options.open() as memory:
        there = memory.sessions() if all_sessions else []
        wanted = [whole_id(memory, id) for id in ids or []] or None
        which: dict[str, Any] = {"ids": wanted, "before": before, "session": everything, "user": all_sessions}
        result = memory.forget(**which, dry_run=True)
        what = counted(len(result.ids), "message")
        what += f" of {counted(len(there), 'conversation')}" if all_sessions else ""
        lines = [f"would forget {what}", *(_listed_sessions(there) if all_sessions else _listed(memory, result.ids))]
        if result.stay:
            lines += [STAYS.format(counted(len(result.stay), "message")), *_listed(memory, result.stay)]
        preview = "\n".join(lines)
        if result.ids and not dry_run:
            if not yes:
                confirm(f"{preview}\nForget for good?")
            result = memory.forget(**which)
    done = [preview if dry_run else f"forgot {what}", *([f"! {result.reason}"] if result.reason else [])]
    sessions = {"sessions": [info.session_id for info in there]} if all_sessions else {}
    options.answer(result.to_dict() | sessions, done)


def _listed_sessions(found: Sequence[SessionInfo]) -> Iterator[str]:
    """Yield a line for each of the first conversations."""
    yield from session_table(found[:PREVIEW_LIMIT], Lines.of())
    if len(found) > PREVIEW_LIMIT:
        yield f"... and {len(found) - PREVIEW_LIMIT:,} more"


def _listed(memory: InfiniteMemory, ids: Sequence[str]) -> Iterator[str]:
    """Yield a line for each of the first messages."""
    for id_ in ids[:PREVIEW_LIMIT]:
        message = readable(memory, id_)
        yield Lines.of().message(message) if message is not None else printable(f"{id_}  {DAMAGED}")
    if len(ids) > PREVIEW_LIMIT:
        yield f"... and {len(ids) - PREVIEW_LIMIT:,} more"
