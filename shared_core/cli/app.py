"""The `infinite-memory` command: import, export, ask, search, log, stats, forget, branches; with --json, for programs.

Other packages add commands by entry points of the group `infinite_memory.commands`.
"""

import io
import sys
import warnings
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from shared_core.cli.printing import SHOWN, count, doomed, line, record, table, wire
from shared_core.errors import InfiniteMemoryError, MissingExtraError
from shared_core.messages import Message, Role

try:
    import typer

    from shared_core.cli.branch_commands import GRAPH_LIMIT, answer_graph, branching
    from shared_core.cli.file_commands import sharing
    from shared_core.cli.options import AsJson, Named, Session, StorePath, Time, User, answer, opened, say, write_json
    from shared_core.cli.stash import putting_aside
    from shared_core.cli.terminal import show_prompt
    from shared_core.cli.view import viewing
except ModuleNotFoundError as error:
    if error.name not in {"typer", "rich"}:
        raise
    raise MissingExtraError('the command needs typer and rich: pip install "infinite-memory[cli]"') from error

__all__ = ["Session", "StorePath", "User", "app", "run"]

app = typer.Typer(
    help="A chat that never forgets: store it, ask it, and see the prompt that fits the budget.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="With the extra langchain also: chat (infinite-memory chat --help).",
)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What you would ask the model.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    max_tokens: Annotated[int, typer.Option(help="The model's limit.")] = 4096,
    top_k: Annotated[int | None, typer.Option(help="At most so many recalled messages.")] = None,
    embedder: Named = None,
    placement: Annotated[
        Literal["grounding", "messages", "system"], typer.Option(help="Where recalled text goes.")
    ] = "grounding",
    ranking: Annotated[Literal["hybrid", "dense", "lexical"], typer.Option(help="How to recall.")] = "hybrid",
    as_json: AsJson = False,
) -> None:
    """Show the prompt that would be sent, and why each message is in it; nothing is stored."""
    limits = {"max_tokens": max_tokens, "top_k": top_k}
    with opened(store, session, user, embedder=embedder, placement=placement, ranking=ranking, **limits) as memory:
        context = memory.context(question)
    if as_json:
        write_json({"messages": [wire(message) for message in context.messages], "report": context.report.to_dict()})
        return
    show_prompt(context.messages)
    typer.echo(str(context.report))


@app.command()
def search(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    top_k: Annotated[int, typer.Option(min=1, help="At most so many messages.")] = 10,
    since: Annotated[datetime | None, Time] = None,
    until: Annotated[datetime | None, Time] = None,
    role: Annotated[Role | None, typer.Option(help="Only what this role said.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the messages that match, best first."""
    with opened(store, session, user) as memory:
        found = memory.search(query, top_k, since=since, until=until, role=role)
    if as_json:
        write_json([{"score": hit.score, "source": hit.source, **record(hit.message)} for hit in found])
        return
    for hit in found:
        typer.echo(f"{hit.score:6.2f}  {line(hit.message)}")


@app.command()
def log(
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the newest.")] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="Another branch than main.")] = None,
    graph: Annotated[bool, typer.Option("--graph", help="Draw all branches, newest first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the conversation, newest last: time (UTC), role, id, text."""
    if graph and branch is not None:
        raise typer.BadParameter("--graph shows all branches: leave out --branch")
    with opened(store, session, user) as memory:
        if graph:
            answer_graph(memory.log(GRAPH_LIMIT if limit is None else limit), as_json)
            return
        if branch is not None:
            memory.checkout(branch)
        messages: Iterable[Message] = memory.messages() if limit is None else memory.newest(limit)
        if as_json:
            write_json({"branch": memory.branch, "messages": [record(message) for message in messages]})
            return
        for message in messages:
            typer.echo(line(message))


@app.command()
def stats(
    store: StorePath = "chat.db", session: Session = "default", user: User = None, as_json: AsJson = False
) -> None:
    """Count what is stored."""
    with opened(store, session, user) as memory:
        answer(memory.stats(), as_json, table)


@app.command()
def forget(
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    ids: Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="This message; may be repeated.")] = None,
    before: Annotated[datetime | None, Time] = None,
    everything: Annotated[bool, typer.Option("--all", help="The whole conversation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase messages for good, everywhere; shows what would go and asks first."""
    if sum((bool(ids), before is not None, everything)) != 1:
        raise typer.BadParameter("say what to forget: one of --id, --before and --all")
    which: dict[str, Any] = {"ids": ids or None, "before": before, "session": everything}
    with opened(store, session, user) as memory:
        result = memory.forget(**which, dry_run=True)
        shown = doomed([memory.get(id) for id in result.ids[:SHOWN]], len(result.ids))
        if result.ids and not dry_run:
            if not yes:
                _confirm(f"{shown}\nForget for good?")
            result = memory.forget(**which)
    if as_json:
        write_json(result.to_dict())
        return
    typer.echo(shown if dry_run else f"forgot {count(len(result.ids))}")
    if result.reason:
        typer.echo(f"! {result.reason}")


app.registered_commands = sharing.registered_commands + app.registered_commands
app.registered_commands += branching.registered_commands
app.registered_commands += viewing.registered_commands
app.add_typer(putting_aside, name="stash")


def run(args: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default the process's, and return the exit code.

    0: done; 1: not confirmed or interrupted; 2: an argument, a file or the store is not what it should be, which one
    line on stderr says.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
            _plug_in(sys.argv[1:] if args is None else args)
            return int(app(args=args, prog_name="infinite-memory", standalone_mode=False) or 0)
    except typer.Abort:
        return _complain("nothing was forgotten", code=1)
    except typer.TyperException as error:
        return _complain(f"{error.format_message()} (see --help)")
    except (InfiniteMemoryError, ValueError) as error:
        return _complain(str(error))


def _plug_in(args: Sequence[str]) -> None:
    """Add the command of another package, if it is the one asked for: it is imported only then."""
    known = {command.name for command in app.registered_commands}
    for entry in entry_points(group="infinite_memory.commands"):
        if entry.name in args[:1] and entry.name not in known:
            app.command(entry.name)(entry.load())


def _complain(text: str, *, code: int = 2) -> int:
    say(text)
    return code


def _confirm(question: str) -> None:
    typer.echo(f"{question} [y/N] ", nl=False, err=True)  # on stderr: stdout is for the answer alone
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise typer.Abort
