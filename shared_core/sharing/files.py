"""Export and import: methods of one memory, and functions for whole stores."""

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from shared_core.arguments import file_path, one_of
from shared_core.errors import InputFileError, UnknownReferenceError
from shared_core.events.source import EventSource, Watch, reported
from shared_core.messages import Message
from shared_core.plugins.base import TokenCounter
from shared_core.records import Draft
from shared_core.session.checkout import Checkout
from shared_core.session.message_sequence import MessageSequence
from shared_core.session.paths import ROOT_PATH, unused_branch_name
from shared_core.session.paths import Path as BranchPath
from shared_core.sharing.documents import markdown, openai_list
from shared_core.sharing.export import Progress, Source, atomically, branch_end, write_sessions
from shared_core.sharing.foreign import chosen_entry, import_conversations, named
from shared_core.sharing.format import is_ours
from shared_core.sharing.importer import (
    MAX_NAMED,
    ExportFile,
    Imported,
    ImportResult,
    InsertionPoint,
    Job,
    Target,
    import_export,
    read_export,
)
from shared_core.sharing.readers import Foreign, read_foreign
from shared_core.sharing.redact import Redact, redacted
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tokens import as_counter, body_tokens

FileFormat = Literal["jsonl", "markdown", "openai"]

SUFFIXES = {".md": "markdown", ".markdown": "markdown"}


def _of_import(watch: Watch, result: ImportResult) -> None:
    watch.fields["count"] = result.new


