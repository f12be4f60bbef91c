"""The command that measures recall with questions of one's own: evaluate."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from typing import Annotated, Any

import typer

from shared_core.display import printable
from shared_core.doors.cli.options import BranchOptions, EmbedderName, MaxTokens, ReserveTokens, with_options
from shared_core.doors.cli.printing import stages, write_json
from shared_core.evaluation import evaluate

evaluate_commands = typer.Typer()

NO_SETTINGS = signature(evaluate).parameters
"""Names that `evaluate` has for itself, so that they cannot be those of settings."""


@evaluate_commands.command("evaluate")
@with_options
def evaluate_store(
    options: BranchOptions,
    database: Annotated[
        str | None, typer.Argument(metavar="STORE", help="The path or URL of the database; the same as --store.")
    ] = None,
    questions: Annotated[
        str,
        typer.Option(
            "--questions", metavar="FILE", help="The questions, a JSON object on each line; - reads them from stdin."
        ),
    ] = "",
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="NAME=VALUE,VALUE",
            help="Also ask with each of these values of an argument of the library, and compare. Can be repeated.",
        ),
    ] = None,
    present: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="NAME=VALUE", help="An argument that your program sets already. Can be repeated."
        ),
    ] = None,
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
    embedder: EmbedderName = None,
) -> None:
    """Measure recall with your own questions.

    Each line of the file has a question and what must be in the prompt for it, the IDs of messages or a text:
    {"question": "...", "ids": ["..."]} or {"question": "...", "text": "..."}. The tables say how much of that is in the
    prompt, what the prompt costs, and what is recalled for small talk, with other settings beside the present one. The
    store is only read: all happens on a copy.
    """
    if not questions:
        raise typer.BadParameter("say what to ask: --questions FILE")
    arguments: dict[str, Any] = {"max_tokens": max_tokens, "reserve_tokens": reserve_tokens, "embedder": embedder}
    for name, text in _named(present or [], "--with"):
        arguments[name] = _value(text)
    values = {name: [_value(value) for value in text.split(",")] for name, text in _named(tries or [], "--try")}
    options = replace(options, store=database or options.store)
    options.require_store()
    source = sys.stdin if questions == "-" else questions
    with stages() as advance:
        found = evaluate(
            options.store, source, tries=values, session_id=options.session,
            user_id=options.user, branch=options.branch, progress=advance, **arguments,
        )  # fmt: skip
    if options.as_json:
        write_json(found.to_dict())
    else:
        typer.echo(printable(str(found)))


def _named(written: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Return the names and values of arguments that were written as `name=value`."""
    for text in written:
        if "=" not in text:
            raise typer.BadParameter(f"{option} {text!r}: expected NAME=VALUE, such as recall=precise")
    named = [(name.strip(), value) for name, _, value in (text.partition("=") for text in written)]
    for name, _ in named:
        if name in NO_SETTINGS:
            raise typer.BadParameter(f"{option} '{name}=…': no setting of the library; see the options of this command")
    return named


def _value(text: str) -> Any:
    """Return what was written after an argument: numbers, `true` and `none` as in JSON, all else as text."""
    try:
        return json.loads({"none": "null", "None": "null"}.get(text.strip(), text))
    except ValueError:
        return text.strip()
