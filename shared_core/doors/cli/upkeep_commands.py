"""The command that copies a store to another."""

from contextlib import closing
from itertools import islice
from typing import Annotated

import typer

from shared_core.doors.cli.options import CommonOptions, with_options
from shared_core.doors.cli.printing import count, progress, say
from shared_core.errors import StoreError
from shared_core.operations.store_comparison import differences
from shared_core.operations.store_copy import copy_store
from shared_core.stores import open_store, store_exists, without_password
from shared_core.stores.addresses import read_address, split_arguments

upkeep_commands = typer.Typer()

LISTED = 20
"""How many differences between two stores are listed."""


@upkeep_commands.command()
@with_options
def copy(
    options: CommonOptions,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The store to copy from, as for --store.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The store to copy to; created if it does not exist.")],
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="How many conversations are copied at a time.")] = 1,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the two row by row afterwards.")] = False,
) -> None:
    """Copy a store, or what is new, to another.

    The two may be of any kind. Everybody's conversations are copied, or those of --user. Run it again to bring what is
    new, and to forget what was forgotten; an interrupted copy goes on where it was. Let nobody write to SRC during the
    last run. The exit code is 1 if --verify finds a difference.
    """
    names = [without_password(one) for one in (source, target)]
    _check(source, target)
    if not store_exists(source):
        raise StoreError(f"no store at {names[0]!r}: name the store to copy from")
    users = None if options.user is None else [options.user]
    with closing(open_store(source)) as opened, closing(open_store(target)) as there:
        try:
            with progress("copying") as advance:
                result = copy_store(opened, there, users=users, jobs=jobs, progress=advance)
        except KeyboardInterrupt:
            say("interrupted; run the command again to go on")
            raise
        found = list(islice(differences(opened, there, users=users), LISTED + 1)) if verify else []
    done = f"{count(result.messages, 'new message')} in {count(result.sessions, 'session')}"
    lines = [f"{names[0]} -> {names[1]}: {done}, {result.forgotten:,} forgotten"]
    if verify:
        lines += [f"  {one}" for one in found[:LISTED]] or ["both hold the same"]
    if len(found) > LISTED:
        lines.append("  and more")
    data = {"source": names[0], "target": names[1], **result.to_dict()}
    options.answer(data | ({"differences": found[:LISTED]} if verify else {}), lines)
    if found:
        raise typer.Exit(1)


def _check(*addresses: str) -> None:
    """Refuse an address that no store has, before anything is opened; neither of them is --store."""
    for address in addresses:
        try:
            place = read_address(address)
            if isinstance(place, str):
                split_arguments(place)
        except ValueError as error:
            raise typer.BadParameter(str(error).removeprefix("store=")) from error
