"""The command `view`: write one HTML page that shows a session, or the data it shows."""

import webbrowser
from typing import Annotated, Any

import typer

from shared_core.cli.options import AsJson, Named, Session, StorePath, User, say, write_json
from shared_core.cli.printing import printable
from shared_core.cli.terminal import progress
from shared_core.view import gather, write_page
from shared_core.view.page_data import QUESTIONS

__all__ = ["viewing"]

viewing = typer.Typer()


@viewing.command()
def view(
    database: Annotated[str | None, typer.Argument(metavar="[STORE]", help="The database, as with --store.")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Where the page goes; it replaces the file.")] = None,
    questions: Annotated[
        str, typer.Option(metavar="N|all", help="Build the prompts of the newest N questions of each branch.")
    ] = str(QUESTIONS),
    max_tokens: Annotated[int, typer.Option(help="The model's limit, for the prompts.")] = 4096,
    embedder: Named = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    store: StorePath = "chat.db",
    session: Session = "default",
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows the tree of a session, its messages, and why each prompt was as it was."""
    if (out is None) != as_json:
        raise typer.BadParameter("say where the page goes, as in --out page.html; or have its data, with --json")
    settings: dict[str, Any] = {"session_id": session, "user_id": user, "max_tokens": max_tokens, "embedder": embedder}
    where, settings["questions"] = database or store, _number(questions)
    with progress("building prompts", 1) as settings["progress"]:
        if out is None:
            write_json(gather(where, **settings))
        else:
            _write(where, out, show, settings)


def _number(questions: str) -> int | None:
    """Return how many questions; None: all."""
    if questions == "all":
        return None
    if not (questions.isascii() and questions.isdigit()):
        raise typer.BadParameter(f"--questions {questions!r}: give a number, or all")
    return int(questions)


def _write(store: str, out: str, show: bool, settings: dict[str, Any]) -> None:
    try:
        page = write_page(store, out, **settings)
    except OSError as error:
        reason = error.strerror or str(error)
        raise typer.BadParameter(f"--out {out!r} cannot be written: {reason}") from error
    typer.echo(printable(f"{page} ({page.stat().st_size / 2**20:.1f} MiB)"))
    if show and not webbrowser.open(page.resolve().as_uri()):
        say(f"note: no browser was found; open {page} in yours")
