"""The command that finds damage in a store, and saves what can still be read."""

from pathlib import Path
from typing import Annotated

import typer

from shared_core.cli.options import CommonOptions, with_options
from shared_core.cli.printing import count
from shared_core.prompt.terminal import printable, printable_name
from shared_core.stores import database_path
from shared_core.stores.sqlite.doctor import Damage, examine
from shared_core.stores.sqlite.recovery import recover

doctor_commands = typer.Typer()


@doctor_commands.command()
@with_options
def doctor(
    options: CommonOptions,
    recover_to: Annotated[
        str | None,
        typer.Option("--recover", metavar="FILE", help="Write everything that can be read to this new store."),
    ] = None,
) -> None:
    """Check the whole store for damage, and save the rest.

    What cannot be read is listed by user, session and message. The store is not changed. All sessions of all users are
    read, whatever --session and --user say. The exit code is 1 if anything is damaged.
    """
    options.require_store()
    path = database_path(options.store)
    found = examine(path)
    state = "can be read; damaged:" if found.damages else "and no damage"
    lines = [f"{options.store}: {count(found.messages)} in {count(len(found.sessions), 'session')} {state}"]
    lines += map(_line, found.damages)
    data = {"store": options.store, **found.to_dict(), "recovered": recover_to}
    if recover_to is not None:
        recover(found, Path(recover_to))
        lines.append(f"{options.store} -> {recover_to}: {count(found.messages)}")
    options.answer(data, map(printable, lines))
    if found.damages:
        raise typer.Exit(1)


def _line(damage: Damage) -> str:
    whose = "" if damage.session is None else f"session {printable_name(damage.session)}: "
    whose = whose if damage.user is None else f"user {printable_name(damage.user)}, {whose}"
    name = "" if damage.id is None else f" {printable_name(damage.id)}"
    return f"  {whose}{damage.what}{name}: {damage.why}"
