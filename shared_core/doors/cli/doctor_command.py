"""The command that finds damage in a store, mends what can be, and saves what can still be read."""

from pathlib import Path
from typing import Annotated

import typer

from shared_core.display import printable, printable_name
from shared_core.doors.cli.options import CommonOptions, with_options
from shared_core.doors.cli.printing import count, progress
from shared_core.operations.store_check import check_store
from shared_core.stores.damages import Damage
from shared_core.stores.sqlite.recovery import recover

doctor_commands = typer.Typer()


@doctor_commands.command()
@with_options
def doctor(
    options: CommonOptions,
    recover_to: Annotated[
        str | None,
        typer.Option("--recover", metavar="FILE", help="Write everything that can be read of a file to this new one."),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what was made from messages; nothing else is changed.")
    ] = False,
) -> None:
    """Check the whole store, mend it, or save the rest.

    What is damaged is listed by user, session and message. Vectors, search indexes, counts, and summaries whose source
    is gone can be mended: they are made again when they are needed. So can indexes and triggers that are missing.
    Without --repair, the store is not changed. All sessions of all users are read, whatever --session and --user say.
    The exit code is 1 if any damage is left.
    """
    options.require_store()
    name = options.shown_store
    with progress("checking") as advance:
        found = check_store(options.store, repair=repair, progress=advance)
    if recover_to is not None and found.file is None:
        raise typer.BadParameter("--recover reads a file: restore a server from its backup")
    state = "can be read; damaged:" if found.damages else "and no damage"
    lines = [f"{name}: {count(found.messages)} in {count(found.sessions, 'session')} {state}"]
    lines += [_line(damage, mended=damage in found.mended) for damage in found.damages]
    if found.damages and not repair and any(damage.derived for damage in found.damages):
        lines.append("--repair mends what is marked so")
    data = {"store": name, **found.to_dict(), "recovered": recover_to}
    if recover_to is not None and found.file is not None:
        recover(found.file, Path(recover_to))
        lines.append(f"{name} -> {recover_to}: {count(found.messages)}")
    options.answer(data, map(printable, lines))
    if found.left:
        raise typer.Exit(1)


def _line(damage: Damage, *, mended: bool) -> str:
    whose = "" if damage.session is None else f"session {printable_name(damage.session)}: "
    whose = whose if damage.user is None else f"user {printable_name(damage.user)}, {whose}"
    name = "" if damage.id is None else f" {printable_name(damage.id)}"
    mark = " (mended)" if mended else " (can be mended)" if damage.derived else ""
    return f"  {whose}{damage.what}{name}: {damage.why}{mark}"
