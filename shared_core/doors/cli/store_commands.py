"""The commands of whoever runs a store: backup, restore, stats, doctor, copy, download and evaluate."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from shared_core.display import counted, printable, printable_name
from shared_core.doors.cli.options import (
    BranchOptions,
    CommonOptions,
    EmbedderName,
    MaxTokens,
    ReserveTokens,
    say,
    with_options,
    write_json,
)
from shared_core.doors.cli.printing import columns, confirm, progress, stages, table
from shared_core.errors import MissingExtraError, StoreError
from shared_core.evaluation import evaluate as measure
from shared_core.operations.store_check import Damage, check_store, recover_store
from shared_core.operations.store_comparison import differences
from shared_core.operations.store_copy import copy_store
from shared_core.operations.store_stats import StoreStats, store_stats
from shared_core.plugins.embedders import onnx_available
from shared_core.plugins.embedders.minilm import MINILM, fetch
from shared_core.stores import open_store, read_address, store_exists, without_password
from shared_core.stores.addresses import split_arguments
from shared_core.stores.sqlite.backup import restore as put_back

NO_SETTINGS = signature(measure).parameters
"""Names that `evaluate` has for itself, so that they cannot be those of settings."""

LISTED = 20
"""How many differences between two stores are listed."""


@with_options
def backup(
    options: CommonOptions,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write, which must not exist.")],
) -> None:
    """Copy the whole store while others use it.

    The copy holds all sessions of all users, and opens like the original. cp makes no such copy: what was said last
    may still be in the file beside the store that ends in -wal.

    Example:
      infinite-memory backup copy.db
    """
    options.require_store()
    with closing(open_store(options.store)) as store, progress("copying") as advance:
        store.backup(file, progress=advance)
    data = {"file": file, "store": options.shown_store, "bytes": os.path.getsize(file)}
    options.answer(data, [f"{options.shown_store} -> {file}: {data['bytes']:,} bytes"])


@with_options
def restore(
    options: CommonOptions,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What backup wrote.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before what is in the store is lost.")] = False,
) -> None:
    """Put a backup in the place of the store.

    Programs may have it open: they notice it when they write next, and have to open the store again. What was said
    since the backup is lost. Never copy a file over a store that is open.

    Example:
      infinite-memory restore copy.db
    """
    path = read_address(options.store)
    if isinstance(path, str):
        raise typer.BadParameter("restore reads a file: restore a server with its own tools, such as pg_restore")
    if path.exists() and not yes:
        confirm(f"{options.shown_store} has {path.stat().st_size:,} bytes.\nReplace them?", "nothing was restored")
    with progress("copying") as advance:
        put_back(Path(file), path, advance)
    data = {"file": file, "store": options.shown_store, "bytes": os.path.getsize(path)}
    options.answer(data, [f"{file} -> {options.shown_store}: {data['bytes']:,} bytes"])


@with_options
def stats(options: CommonOptions) -> None:
    """Count everything in the store, of all users.

    It says how many conversations, users and messages there are, the vectors of each embedder, and the
    largest conversations. The database counts, which may take minutes.

    Example:
      infinite-memory stats
    """
    if options.user is not None or options.session is not None:
        raise typer.BadParameter("stats counts all conversations: status counts one, and sessions lists a user's")
    options.require_store()
    with closing(open_store(options.store)) as store:
        found = store_stats(store)
    options.answer({"store": options.shown_store, **found.to_dict()}, _store_lines(found))


def _store_lines(found: StoreStats) -> Iterator[str]:
    names = ("sessions", "users", "messages", "forgotten", "without_vector", "bytes")
    yield from table({name.replace("_", " "): f"{getattr(found, name):,}" for name in names}).splitlines()
    spaces = [[f"{one.vectors:,}", f"{one.bytes:,}", printable_name(one.space)] for one in found.spaces]
    largest = [
        [f"{one.messages:,}", printable_name(one.user or "-"), printable_name(one.session)] for one in found.largest
    ]
    for head, rows in ((("VECTORS", "BYTES", "EMBEDDER"), spaces), (("MESSAGES", "USER", "SESSION"), largest)):
        yield from ["", *columns(head, rows)] if rows else []


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

    Examples:
      infinite-memory doctor
      infinite-memory doctor --recover saved.db
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
    lines = [f"{name}: {counted(found.messages, 'message')} in {counted(found.sessions, 'session')} {state}"]
    lines += map(_line, found.damages)
    if recover_to is not None:
        lines.append(f"{name} -> {recover_to}: {counted(found.messages, 'message')}")
    options.answer({"store": name, **found.to_dict(), "recovered": recover_to}, map(printable, lines))
    if found.damages:
        raise typer.Exit(1)


def _line(damage: Damage) -> str:
    whose = "" if damage.session is None else f"session {printable_name(damage.session)}: "
    whose = whose if damage.user is None else f"user {printable_name(damage.user)}, {whose}"
    return f"  {whose}{damage.what}: {damage.why}"


@with_options
def copy(
    options: CommonOptions,
    source: Annotated[str, typer.Argument(metavar="SRC", help="The store to copy from, as for --store.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="The store to copy to; created if it does not exist.")],
    verify: Annotated[bool, typer.Option("--verify", help="Compare the two row by row afterwards.")] = False,
) -> None:
    """Copy a store, or what is new, to another.

    The two may be of any kind. Everybody's conversations are copied, or those of --user. Run it again to bring what is
    new, and to forget what was forgotten; an interrupted copy goes on where it was. Let nobody write to SRC during the
    last run. The exit code is 1 if --verify finds a difference.

    Examples:
      infinite-memory copy chat.db postgresql://app@localhost/chats
      infinite-memory copy chat.db new.db --user ana --verify
    """
    names = [without_password(one) for one in (source, target)]
    _check(source, target)
    if not store_exists(source):
        raise StoreError(f"no store at {names[0]!r}: name the store to copy from")
    users = None if options.user is None else [options.user]
    with closing(open_store(source)) as opened, closing(open_store(target)) as there:
        try:
            with progress("copying") as advance:
                result = copy_store(opened, there, users=users, progress=advance)
        except KeyboardInterrupt:
            say("interrupted; run the command again to go on")
            raise
        found = list(islice(differences(opened, there, users=users), LISTED + 1)) if verify else []
    done = f"{counted(result.messages, 'new message')} in {counted(result.sessions, 'session')}"
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


@with_options
def download(options: CommonOptions) -> None:
    """Fetch the MiniLM model for new conversations.

    all-MiniLM-L6-v2 finds what was said in other words, which the static word vectors hardly do. It needs the extra
    onnx. Its files, 92 MB, go into the cache of Hugging Face, where all programs find them; nothing is downloaded if
    they are there. Conversations that have vectors keep those.

    Example:
      infinite-memory download
    """
    if not onnx_available():
        raise MissingExtraError('MiniLM needs onnxruntime: pip install "infinite-memory[onnx]"', name="onnxruntime")
    files = fetch()
    folder, size = files[0].parent, sum(file.stat().st_size for file in files)
    lines = [
        f"{MINILM.name} is in {folder} ({size / 1e6:,.0f} MB)",
        "New conversations are searched with it, in all your programs. Those that have vectors keep theirs.",
        'embedder="static" in a program, or INFINITE_MEMORY_EMBEDDER=static in its environment, keeps to word vectors.',
    ]
    options.answer({"model": MINILM.name, "folder": str(folder), "bytes": size}, lines)


@with_options
def evaluate(
    options: BranchOptions,
    questions: Annotated[
        str,
        typer.Argument(metavar="FILE", help="The questions, a JSON object on each line; - reads them from stdin."),
    ],
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

    Examples:
      infinite-memory evaluate mine.jsonl
      infinite-memory evaluate mine.jsonl --try recall=precise,thorough --try embedder=all-MiniLM-L6-v2
    """
    arguments: dict[str, Any] = {"max_tokens": max_tokens, "reserve_tokens": reserve_tokens, "embedder": embedder}
    for name, text in _named(present or [], "--with"):
        arguments[name] = _value(text)
    values = {name: [_value(value) for value in text.split(",")] for name, text in _named(tries or [], "--try")}
    options.require_store()
    source = sys.stdin if questions == "-" else questions
    with stages() as advance:
        found = measure(
            options.store, source, tries=values, session_id=options.session_id,
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
