"""Export and import: methods of one memory, and functions for whole stores."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from shared_core.arguments import file_path, one_of
from shared_core.base import TokenCounter
from shared_core.errors import InputFileError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.paths import Span, read, unused_branch_name
from shared_core.records import Draft
from shared_core.redact import Redact, redacted
from shared_core.session import Checkout
from shared_core.sharing.documents import markdown, openai_list
from shared_core.sharing.export import Progress, Source, atomically, branch_end, write_sessions
from shared_core.sharing.importer import ImportResult, InsertionPoint, Target, import_into, sessions_in
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tokens import as_counter, body_tokens

FileFormat = Literal["jsonl", "markdown", "openai"]

SUFFIXES = {".md": "markdown", ".markdown": "markdown"}


class FileVerbs:
    """The methods that export and import one conversation."""

    _checkout: Checkout

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
                list of chat-completions messages, without times, ids and grounding. None: Markdown if the path ends
                with `.md` or `.markdown`, else JSONL.
            branch: write this branch alone, with nothing that was said only on others. None: JSONL has all branches,
                the other formats the one that is checked out.
            vectors: also write the vectors of the messages, so that they need not be embedded again after an import.
            redact: a rule, or several rules applied in order. A rule is a `callable(message)` that returns the message
                as it is written, with the same id, or None to leave it out. `shared_core.redact` offers
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
            spans = self._branch_spans(branch) if chosen != "jsonl" else ()
        if chosen == "jsonl":
            return write_sessions(live.store, [source], path, vectors=vectors, rules=rules, progress=progress)
        said = (redacted(record.message, rules) for record in read(live.store, source.session, spans))
        messages = (message for message in said if message is not None)
        document = openai_list if chosen == "openai" else partial(markdown, live.session_id)
        return _write_document(path, messages, document)

    def _branch_spans(self, branch: str | None) -> Sequence[Span]:
        """Return the path of a branch; None: of what is checked out."""
        live = self._checkout.live
        live.sync()
        if branch is None:
            return live.path.spans
        return live.path_to(branch_end(live.store.branches(self._checkout.stored()), branch)).spans

    def import_file(
        self, path: str | os.PathLike[str], *, session: str | None = None, progress: Progress | None = None
    ) -> ImportResult:
        """Import a conversation from a file into this one: all of it or nothing.

        The file may be one that `export` wrote, ChatGPT's `conversations.json` with its branches, LangChain's messages
        as `messages_to_dict` writes them, LlamaIndex's `SimpleChatStore`, or messages in the OpenAI format as JSON or
        JSONL. A list without branches is added to what is checked out.

        A message is known if it is stored under the same id, with the same content, after the same messages. Known
        messages are left as they are: importing a file twice adds nothing the second time, and importing a file that
        has grown adds what is new. Nothing is overwritten: a message whose id is stored with other content gets another
        id. A branch moves forward to where the file has it, or, if it would lose messages that way, is imported as
        `imported/NAME`. Messages that were forgotten here stay forgotten.

        If this conversation was empty, the branch that was checked out at the export is checked out afterwards.

        Args:
            path: the file.
            session: the id of the session to import, if the file holds several.
            progress: called with how many messages are done and how many there are.

        Raises:
            InputFileError: the file is invalid or damaged; nothing is changed.
            UnknownReferenceError: the file does not hold this session.
            ValueError: the file holds several sessions, and none was chosen.
        """
        file_path("path", path)
        checkout = self._checkout
        target = Target(checkout.live.user_id, checkout.live.session_id)

        def route(user_id: str | None, session_id: str, count: int) -> Target | None:
            if session is None and count > 1:
                named = ", ".join(map(repr, sessions_in(path)))
                raise _SeveralError(f"{os.fspath(path)!r} holds {count} sessions: pass session=, one of {named}")
            return target if session in (None, session_id) else None

        with checkout.lock:
            try:
                imported = import_into(
                    checkout.store,
                    path,
                    route,
                    checkout.writer.draft,
                    insertion_point=_insertion_point(checkout),
                    progress=progress,
                )
            except _SeveralError as error:
                raise ValueError(str(error)) from None
            if not imported and session is not None:
                named = sessions_in(path)
                raise UnknownReferenceError(f"{os.fspath(path)!r} has no session {session!r}", candidates=named)
            if not imported:
                raise InputFileError(f"{os.fspath(path)!r} holds no conversation")
            ((result, head),) = imported
            listed = not result.branches
            checkout.stand(head if head is not None and (result.created or listed) else checkout.live.head)
            return result


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


class _SeveralError(Exception):
    """A file holds several sessions, and none was chosen.

    A class of its own, because a `ValueError` raised inside the import would be reported as an error of the file.
    """


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
    with _Opened(store) as opened:
        owners = dict.fromkeys(one.user_id for one in opened.sessions()) if users is None else users
        sources = [Source(*one) for user in owners for one in opened.sessions(user)]
        return write_sessions(opened, sources, path, vectors=vectors, rules=rules, progress=progress)


def import_sessions(
    store: str | Path | Store, path: str | os.PathLike[str], *, user_id: str | None = None,
    token_counter: TokenCounter | Callable[[str], int] | str | None = None, progress: Progress | None = None,
) -> list[ImportResult]:  # fmt: skip
    """Import all conversations of a file into a store: all of them or nothing. Known messages are left as they are.

    Args:
        store: the path of an SQLite database, or a `Store`.
        path: a file as for `InfiniteMemory.import_file`. A list without a name is imported into the session
            `"default"`.
        user_id: the user who gets the conversations. None: the users that the file names.
        token_counter: counts the tokens of the stored messages, as in `InfiniteMemory`.
        progress: called with how many messages are done and how many there are; in a file of another program, within
            the current conversation.

    Raises:
        InputFileError: the file is invalid; nothing is changed.
        StoreError: the store cannot be written.
    """
    counter = as_counter(token_counter)

    def route(user: str | None, session_id: str, count: int) -> Target:
        return Target(user if user_id is None else user_id, session_id or "default")

    def draft(message: Message) -> Draft:
        complete = message if message.created_at is not None else message.replace(created_at=datetime.now(UTC))
        plain = Draft(complete)
        if counter.name is None:
            return plain
        return replace(plain, counter=counter.name, tokens=body_tokens(complete, counter))

    with _Opened(store) as opened:
        return [one.result for one in import_into(opened, path, route, draft, progress=progress)]


class _Opened:
    """Opens a store for a block; a `Store` that was passed in stays open."""

    def __init__(self, store: str | Path | Store) -> None:
        self._given = isinstance(store, Store)
        self._store = open_store(store)

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *exc_info: object) -> None:
        if not self._given:
            self._store.close()
