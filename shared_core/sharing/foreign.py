"""Store the conversations of other programs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shared_core.errors import AmbiguousReferenceError, InputFileError, UnknownReferenceError
from shared_core.messages import Message, content_of
from shared_core.records import MAIN, ROOT, Branch, Draft, Newest, Position, Record, Restored, Segment, title_of
from shared_core.session.paths import Head
from shared_core.session.turns import is_prompt, prompt_joined
from shared_core.sharing.export import Progress
from shared_core.sharing.format import LineError
from shared_core.sharing.importer import BATCH, Imported, ImportResult, Target, imported
from shared_core.sharing.readers import Conversation, Entry, Foreign
from shared_core.sharing.session_import import CountTokens, SessionImport, other_id
from shared_core.store import Store, give_title

MAX_NAMED = 10
"""The number of conversations that an error lists."""


class InsertionPoint(NamedTuple):
    """Where a list of messages goes: the end of a branch, or with `at`, a new branch that begins there."""

    branch: str = MAIN
    at: Position | None = None


# Choosing


def named(entries: Sequence[Entry]) -> str:
    """Return the ids of conversations with their titles, to be listed in an error."""
    shown = [f"{one.id!r} ({one.title})" if one.title else repr(one.id) for one in entries[:MAX_NAMED]]
    more = [f"… and {len(entries) - MAX_NAMED:,} more"] if len(entries) > MAX_NAMED else []
    return ", ".join([*shown, *more])


def chosen_entry(foreign: Foreign, wanted: str) -> Entry:
    """Return the conversation with this id, or else the one with this title.

    Raises:
        UnknownReferenceError: there is none.
        AmbiguousReferenceError: several have this title.
    """
    titled = [one for one in foreign.entries if one.title == wanted]
    found = [one for one in foreign.entries if one.id == wanted] or titled
    if len(found) > 1:
        ids = [one.id for one in found[:MAX_NAMED]]
        raise AmbiguousReferenceError(
            f"{foreign.name!r} has {len(found)} conversations with the title {wanted!r}: choose one by its id, "
            f"{', '.join(map(repr, ids))}",
            candidates=ids,
        )
    if not found:
        ids = [one.id for one in foreign.entries[:MAX_NAMED]]
        raise UnknownReferenceError(
            f"{foreign.name!r} has no conversation {wanted!r}; it has {named(foreign.entries)}", candidates=ids
        )
    return found[0]


# Storing


class Job(NamedTuple):
    """What the imports of several conversations share.

    Attributes:
        store: the store to import into.
        name: the file, for errors.
        format: its format.
        draft: returns a message ready to be stored, with or without a token count.
        point: where a list, which has no branches, is added to its session.
        advance: called with the number of messages of the conversation that are done. It may be called often.
    """

    store: Store
    name: str
    format: str
    draft: Callable[[Message], Draft]
    point: InsertionPoint = InsertionPoint()
    advance: Callable[[int], None] = lambda done: None


def import_conversations(
    job: Job, entries: Sequence[Entry], target: Callable[[str], Target], *,
    skip_invalid: bool = False, progress: Progress | None = None,
) -> list[Imported]:  # fmt: skip
    """Store conversations, all or none, in one transaction, after all of them have been read.

    Args:
        job: what the imports share.
        entries: the conversations.
        target: returns the session for the id of a conversation.
        skip_invalid: leave out conversations that are invalid; their results have an `error`.
        progress: called with how many messages are done and how many there are.

    Raises:
        InputFileError: a conversation is invalid; nothing is stored.
    """
    read = [_read(one, job.format, target(one.id), skip_invalid) for one in entries]
    total = sum(len(one.nodes) for one in read if isinstance(one, Conversation))
    done = 0

    def advance(more: int) -> None:
        if progress is not None:
            progress(done + more, total)

    advance(0)
    results: list[Imported] = []
    with job.store.transaction():
        for one in read:
            if isinstance(one, ImportResult):
                results.append(Imported(one, None))
                continue
            results.append(import_conversation(job._replace(advance=advance), one, target(one.id)))
            done += len(one.nodes)
            if one.title and (session := job.store.session(*target(one.id))) is not None:
                give_title(job.store, session, title_of(one.title))
    return results


def _read(entry: Entry, format: str, target: Target, skip_invalid: bool) -> Conversation | ImportResult:
    try:
        return entry.read()
    except InputFileError as error:
        if not skip_invalid:
            raise
        return ImportResult(format, target.session_id, target.user_id, title=entry.title, error=str(error))


def import_conversation(job: Job, conversation: Conversation, target: Target) -> Imported:
    """Store a conversation in a session, inside a transaction of the store.

    Raises:
        InputFileError: the conversation cannot be stored; the store is unchanged.
    """
    about = _about_of(conversation)
    if conversation.id and not conversation.nodes:  # a chat that was opened and left: it needs no session
        return Imported(ImportResult(job.format, target.session_id, target.user_id, **about), None)
    session = job.store.create_session(*target)
    add = _add_tree if conversation.ends else _add_list
    done = add(job, conversation, target, session)
    job.advance(len(conversation.nodes))
    return done._replace(result=replace(done.result, **about))


def _about_of(conversation: Conversation) -> dict[str, Any]:
    """Return what a result says about a conversation itself."""
    return {"title": conversation.title, "left_out": conversation.left_out_words}


def _add_tree(job: Job, conversation: Conversation, target: Target, session: int) -> Imported:
    """Add a conversation with branches to a session. Known messages are left as they are."""
    adding = SessionImport(job.store, session, f"import {job.name}", counted(job.draft))
    whole = _restored(conversation)
    for segment in whole.segments:
        adding.segment(segment)
    with _located(job.name):
        for start in range(0, len(whole.records), BATCH):
            records = whole.records[start : start + BATCH]
            stored = adding.look_up([str(record.message.id) for record in records])
            for record in records:
                adding.message(record, (), {}, stored.get(str(record.message.id)))
            job.advance(start + len(records))
        for branch in whole.branches:
            adding.branch(branch.name, branch.head)
        adding.set_head(MAIN, None)
        adding.finish()
    return imported(adding, target, job.format)


@contextmanager
def _located(name: str) -> Iterator[None]:
    """Add the name of the file to an error."""
    try:
        yield
    except LineError as error:
        raise InputFileError(f"{name!r}: a message {error}; nothing was stored") from None


def _restored(conversation: Conversation) -> Restored:
    """Return a conversation as the content of an empty session."""
    parents: list[Position | None] = [None]  # of each segment
    tips = [-1]
    positions: dict[str | None, Position] = {None: ROOT}
    turns: dict[str | None, Newest] = {None: Newest(None, -1)}
    prompts: dict[str | None, Message] = {}
    records = []
    for message, parent in conversation.nodes:
        (segment, depth), newest = positions[parent], turns[parent]
        if depth != tips[segment]:  # another version follows there: this one is a branch
            parents.append(Position(segment, depth))
            tips.append(depth)
            segment = len(tips) - 1
        tips[segment] = depth + 1
        turn = _turn(message, newest, prompt_joined(message, prompts.get(parent)))
        position = positions[message.id] = Position(segment, depth + 1)
        turns[message.id] = turn if message.role == "user" else newest
        whole = message.replace(turn_id=turn.turn_id)
        if is_prompt(whole):
            prompts[whole.id] = whole
        records.append(Record(whole, position, 0, turn.turn_no))
    segments = tuple(map(Segment, range(len(tips)), parents, tips))
    branches = tuple(Branch(name, positions[at]) for name, at in conversation.ends.items())
    return Restored(segments, tuple(records), branches=branches)


def _turn(message: Message, newest: Newest, prompt: str | None) -> Newest:
    """Return the turn that a message opens or joins; `prompt` is that of a system prompt."""
    if message.role == "user":
        return Newest(message.id, newest.turn_no + 1)
    if message.role == "system" or newest.turn_id is None:
        return Newest(prompt or message.id, newest.turn_no)
    return newest


def counted(draft: Callable[[Message], Draft]) -> CountTokens:
    """Return a function that counts the tokens of a message as `draft` does."""

    def count_tokens(message: Message) -> tuple[str, int] | None:
        done = draft(message)
        return None if done.counter is None or done.tokens is None else (done.counter, done.tokens)

    return count_tokens


def _add_list(job: Job, conversation: Conversation, target: Target, session: int) -> Imported:
    created = not job.store.state(session).last_seq
    listed = _list_added(job, session, conversation.messages)
    result = ImportResult(
        job.format, target.session_id, target.user_id, listed.new, listed.known, listed.forgotten, listed.renamed,
        head=job.point.branch, created=created,
    )  # fmt: skip
    return Imported(result, Head(job.point.branch) if conversation.nodes else None)


@dataclass
class _ListOutcome:
    """The outcome of importing a list, so far."""

    new: int = 0
    known: int = 0
    forgotten: int = 0
    renamed: dict[str, str] = field(default_factory=dict)


def _list_added(job: Job, session: int, messages: Sequence[Message]) -> _ListOutcome:
    """Add messages with distinct ids to the job's branch, inside a transaction of the store.

    A message whose id is stored with other content gets another id, made by `other_id`.
    """
    listed, at = _ListOutcome(), job.point.at
    for batch in _batches(messages):
        drafts = _with_free_ids(job.store, session, [job.draft(message) for message in batch], listed)
        appended = job.store.append(session, job.point.branch, drafts, at=at)
        at = None
        listed.new += len(appended.added)
        listed.forgotten += len(appended.forgotten)
        listed.known += len(batch) - len(appended.added) - len(appended.forgotten)
        job.advance(listed.new + listed.known + listed.forgotten)
    return listed


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield messages in parts to be stored together."""
    start = 0
    for index, message in enumerate(messages):
        if message.role == "user" and index - start >= BATCH:  # so that no turn is split
            yield messages[start:index]
            start = index
    if start < len(messages):
        yield messages[start:]


def _with_free_ids(store: Store, session: int, drafts: Sequence[Draft], listed: _ListOutcome) -> list[Draft]:
    """Return the drafts with another id wherever their own is stored with other content, and with joined prompts."""
    stored = {record.message.id: record.message for record in store.get(session, [_id(draft) for draft in drafts])}
    found: list[Draft] = []
    before: Message | None = None
    for one in drafts:
        id_, message = _id(one), one.message
        known = stored.get(id_)
        if known is not None and content_of(known) != content_of(message):
            listed.renamed[id_] = other_id(message, before.id if before is not None else None)
            message, known = message.replace(id=listed.renamed[id_]), None
        if is_prompt(message):
            message = message.replace(turn_id=prompt_joined(message, before))
        before = known or message
        found.append(one if message is one.message else Draft(message, one.counter, one.tokens))
    return found


def _id(draft: Draft) -> str:
    assert draft.message.id is not None
    return draft.message.id
