"""Export and import as verbs of one memory, and as functions over whole stores."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from shared_core.arguments import one_of
from shared_core.base import TokenCounter
from shared_core.errors import InputFileError, UnknownReferenceError
from shared_core.messages import Message
from shared_core.paths import read, unused_branch_name
from shared_core.records import Draft
from shared_core.redact import Redact, redacted
from shared_core.session import Checkout
from shared_core.sharing.export import Progress, Source, atomically, markdown, write_sessions
from shared_core.sharing.importer import ImportResult, InsertionPoint, Target, bring, sessions_in
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.tokens import as_counter, body_tokens

__all__ = ["FileFormat", "FileVerbs", "export_sessions", "import_sessions"]

FileFormat = Literal["jsonl", "markdown"]

SUFFIXES = {".md": "markdown", ".markdown": "markdown"}


class FileVerbs:
    """Exports and imports of one conversation."""

    _checkout: Checkout

    def export(
        self, path: str | os.PathLike[str], *, format: FileFormat | None = None, vectors: bool = False,
        redact: Redact | Sequence[Redact] = (), progress: Progress | None = None,
    ) -> int:  # fmt: skip
        """Write this conversation to a file, which appears whole or not at all; return how many messages it holds.

        Args:
            path: the file; one that is there is replaced.
            format: `"jsonl"`: all of it, as `docs/format.md` says, to be imported again. `"markdown"`: the branch stood
                on, for people to read. None: by the path's suffix, `.md` is Markdown.
            vectors: with the vectors that were made of it, so that nobody has to make them again.
            redact: a rule, or several in order: callable(message) -> the message as it is to be told, with the same id,
                or None. `drop_grounding`, `drop_tool_results` and `replace_names` are some. The payload, a
                framework's own form of the message, may hold the text again: a rule of your own drops it, too.
            progress: called with how many messages are done and how many there are.

        Raises:
            StoreError: the file cannot be written.
            UnknownReferenceError: nothing is stored yet.
            ValueError: vectors and redact together: a text can be guessed from its vector.
        """
        if format is not None:
            one_of("format", format, get_args(FileFormat))
        rules = [redact] if callable(redact) else list(redact)
        live = self._checkout.live
        as_text = (format or SUFFIXES.get(Path(path).suffix.lower())) == "markdown"
        with self._checkout.lock:
            if live.key is None:
                raise UnknownReferenceError(f"nothing is stored in {live.session_id!r} yet: nothing to export")
            source = Source(live.key, live.user_id, live.session_id, live.head)
            if as_text:
                live.sync()
            spans = live.path.spans
        if as_text:
            records = read(live.store, source.session, spans)
            return _export_markdown(path, live.session_id, (record.message for record in records), rules)
        return write_sessions(live.store, [source], path, vectors=vectors, rules=rules, progress=progress)

    def import_file(
        self, path: str | os.PathLike[str], *, session: str | None = None, progress: Progress | None = None
    ) -> ImportResult:
        """Bring a conversation from a file into this one, all of it or nothing.

        What is stored here already, under the same id, with the same content and after the same messages, is left as it
        is, so that the same file again adds nothing and one that has grown what is new. A message under whose id
        something else is stored gets another id; nothing is overwritten. A branch goes on to where the file has it if
        nothing here is left by that, and is else called `imported/NAME`. What has been forgotten here stays forgotten.

        The file may be one that `export` wrote, ChatGPT's `conversations.json` with its branches, LangChain's messages
        as `messages_to_dict` writes them, LlamaIndex's `SimpleChatStore`, or messages in the OpenAI format, JSON or
        JSONL. A list without branches is added where this memory stands. Into an empty conversation, this memory stands
        afterwards where whoever wrote the file stood.

        Args:
            path: the file.
            session: which one, if the file holds several.
            progress: called with how many messages are done and how many there are.

        Raises:
            InputFileError: the file is not what it should be, or is damaged; nothing is changed.
            UnknownReferenceError: it has no such session.
            ValueError: it holds several; say which.
        """
        checkout = self._checkout
        target = Target(checkout.live.user_id, checkout.live.session_id)

        def route(user_id: str | None, session_id: str, count: int) -> Target | None:
            if session is None and count > 1:
                named = ", ".join(map(repr, sessions_in(path)))
                raise _SeveralError(f"{os.fspath(path)!r} holds {count} sessions: pass session=, one of {named}")
            return target if session in (None, session_id) else None

        with checkout.lock:
            try:
                imported = bring(
                    checkout.store,
                    path,
                    route,
                    checkout.writer.draft,
                    spot=_insertion_point(checkout),
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


def _export_markdown(
    path: str | os.PathLike[str], title: str, messages: Iterable[Message], rules: Sequence[Redact]
) -> int:
    count = 0
    with atomically(path) as file:
        told = (one for message in messages if (one := redacted(message, rules)) is not None)
        for part in markdown(title, told):
            count += part.startswith("\n## ")
            file.write(part.encode("utf-8", "backslashreplace"))
    return count


def _insertion_point(checkout: Checkout) -> InsertionPoint:
    """Return where a list of messages goes: to the branch checked out, or from a detached head to a new one."""
    branch, at = checkout.live.head
    if branch is not None:
        return InsertionPoint(branch)
    return InsertionPoint(unused_branch_name(checkout.store, checkout.stored()), at)


class _SeveralError(Exception):
    """A file holds several sessions where one is asked for."""


def export_sessions(
    store: str | Path | Store, path: str | os.PathLike[str], *, users: Sequence[str | None] | None = None,
    vectors: bool = False, redact: Redact | Sequence[Redact] = (), progress: Progress | None = None,
) -> int:  # fmt: skip
    """Write all conversations of some users, or of a store, to one file; return how many messages it holds.

    Args:
        store: a path (SQLite) or a `Store`.
        path: the file; it appears whole or not at all, and replaces one that is there.
        users: whose; None among them: those that belong to nobody. None: everybody's.
        vectors: as in `InfiniteMemory.export`; so are `redact` and `progress`.
        redact: what not to tell.
        progress: called with how many messages are done and how many there are.

    Raises:
        StoreError: the store cannot be read or the file not be written.
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
    """Bring all conversations of a file into a store, all of them or nothing; what is known is left as it is.

    Args:
        store: a path (SQLite) or a `Store`.
        path: as in `InfiniteMemory.import_file`; a list that has no name goes to the session `"default"`.
        user_id: whose they become; None: whose the file says.
        token_counter: counts what is stored, as in `InfiniteMemory`.
        progress: called with how many messages are done and how many there are, of the conversation at hand where
            another program wrote the file.

    Raises:
        InputFileError: the file is not what it should be; nothing is changed.
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
        return [one.result for one in bring(opened, path, route, draft, progress=progress)]


class _Opened:
    """A store for a while: one that was given stays open."""

    def __init__(self, store: str | Path | Store) -> None:
        self._given = isinstance(store, Store)
        self._store = open_store(store)

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *exc_info: object) -> None:
        if not self._given:
            self._store.close()
