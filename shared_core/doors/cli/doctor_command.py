"""The command that finds damage in a store, and saves what can still be read."""

from contextlib import closing
from typing import Annotated

import typer

from shared_core.display import printable, printable_name
from shared_core.doors.cli.options import CommonOptions, with_options
from shared_core.doors.cli.printing import count, progress
from shared_core.operations.store_check import Damage, check_store, recover_store
from shared_core.stores import open_store, store_exists

doctor_commands = typer.Typer()


@doctor_commands.command()
@with_options
def doctor(
    options: CommonOptions,
    recover_to: Annotated[
        str | None,
        typer.Option("--recover", metavar="STORE", help="Write everything that can be read to this new store."),
    ] = None,
) -> None:
    """Check the whole store, or save what can be read of it.

    What cannot be read is listed by user, session and message. The store is not changed. All sessions of all users are
    read, whatever --session and --user say. The exit code is 1 if there is any damage.
    """
    options.require_store()
    name = options.shown_store
    with progress("checking") as advance:
        if recover_to is None:
            found = check_store(options.store, progress=advance)
        else:
            if "://" not in recover_to and store_exists(recover_to):
                raise typer.BadParameter(f"{recover_to!r} exists already; give the path of a new file")
            with closing(open_store(recover_to)) as target:
                found = recover_store(options.store, target, progress=advance)
    state = "can be read; damaged:" if found.damages else "and no damage"
    lines = [f"{name}: {count(found.messages)} in {count(found.sessions, 'session')} {state}"]
    lines += map(_line, found.damages)
    if recover_to is not None:
        lines.append(f"{name} -> {recover_to}: {count(found.messages)}")
    options.answer({"store": name, **found.to_dict(), "recovered": recover_to}, map(printable, lines))
    if found.damages:
        raise typer.Exit(1)


def _line(damage: Damage) -> str:
    whose = "" if damage.session is None else f"session {printable_name(damage.session)}: "
    whose = whose if damage.user is None else f"user {printable_name(damage.user)}, {whose}"
    return f"  {whose}{damage.what}: {damage.why}"
