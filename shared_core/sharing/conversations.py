"""Store the conversations of a file of another program: short ones together."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shared_core.errors import InputFileError
from shared_core.records import title_of
from shared_core.sharing.export import Progress
from shared_core.sharing.foreign import Job, import_conversation
from shared_core.sharing.importer import Imported, ImportResult, Target
from shared_core.sharing.readers import Conversation, Entry
from shared_core.store import give_title

TOGETHER = 1_000
"""Messages that are stored in one transaction. With a transaction for each short chat, the disk would set the pace."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the collector of reference cycles, if it runs.

    What a file holds has no cycles, and looking for them in all of it, again and again, takes a third of an import.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def import_conversations(
    job: Job, entries: Sequence[Entry], target: Callable[[str], Target], *,
    skip_invalid: bool = False, progress: Progress | None = None,
    on_session: Callable[[ImportResult], None] | None = None,
) -> list[Imported]:  # fmt: skip
    """Store conversations, each whole or not at all, after all of them have been read.

    Args:
        job: what the imports share.
        entries: the conversations.
        target: returns the session for the id of a conversation.
        skip_invalid: leave out conversations that are invalid; their results have an `error`.
        progress: called with how many messages are done and how many there are.
        on_session: called with each result, once the session is stored.

    Raises:
        InputFileError: a conversation is invalid; nothing is stored.
    """
    read = [_read(one, job.format, target(one.id), skip_invalid) for one in entries]
    total = sum(map(_size, read))
    if progress is not None:
        progress(0, total)
    results: list[Imported] = []
    done = 0
    for group in _groups(read):
        stored: list[Imported] = []
        with job.store.transaction():
            for one in group:
                if isinstance(one, ImportResult):
                    stored.append(Imported(one, None))
                    continue
                shifted = job._replace(advance=_shifted(progress, done, total))
                stored.append(import_conversation(shifted, one, target(one.id)))
                done += len(one.nodes)
                if one.title and (session := job.store.session(*target(one.id))) is not None:
                    give_title(job.store, session, title_of(one.title))
        results += stored
        if on_session is not None:
            for imported in stored:
                on_session(imported.result)
    return results


def _size(one: Conversation | ImportResult) -> int:
    return len(one.nodes) if isinstance(one, Conversation) else 0


def _groups(read: Sequence[Conversation | ImportResult]) -> Iterator[list[Conversation | ImportResult]]:
    """Yield what is stored together: conversations with `TOGETHER` messages, or a longer one."""
    group: list[Conversation | ImportResult] = []
    size = 0
    for one in read:
        size += _size(one)
        if group and size > TOGETHER:
            yield group
            group, size = [], _size(one)
        group.append(one)
    if group:
        yield group


def _shifted(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    """Return a function that reports the messages of one conversation that are done as those of all."""
    return lambda done: None if progress is None else progress(before + done, total)


def _read(entry: Entry, format: str, target: Target, skip_invalid: bool) -> Conversation | ImportResult:
    try:
        return entry.read()
    except InputFileError as error:
        if not skip_invalid:
            raise
        return ImportResult(format, target.session_id, target.user_id, title=entry.title, error=str(error))