class FileVerbs:
    """The methods that export and import one conversation."""

    _checkout: Checkout
    _events: EventSource

    def export(
        self, path: str | os.PathLike[str], *, format: FileFormat | None = None, branch: str | None = None,
        vectors: bool = False, redact: Redact | Sequence[Redact] = (), progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Write this conversation to a file and return how many messages the file holds.

        The file appears whole or not at all.

        Args:
            path: the file to write; an existing file is replaced.
            format: `"jsonl"` writes the whole conversation, with all branches, so that it can be imported again; see
                `docs/format.md`. `"markdown"` writes one branch, for people to read. `"openai"` writes one branch as a
                list of chat-completions messages, without times, ids, grounding and replaced system messages. None:
                Markdown if the path ends with `.md` or `.markdown`, else JSONL.
            branch: write this branch alone, with nothing that was said only on others. None: JSONL has all branches,
                the other formats the one that is checked out.
            vectors: also write the vectors of the messages, so that they need not be embedded again after an import.
            redact: a rule, or several rules applied in order. A rule is a `callable(message)` that returns the message
                as it is written, with the same id, or None to leave it out. `shared_core.sharing.redact` offers
                `drop_grounding`, `drop_tool_results` and `replace_names`. A message's payload, the form a framework
                gave it, may repeat the text: a rule of your own should drop it, too.
            progress: called with how many messages are done and how many there are; for JSONL only.

        Raises:
            StoreError: the file cannot be written.
            UnknownReferenceError: nothing is stored yet, or there is no such branch.
            ValueError: `vectors` is combined with `redact`, because a text can be guessed from its vector, or with
                another format than JSONL; or a message has no form in OpenAI's format.
        """
        file_path("path", path)
        if format is not None:
            one_of("format", format, get_args(FileFormat))
        rules = [redact] if callable(redact) else list(redact)
        live = self._checkout.live
        chosen = format or SUFFIXES.get(Path(path).suffix.lower(), "jsonl")
        if vectors and chosen != "jsonl":
            raise ValueError(f"vectors=True: only JSONL holds vectors, not {chosen}; leave out vectors")
        with self._checkout.lock:
            if live.key is None:
                raise UnknownReferenceError(
                    f"nothing is stored in session {live.session_id!r} yet: there is nothing to export"
                )
            source = Source(live.key, live.user_id, live.session_id, live.head, branch)
            line = self._branch_path(branch) if chosen != "jsonl" else ROOT_PATH
            prompt = {entry.message.id for entry in live.system_prompt_of(line)} if chosen == "openai" else None
        if chosen == "jsonl":
            return write_sessions(live.store, [source], path, vectors=vectors, rules=rules, progress=progress)
        record = MessageSequence(live.store, source.session, line, system_prompt=prompt, replaced=0)
        said = (redacted(message, rules) for message in record)
        messages = (message for message in said if message is not None)
        titles = [] if rules else live.store.refs(source.session, "title", limit=1)  # rules are for messages alone
        heading = titles[0].note if titles else live.session_id
        document = openai_list if chosen == "openai" else partial(markdown, heading)
        return _write_document(path, messages, document)

    def backup(self, path: str | os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Write a copy of the whole store to a new file: all sessions of all users, as they are at this moment.

        Others may read and write meanwhile. The file appears complete or not at all, and opens like the original.
        Copying a database file with other programs loses what is still in the file that ends in `-wal`.

        Args:
            path: the file, which must not exist.
            progress: called with how many pages are done and how many there are.

        Raises:
            StoreError: the file exists already or cannot be written, or the store makes no backups.
        """
        file_path("path", path)
        self._checkout.store.backup(path, progress)

    def _branch_path(self, branch: str | None) -> BranchPath:
        """Return the path of a branch; None: of what is checked out."""
        live = self._checkout.live
        live.sync()
        if branch is None:
            return live.path
        return live.path_to(branch_end(live.store.branches(self._checkout.stored()), branch))

    @reported("import_file", _of_import)
    def import_file(
        self, path: str | os.PathLike[str], *, session: str | None = None, format: str | None = None,
        progress: Progress | None = None,
    ) -> ImportResult:  # fmt: skip
        """Import a conversation from a file into this one: all of it or nothing.

        The file may be one that `export` wrote, or one of many other programs, such as the export of ChatGPT, Claude
        or Gemini, as JSON or as the zip archive itself, or messages in the format of OpenAI or Anthropic, as JSON or
        JSONL; `docs/import.md` lists them. A list without branches is added to what is checked out.

        A message is known if it is stored under the same id, with the same content, after the same messages. Known
        messages are left as they are: importing a file twice adds nothing the second time, and importing a file that
        has grown adds what is new. Nothing is overwritten: a message whose id is stored with other content gets another
        id. A branch moves forward to where the file has it, or, if it would lose messages that way, is imported as
        `imported/NAME`. Messages that were forgotten here stay forgotten.

        If this conversation was empty, the branch that was checked out at the export is checked out afterwards.

        Args:
            path: the file.
            session: the id or the title of the conversation to import, if the file holds several.
            format: the file's format, one of those in `docs/import.md`. None: the one that its content has.
            progress: called with how many messages are done and how many there are.

        Raises:
            DuplicateError: the file is a list without branches, and one of its messages is stored on another branch;
                nothing is changed.
            InputFileError: the file is invalid or damaged; nothing is changed.
            UnknownReferenceError: the file does not hold this conversation.
            ValueError: the file holds several conversations, and none was chosen; or there is no such format.
        """
        file_path("path", path)
        checkout = self._checkout
        with checkout.lock:
            source = _source(path, format)
            if session is None and len(source.ids) > 1:
                raise SeveralSessionsError(source)
            if not source.ids:
                raise InputFileError(f"{source.name!r} holds no conversation")
            target = Target(checkout.live.user_id, checkout.live.session_id)
            job = Job(
                checkout.store, lambda id_, user: target, checkout.writer.draft, progress, _insertion_point(checkout)
            )
            ((result, head),) = _imported(job, source, None if session is None else [session])
            _drop_vectors_of_another(checkout)
            listed = not result.branches
            checkout.stand(head if head is not None and (result.created or listed) else checkout.live.head)
            return result


def _source(path: str | os.PathLike[str], format: str | None) -> ExportFile | Foreign:
    return read_export(path) if format is None and is_ours(path) else read_foreign(path, format)


def _imported(job: Job, source: ExportFile | Foreign, sessions: Sequence[str] | None) -> list[Imported]:
    """Import the conversations with these ids or titles; None: all."""
    if isinstance(source, ExportFile):
        return import_export(job, source, sessions)
    entries = source.entries if sessions is None else [chosen_entry(source, one) for one in sessions]
    return import_conversations(job, source, entries)


def _drop_vectors_of_another(checkout: Checkout) -> None:
    """Drop vectors that are not stored yet if those of the file are another embedder's, which recall takes from now."""
    made = checkout.writer.own_vectors()
    rows = None if made is None else made.unsaved
    if made is None or rows is None:
        return
    spaces = checkout.store.spaces(checkout.stored())
    if spaces and rows.space not in spaces:
        made.note_saved(rows)


class SeveralSessionsError(ValueError):
    """A file holds several conversations, and none was chosen.

    Attributes:
        name: the file.
        count: how many conversations it holds.
        listed: the first of them, with their titles.
    """

    def __init__(self, source: ExportFile | Foreign) -> None:
        self.name, self.count = source.name, len(source.ids)
        self.listed = (
            ", ".join(map(repr, source.ids[:MAX_NAMED])) if isinstance(source, ExportFile) else named(source.entries)
        )
        super().__init__(f"{self.name!r} holds {self.count} sessions: pass session=, one of {self.listed}")


def _write_document(
    path: str | os.PathLike[str], messages: Iterable[Message], document: Callable[[Iterable[Message]], Iterator[str]]
) -> int:
    """Write messages to a file as one document; return how many there were."""
    count = 0

    def counted() -> Iterator[Message]:
        nonlocal count
        for message in messages:
            count += 1
            yield message

    with atomically(path) as file:
        for part in document(counted()):
            file.write(part.encode("utf-8", "backslashreplace"))  # which is how JSON writes half of a surrogate pair
    return count


def _insertion_point(checkout: Checkout) -> InsertionPoint:
    """Return where a list of messages goes: the branch that is checked out, or a new one from a detached head."""
    branch, at = checkout.live.head
    if branch is not None:
        return InsertionPoint(branch)
    return InsertionPoint(unused_branch_name(checkout.store, checkout.stored()), at)


def export_sessions(
    store: str | Path | Store, path: str | os.PathLike[str], *, users: Sequence[str | None] | None = None,
    vectors: bool = False, redact: Redact | Sequence[Redact] = (), progress: Progress | None = None,
) -> int:  # fmt: skip
    """Write all conversations of a store, or of some of its users, to one file; return how many messages it holds.

    Args:
        store: the path of an SQLite database, or a `Store`.
        path: the file to write. It appears whole or not at all; an existing file is replaced.
        users: the users whose conversations are written. A None among them stands for conversations without a user.
            None: all conversations.
        vectors: also write the vectors, as in `InfiniteMemory.export`.
        redact: one or several rules, as in `InfiniteMemory.export`.
        progress: called with how many messages are done and how many there are.

    Raises:
        StoreError: the store cannot be read, or the file cannot be written.
    """
    rules = [redact] if callable(redact) else list(redact)
    with _opened(store) as opened:
        owners = dict.fromkeys(one.user_id for one in opened.sessions()) if users is None else users
        sources = [Source(*one) for user in owners for one in opened.sessions(user)]
        return write_sessions(opened, sources, path, vectors=vectors, rules=rules, progress=progress)


def import_sessions(
    store: str | Path | Store, path: str | os.PathLike[str], *, sessions: Sequence[str] | None = None,
    user_id: str | None = None, format: str | None = None, skip_invalid: bool = False,
    token_counter: TokenCounter | Callable[[str], int] | str | None = None, progress: Progress | None = None,
) -> list[ImportResult]:  # fmt: skip
    """Import the conversations of a file into a store, each into the session of its id.

    A file is imported as a whole or not at all, in one transaction: other writers wait for about 5 s of 100,000
    messages. Known messages are left as they are, so a newer export adds what is new. A list of messages, which has no
    id, is imported into the session `"default"`.

    Args:
        store: the path of an SQLite database, or a `Store`.
        path: a file as for `InfiniteMemory.import_file`.
        sessions: the ids or titles of the conversations to import. None: all.
        user_id: the user who gets the conversations. None: the users that the file names.
        format: the file's format, as for `InfiniteMemory.import_file`.
        skip_invalid: leave out conversations of another program that are invalid, instead of raising `InputFileError`.
            Their results have an `error`.
        token_counter: counts the tokens of the stored messages, as in `InfiniteMemory`. None: they are counted when a
            prompt needs them.
        progress: called with how many messages are done and how many there are.

    Returns:
        One result per conversation, in the order of the file. One without messages gets no session.

    Raises:
        InputFileError: the file is invalid; nothing is changed.
        UnknownReferenceError: the file does not hold one of `sessions`; nothing is changed.
        StoreError: the store cannot be written.
        ValueError: there is no such format.
    """
    draft = _drafted(None if token_counter is None else as_counter(token_counter))

    def target(id_: str, owner: str | None = None) -> Target:
        return Target(owner if user_id is None else user_id, id_ or "default")

    with _collector_paused():
        source = _source(path, format)  # first of all, so that an invalid file does not create a store
        with _opened(store) as opened:
            job = Job(opened, target, draft, progress, skip_invalid=skip_invalid)
            return [one.result for one in _imported(job, source, sessions)]


@contextmanager
def _collector_paused() -> Iterator[None]:
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


def _drafted(counter: TokenCounter | None) -> Callable[[Message], Draft]:
    """Return a function that completes a message to be stored, with its size if there is a counter for it."""

    def draft(message: Message) -> Draft:
        complete = message if message.created_at is not None else message.replace(created_at=datetime.now(UTC))
        if counter is None or counter.name is None:
            return Draft(complete)
        return Draft(complete, counter.name, body_tokens(complete, counter))

    return draft


@contextmanager
def _opened(store: str | Path | Store) -> Iterator[Store]:
    """Open a store for a block; a `Store` that was passed in stays open."""
    opened = open_store(store)
    try:
        yield opened
    finally:
        if opened is not store:
            opened.close()
