"""The commands of whoever runs a store: doctor, copy and download."""

from contextlib import closing
from itertools import islice
from typing import Annotated

import typer

from shared_core.display import printable, printable_name
from shared_core.doors.cli.options import CommonOptions, with_options
from shared_core.doors.cli.printing import count, progress, say
from shared_core.errors import MissingExtraError, StoreError, installed
from shared_core.operations.store_check import Damage, check_store, recover_store
from shared_core.operations.store_comparison import differences
from shared_core.operations.store_copy import copy_store
from shared_core.plugins.embedders import onnx_available
from shared_core.plugins.embedders.minilm import FILES, MINILM, fetch
from shared_core.stores import open_store, store_exists, without_password
from shared_core.stores.addresses import read_address, split_arguments

upkeep_commands = typer.Typer()

LISTED = 20
"""How many differences between two stores are listed."""


@upkeep_commands.command()
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


@upkeep_commands.command()
@with_options
def download(options: CommonOptions) -> None:
    """Fetch the MiniLM model for new conversations.

    all-MiniLM-L6-v2 finds what was said in other words, which the static word vectors hardly do. It needs the extra
    onnx or sentence-transformers. Its files, 92 MB, go into the cache of Hugging Face, where all programs find them;
    nothing is downloaded if they are there. Conversations that have vectors keep those.
    """
    if not onnx_available() and not installed("sentence_transformers"):
        raise MissingExtraError('MiniLM needs onnxruntime: pip install "infinite-memory[onnx]"', name="onnxruntime")
    folder = fetch()
    size = sum((folder / name).stat().st_size for name in FILES)
    lines = [
        f"{MINILM.name} is in {folder} ({size / 1e6:,.0f} MB)",
        "New conversations are searched with it, in all your programs. Those that have vectors keep theirs.",
        'embedder="static" in a program, or INFINITE_MEMORY_EMBEDDER=static in its environment, keeps to word vectors.',
    ]
    options.answer({"model": MINILM.name, "folder": str(folder), "bytes": size}, lines)
