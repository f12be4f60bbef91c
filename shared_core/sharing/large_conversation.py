"""Store a long conversation of another program while others write: nobody sees it before all of it is there."""

from collections.abc import Iterator
from dataclasses import replace

from shared_core.errors import DuplicateError
from shared_core.messages import Message, content_of
from shared_core.records import Branch, Create, Draft, Newest, Position, Record, Restored, Segment
from shared_core.session.paths import Path, walk
from shared_core.session.turns import assign_turns
from shared_core.sharing.foreign import (
    InsertionPoint,
    Job,
    ListOutcome,
    about_of,
    add_list,
    batches,
    import_conversation,
    list_result,
    merge_conversation,
    restored,
    restored_result,
    with_free_ids,
)
from shared_core.sharing.importer import ATTEMPTS, BATCH, Imported, MetOthersError, NoStageError, Target
from shared_core.sharing.readers import Conversation
from shared_core.sharing.session_tree import SessionTree


def import_large(job: Job, conversation: Conversation, target: Target) -> Imported:
    """Store a conversation as `import_conversation` does, all of it or nothing, while others write.

    If others change what it meets, all of it is done again, and in the end in one transaction.

    Raises:
        InputFileError: the conversation cannot be stored; the store is unchanged.
    """
    for _ in range(ATTEMPTS):
        try:
            done = _by_stages(job, conversation, target)
        except NoStageError:
            break
        except MetOthersError:
            continue
        job.advance(len(conversation.nodes))
        return done._replace(result=replace(done.result, **about_of(conversation)))
    with job.store.transaction():
        return import_conversation(job, conversation, target)


def _by_stages(job: Job, conversation: Conversation, target: Target) -> Imported:
    session = job.store.session(*target)
    if session is not None and not job.store.state(session).last_seq:
        raise NoStageError
    if session is not None and conversation.ends:
        return merge_conversation(job, conversation, target, session)
    stage = job.store.stage()
    if stage is None:
        raise NoStageError
    try:
        if session is not None:
            listed = _ListStage(job, session, stage).add(conversation.messages)
            return list_result(job, conversation, target, listed, created=False)
        done = _filled(job, conversation, target, stage)
        if not job.store.publish({stage: target}):
            raise MetOthersError
        return done
    finally:
        job.store.unstage([stage])


def _filled(job: Job, conversation: Conversation, target: Target, stage: int) -> Imported:
    """Fill a stage that becomes a new session."""
    if not conversation.ends:
        listed = add_list(job._replace(point=InsertionPoint()), stage, conversation.messages)
        return list_result(job, conversation, target, listed, created=True)
    whole = restored(conversation, job.draft)
    for start in range(0, len(whole.records), BATCH):
        records = whole.records[start : start + BATCH]
        job.store.restore(stage, Restored(tuple(_grown(whole.segments, records)), records))
        job.advance(start + len(records))
    job.store.restore(stage, Restored(branches=whole.branches))
    return restored_result(job, conversation, target)


def _grown(segments: tuple[Segment, ...], records: tuple[Record, ...]) -> Iterator[Segment]:
    """Yield the segments of some messages, as deep as these are."""
    tips = {record.position.segment: record.position.depth for record in records}  # the last of each is the deepest
    return (segments[number]._replace(tip=tip) for number, tip in sorted(tips.items()))


class _ListStage:
    """Adds a list of messages to a session that holds something, just as `add_list` does, by way of a stage.

    Args:
        job: what the imports share.
        session: the session's key.
        stage: the key of an empty stage.
    """

    def __init__(self, job: Job, session: int, stage: int) -> None:
        self._job = job
        self._session = session
        self._tree = SessionTree(job.store, session, stage)
        branch, at = job.point
        head = job.store.state(session, branch).head if at is None else at
        if head is None or self._tree.empty:
            raise NoStageError
        self._head = self._end = head
        self._path: Path = walk(head, self._tree.segment)
        self._newest = self._before = self._tree.newest_turn(head)
        self._named = self._own_turn(self._newest)
        self._movable = True
        self._asked = False

    def _own_turn(self, newest: Newest) -> Newest:
        """Return a turn with the number that its messages have; where a merge brought it in, it has another here."""
        found = [] if newest.turn_id is None else self._job.store.get(self._session, [newest.turn_id])
        return newest._replace(turn_no=found[0].turn_no) if found else newest

    def add(self, messages: list[Message]) -> ListOutcome:
        """Add all messages, and make them a part of the session.

        Raises:
            NoStageError: an id is taken twice, which another way of importing tells. Nothing is stored.
            MetOthersError: others changed what it meets. Nothing is stored.
        """
        listed = ListOutcome()
        for batch in batches(messages):
            drafts = with_free_ids(self._job.store, self._session, [self._job.draft(one) for one in batch], listed)
            self._add_batch(drafts, listed)
            self._job.advance(listed.new + listed.known + listed.forgotten)
        with self._job.store.transaction():
            self._graft()
        return listed

    def _add_batch(self, drafts: list[Draft], listed: ListOutcome) -> None:
        store, ids = self._job.store, [str(draft.message.id) for draft in drafts]
        known = {str(record.message.id): record for record in self._tree.get(ids)}
        gone = store.are_forgotten(self._session, ids)
        there = {id_: record for id_, record in known.items() if self._path.covers(record.position)}
        before = {id_: Newest(record.message.turn_id, record.turn_no) for id_, record in there.items()}
        said, new = [], dict[str, Draft]()
        for id_, draft in zip(ids, drafts, strict=True):
            if id_ in known and content_of(known[id_].message) != content_of(draft.message):
                raise NoStageError
            if id_ not in known and id_ not in gone:
                new[id_] = draft
            if id_ in new or id_ in before:
                said.append(draft.message)
        turns = assign_turns(said, self._newest, self._named, before)
        for message, turn in zip(said, turns, strict=True):
            if message.id in new:
                self._put(new[message.id], turn)
        self._movable = self._movable and not before
        listed.new += len(new)
        listed.known += len(known)
        listed.forgotten += len(gone)

    def _put(self, draft: Draft, turn: Newest) -> None:
        message = draft.message
        if message.role == "user":
            self._asked, self._newest, self._named = True, turn, turn
        elif not self._asked and message.role != "system":
            self._movable = False  # it answers what was asked last
        counted = None if draft.counter is None or draft.tokens is None else (draft.counter, draft.tokens)
        self._end = self._tree.next_position(self._end, fork=False)
        self._tree.put(message, self._end, turn, None, counted=counted, picked_from=None, covers=(), vectors=())

    def _graft(self) -> None:
        """Move what was added to the end of the branch as it is now, in a transaction."""
        store, tree = self._job.store, self._tree
        branch, at = self._job.point
        state = store.state(self._session, branch)
        now = state.head if at is None else at
        if now is None or state.epoch != tree.epoch:
            raise MetOthersError
        end = now if self._end == self._head else self._grafted(now)
        if at is not None:
            store.change(self._session, [Create(branch, end)])
        elif end != now:
            store.restore(self._session, Restored(branches=(Branch(branch, end),)))

    def _grafted(self, now: Position) -> Position:
        deeper = now.depth - self._head.depth
        later = self._tree.newest_turn(now).turn_no - self._before.turn_no
        if now != self._head:
            if not self._movable:
                raise MetOthersError
            self._tree.reparent(now, deeper)
        try:
            return self._tree.graft(depth=deeper, turns=later)(self._end)
        except DuplicateError:
            raise MetOthersError from None
