"""Store the conversations of other programs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from shared_core.errors import AmbiguousReferenceError, InputFileError, UnknownReferenceError
from shared_core.messages import Message, content_of
from shared_core.records import MAIN, ROOT, Branch, Draft, Newest, Position, Record, Restored, Segment, title_of
from shared_core.session.paths import Head
from shared_core.session.turns import assign_turns, is_prompt, prompt_joined
from shared_core.sharing.format import LineError
from shared_core.sharing.importer import BATCH, MAX_NAMED, Imported, ImportResult, Job, imported
from shared_core.sharing.readers import Conversation, Entry, Foreign
from shared_core.sharing.session_import import SessionImport, other_id
from shared_core.sharing.transfer import pages
from shared_core.store import Store, give_title

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


def import_conversations(job: Job, foreign: Foreign, entries: Sequence[Entry]) -> list[Imported]:
    """Store conversations, all or none, in one transaction, after all of them have been read.

    Raises:
        InputFileError: a conversation is invalid; nothing is stored.
    """
    read = [_read(one, foreign.format, job) for one in entries]
    total = sum(len(one.nodes) for one in read if isinstance(one, Conversation))
    done = 0
    job.advance(0, total)
    results: list[Imported] = []
    with job.store.transaction():
        for one in read:
            if isinstance(one, ImportResult):
                results.append(Imported(one, None))
                continue
            results.append(_import_conversation(job, foreign, one, lambda more: job.advance(done + more, total)))  # noqa: B023
            done += len(one.nodes)
    return results


def _read(entry: Entry, format: str, job: Job) -> Conversation | ImportResult:
    try:
        return entry.read()
    except InputFileError as error:
        if not job.skip_invalid:
            raise
        target = job.target(entry.id, None)
        return ImportResult(format, target.session_id, target.user_id, title=entry.title, error=str(error))


def _import_conversation(
    job: Job, foreign: Foreign, conversation: Conversation, advance: Callable[[int], None]
) -> Imported:
    target = job.target(conversation.id, None)
    if conversation.id and not conversation.nodes:  # a chat that was opened and left: it needs no session
        done = Imported(ImportResult(foreign.format, target.session_id, target.user_id), None)
    else:
        session = job.store.create_session(*target)
        add = _add_tree if conversation.ends else _add_list
        done = add(job, foreign, conversation, session, advance)
        advance(len(conversation.nodes))
        if conversation.title:
            give_title(job.store, session, title_of(conversation.title))
    about: dict[str, Any] = {"title": conversation.title, "left_out": conversation.left_out_words}
    return done._replace(result=replace(done.result, **about))


def _add_tree(
    job: Job, foreign: Foreign, conversation: Conversation, session: int, advance: Callable[[int], None]
) -> Imported:
    """Add a conversation with branches to a session. Known messages are left as they are."""
    adding = SessionImport(job.store, session, f"import {foreign.name}", job.draft)
    whole, done = _restored(conversation), 0
    try:
        for segment in whole.segments:
            adding.segment(segment)
        for records in pages(whole.records, BATCH):
            stored = adding.look_up([str(record.message.id) for record in records])
            for record in records:
                adding.message(record, (), {}, stored.get(str(record.message.id)))
            done += len(records)
            advance(done)
        for branch in whole.branches:
            adding.branch(branch.name, branch.head)
        adding.set_head(MAIN, None)
        adding.finish()
    except LineError as error:
        raise InputFileError(f"{foreign.name!r}: a message {error}; nothing was stored") from None
    return imported(adding, job.target(conversation.id, None), foreign.format)


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
        joining = message.replace(turn_id=prompt_joined(message, prompts.get(parent)))
        (turn,) = assign_turns([joining], newest, None)
        position = positions[message.id] = Position(segment, depth + 1)
        turns[message.id] = turn if message.role == "user" else newest
        whole = message.replace(turn_id=turn.turn_id)
        if is_prompt(whole):
            prompts[whole.id] = whole
        records.append(Record(whole, position, 0, turn.turn_no))
    segments = tuple(map(Segment, range(len(tips)), parents, tips))
    branches = tuple(Branch(name, positions[at]) for name, at in conversation.ends.items())
    return Restored(segments, tuple(records), branches=branches)


def _add_list(
    job: Job, foreign: Foreign, conversation: Conversation, session: int, advance: Callable[[int], None]
) -> Imported:
    """Add messages with distinct ids to the job's branch.

    A message whose id is stored with other content gets another id, made by `other_id`.
    """
    created = not job.store.state(session).last_seq
    renamed: dict[str, str] = {}
    new = known = forgotten = 0
    at = job.point.at
    for batch in _batches(conversation.messages):
        drafts = _with_free_ids(job.store, session, [job.draft(message) for message in batch], renamed)
        appended = job.store.append(session, job.point.branch, drafts, at=at)
        at = None
        new, forgotten = new + len(appended.added), forgotten + len(appended.forgotten)
        known += len(batch) - len(appended.added) - len(appended.forgotten)
        advance(new + known + forgotten)
    target = job.target(conversation.id, None)
    result = ImportResult(
        foreign.format, target.session_id, target.user_id, new, known, forgotten, renamed,
        head=job.point.branch, created=created,
    )  # fmt: skip
    return Imported(result, Head(job.point.branch) if conversation.nodes else None)


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Yield messages in parts to be stored together."""
    start = 0
    for index, message in enumerate(messages):
        if message.role == "user" and index - start >= BATCH:  # so that no turn is split
            yield messages[start:index]
            start = index
    if start < len(messages):
        yield messages[start:]


def _with_free_ids(store: Store, session: int, drafts: Sequence[Draft], renamed: dict[str, str]) -> list[Draft]:
    """Return the drafts with another id wherever their own is stored with other content, and with joined prompts."""
    stored = {record.message.id: record.message for record in store.get(session, [_id(draft) for draft in drafts])}
    found: list[Draft] = []
    before: Message | None = None
    for one in drafts:
        id_, message = _id(one), one.message
        known = stored.get(id_)
        if known is not None and content_of(known) != content_of(message):
            renamed[id_] = other_id(message, before.id if before is not None else None)
            message, known = message.replace(id=renamed[id_]), None
        if is_prompt(message):
            message = message.replace(turn_id=prompt_joined(message, before))
        before = known or message
        found.append(one if message is one.message else Draft(message, one.counter, one.tokens))
    return found


def _id(draft: Draft) -> str:
    assert draft.message.id is not None
    return draft.message.id
