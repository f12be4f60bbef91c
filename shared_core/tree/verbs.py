"""The verbs of the conversation tree: branches and tags here, merges and copies in the files beside this one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import get_args

from shared_core.arguments import function, name_text, one_of, texts, whole_number
from shared_core.errors import DuplicateError, UnknownReferenceError
from shared_core.events.source import EventSource, Watch, reported
from shared_core.plugins.base import Summarizer
from shared_core.plugins.calls import Steps, run_steps
from shared_core.records import MAIN, Branch, Create, Delete, Drop, Move, Put, Rename
from shared_core.session.checkout import Checkout
from shared_core.session.paths import EARLIER, Head, read, resolve
from shared_core.tree import copies, merge, moves
from shared_core.tree.copies import CherryPickResult, Stash
from shared_core.tree.log import Diff, LogEntry, ReflogEntry, lineage
from shared_core.tree.merge import How, MergeResult


def _of_copies(watch: Watch, result: CherryPickResult | MergeResult) -> None:
    watch.told(result.messages)


def _of_stash(watch: Watch, result: Stash | None) -> None:
    if result is not None:
        watch.fields.update(ids=result.ids, count=len(result.ids))


class TreeVerbs:
    """Branches, tags, merges, copies and stashes of one conversation; no verb changes a stored message.

    A reference names a position of the tree: a branch, a tag, a message's id or the unique beginning of one, or
    `main@{1}` for where `main` ended before it was last moved.
    """

    _checkout: Checkout
    _summarizer: Summarizer | None
    _events: EventSource

    # Branches and tags

    @property
    def branch(self) -> str | None:
        """The branch checked out; None: the head is detached at a message, until one is added."""
        return self._checkout.live.head.branch

    def branches(self) -> list[Branch]:
        """Return all branches of the session, in order of creation."""
        session = self._checkout.live.key
        return self._checkout.store.branches(session) if session is not None else []

    @reported("fork")
    def fork(self, name: str, at: str | None = None) -> None:
        """Create a branch and check it out; what is said there from now on is not seen from the other branches.

        Args:
            name: the new branch.
            at: the last message the branches share, or another reference; None: here.

        Raises:
            DuplicateError: a branch or a tag has the name.
            UnknownReferenceError: there is no such reference.
        """
        _check_name(name)
        checkout = self._checkout
        with checkout.lock:
            if at not in (None, MAIN) and checkout.live.key is None:
                raise UnknownReferenceError(f"no branch or message {at!r}: nothing is stored yet")
            position = checkout.position_of(at)
            with self._names_in_error(name):
                checkout.store.change(checkout.live.create(), [Create(name, position)])
            checkout.stand(Head(name))

    def checkout(self, reference: str) -> None:
        """Check out a branch. At any other reference the head is detached; the next message added opens a branch.

        Raises:
            UnknownReferenceError: there is no such reference.
            AmbiguousReferenceError: several messages begin so.
        """
        checkout = self._checkout
        with checkout.lock:
            session = checkout.live.key
            if session is None and reference != MAIN:
                raise UnknownReferenceError(f"no branch or message {reference!r}: nothing is stored yet")
            checkout.stand(Head(MAIN) if session is None else resolve(checkout.store, session, reference))

    def rename_branch(self, name: str, to: str) -> None:
        """Rename a branch; its reflog goes along. Other objects that have it checked out lose it.

        Raises:
            DuplicateError: the name is taken.
            UnknownReferenceError: there is no such branch.
            ValueError: the branch is `main`, where every memory begins, or the new name is empty.
        """
        _check_name(to)
        _refuse_main(name, "renamed")
        checkout = self._checkout
        with checkout.lock:
            with self._names_in_error(to):
                checkout.store.change(checkout.existing(), [Rename(name, to)])
            if checkout.live.head.branch == name:
                checkout.live.head = Head(to)

    @reported("delete_branch")
    def delete_branch(self, name: str) -> None:
        """Delete a branch. Its messages stay until they are forgotten; `fork(…, at="name@{1}")` brings it back.

        Raises:
            UnknownReferenceError: there is no such branch.
            ValueError: the branch is `main`, or the one checked out.
        """
        _refuse_main(name, "deleted")
        checkout = self._checkout
        with checkout.lock:
            if checkout.live.head.branch == name:
                raise ValueError(f"this memory stands on {name!r}; check out another branch before you delete it")
            checkout.store.change(checkout.existing(), [Delete(name)])

    def tag(self, name: str, at: str | None = None) -> None:
        """Name a position for good; unlike a branch, a tag never moves.

        Args:
            name: no branch and no other tag has it.
            at: a reference; None: here.

        Raises:
            DuplicateError: the name is taken.
            UnknownReferenceError: there is no such reference.
        """
        _check_name(name)
        checkout = self._checkout
        with checkout.lock, self._names_in_error(name):
            # Where nothing is stored, only the beginning can be tagged; a refused reference must not create a session.
            session = checkout.live.create() if at in (None, MAIN) else checkout.stored()
            checkout.store.change(session, [Put("tag", name, checkout.position_of(at))])

    def tags(self) -> list[Branch]:
        """Return all tags, in order of creation, as pairs of name and position."""
        session = self._checkout.live.key
        refs = self._checkout.store.refs(session, "tag") if session is not None else []
        return [Branch(ref.name, ref.position) for ref in reversed(refs) if ref.position is not None]

    def delete_tag(self, name: str) -> None:
        """Delete a tag; UnknownReferenceError if there is none of this name."""
        checkout = self._checkout
        with checkout.lock:
            session = checkout.existing()
            refs = checkout.store.refs(session, "tag")
            number = next((ref.number for ref in refs if ref.name == name), None)
            if number is None:
                names = [ref.name for ref in reversed(refs)]
                known = ", ".join(map(repr, names)) or "none yet"
                raise UnknownReferenceError(f"no tag {name!r}; tags: {known}", candidates=names)
            checkout.store.change(session, [Drop(number)])

    @contextmanager
    def _names_in_error(self, name: str) -> Iterator[None]:
        """List the names that are taken in the error for one of them."""
        try:
            yield
        except DuplicateError:
            used = [tag.name for tag in self.tags()]
            taken = ", ".join(map(repr, [*(branch.name for branch in self.branches()), *used]))
            kind = "tag" if name in used else "branch"
            raise DuplicateError(f"there is already a {kind} {name!r}; choose a name other than {taken}") from None

    # Moves

    @reported("reset")
    def reset(self, to: str) -> None:
        """Let the branch end at another position. Nothing is lost: `reset("main@{1}")` undoes it.

        A detached head just goes there.

        Raises:
            UnknownReferenceError: there is no such reference.
        """
        checkout = self._checkout
        with checkout.lock:
            session = checkout.existing()
            position = checkout.position_of(to)
            branch = checkout.live.head.branch
            if branch is None:
                checkout.stand(Head(None, position))
                return
            checkout.store.change(session, [Move(branch, position, f"reset to {to}")])
            checkout.stand(Head(branch))

    @reported("make_main")
    def make_main(self) -> None:
        """Let the line that is checked out be `main` from now on, and check `main` out there.

        What was `main` keeps its messages under the name of the branch that was checked out: the two names swap their
        ends, in one transaction. If the head is detached, the old line gets an unused name, unless all of it is part
        of this line. On `main`, nothing changes.
        """
        self._checkout.until_fresh(lambda: moves.make_main(self._checkout))

    @reported("rewind")
    def rewind(self, after: str | None = None) -> str:
        """Let the branch end after a message from now on; what came later keeps a branch of its own.

        Args:
            after: the last message that stays, or another reference on this branch. None: nothing stays.

        Returns:
            The name of the branch that keeps what came later: this branch's with an unused number, such as `main-2`.
            If nothing comes later, nothing changes, and this is the name of the branch itself.

        Raises:
            UnknownReferenceError: there is no such reference on this branch.
            ValueError: a merge brought it in, or the head is detached.
        """
        return self._checkout.until_fresh(lambda: moves.rewind(self._checkout, after))

    @reported("undo")
    def undo(self) -> ReflogEntry:
        """Take back the last verb that moved the branch that is checked out, or the last deletion of a branch.

        The branch ends where it ended before the verb: a merge, cherry-pick, rebase, reset, stash or `undo`. What the
        verb added, and what was said since, stays stored, and another `undo` brings it back. The copies of a stash
        that was popped are stashed again.

        Returns:
            The new line of the reflog; its `reference` names where the branch ended until now.

        Raises:
            UnknownReferenceError: there is nothing to undo.
            StaleHeadError: another writer added to the branch meanwhile; nothing was changed.
        """
        checkout = self._checkout
        with checkout.lock:
            branch = moves.undo(checkout)
        return self.reflog(branch, 1)[0]

    def reflog(self, branch: str | None = None, limit: int = 100) -> list[ReflogEntry]:
        """Return what verbs did to branches, the newest first; messages that were just added are not listed.

        Args:
            branch: only this one; None: all, deleted ones too.
            limit: at most this many moves.
        """
        whole_number("limit", limit, least=0)
        checkout = self._checkout
        with checkout.lock:
            session = checkout.live.key
            refs = checkout.store.refs(session, "move", branch, limit) if session is not None else []
            known = lineage(checkout)
            numbers: dict[str, int] = {}
            lines = []
            for ref in refs:
                number = numbers[ref.name] = numbers.get(ref.name, 0) + 1
                before, after = (known.message_at(position) for position in (ref.base, ref.position))
                lines.append(
                    ReflogEntry(
                        f"{ref.name}@{{{number}}}", ref.name, ref.note,
                        before.message.id if before else None, after.message.id if after else None,
                        datetime.fromisoformat(ref.created_at).replace(tzinfo=UTC), ref.position is None,
                    )
                )  # fmt: skip
            return lines

    def log(self, limit: int = 50) -> list[LogEntry]:
        """Return the newest messages of all branches as nodes with their parents, newest first, for a drawing.

        Args:
            limit: at most this many messages; merges among them come on top.
        """
        whole_number("limit", limit, least=0)
        checkout = self._checkout
        with checkout.lock:
            if checkout.live.key is None:
                return []
            heads = {branch.name: branch.head for branch in self.branches()}
            return lineage(checkout).log(checkout.live.stored_last(limit), heads, dict(self.tags()))

    def diff(self, a: str, b: str | None = None) -> Diff:
        """Return what two positions do not share, and the newest message they do.

        Args:
            a: a reference.
            b: another reference; None: here.

        Raises:
            UnknownReferenceError: there is no such reference.
        """
        checkout = self._checkout
        with checkout.lock:
            session = checkout.existing()
            paths = [checkout.live.path_to(checkout.position_of(reference)) for reference in (a, b)]
            ids = [
                tuple(record.message.id or "" for record in read(checkout.store, session, one.without(other)))
                for one, other in (paths, paths[::-1])
            ]
            return Diff(checkout.newest_shared(*paths), *ids)

    # Merges

    def merge(
        self, source: str, how: How = "auto", *, prompt: str | None = None, summarizer: Summarizer | None = None
    ) -> MergeResult:
        """Bring the messages of another branch to this one, all at once or not at all. The source stays.

        Merging again what was merged before changes nothing, and the result says so.

        Args:
            source: a reference.
            how: `"fast-forward"`: this branch, which must have no messages of its own, ends where the source does.
                `"full"`: all messages that only the source has come before the merge, in every prompt and in recall.
                `"squash"`: only a question and its answer are added, which sum up the source. `"three-way"`: a full
                merge, followed by a question and an answer that say what each side added and what they contradict;
                nobody decides who is right. `"auto"`: fast-forward if possible, else full.
            prompt: the question of a squash or three-way merge; None: a plain one.
            summarizer: writes the answer of a squash or three-way merge. It is called as often as the messages need,
                with at most its `input_tokens` each time: with the answer so far and the next messages, of which the
                last is the question. None: the memory's own; if it has none, the answer lists messages.

        Raises:
            UnknownReferenceError: there is no such reference.
            ValueError: a fast-forward is impossible; or a prompt or summarizer is given where none is used; or the
                prompt leaves no room for messages; or the summarizer returned nothing. Nothing is changed.
            TypeError: the summarizer is a coroutine function, which only `AsyncInfiniteMemory` can await.
            Exception: whatever the summarizer raises.
        """
        return run_steps(self._merge_steps(source, how, prompt=prompt, summarizer=summarizer))

    def _merge_steps(
        self, source: str, how: How = "auto", *, prompt: str | None = None, summarizer: Summarizer | None = None
    ) -> Steps[MergeResult]:
        one_of("how", how, get_args(How))
        if summarizer is not None:
            function("summarizer", summarizer, "(previous_summary, messages) -> str")
        if how not in ("squash", "three-way") and (prompt is not None or summarizer is not None):
            raise ValueError(f"how={how!r} writes no answer: prompt and summarizer are for 'squash' and 'three-way'")
        steps = merge.merge(self._checkout, source, how, summarizer or self._summarizer, prompt=prompt)
        return self._events.steps(self._events.watch("merge"), steps, _of_copies)

    def sources(self, id: str) -> list[str]:
        """Return the ids a message was made from: a copy's original, or all that a merge's answer sums up; else none.

        Raises:
            UnknownReferenceError: there is no such message.
        """
        return merge.sources(self._checkout, id)

    # Copies

    @reported("cherry_pick", _of_copies)
    def cherry_pick(self, ids: str | Sequence[str]) -> CherryPickResult:
        """Copy messages to the branch, turn by turn in the order of storing, under new ids; all of them or none.

        A tool result brings its call, and a call all its results. An answer without its question joins the question's
        turn if that is on the branch, else the newest turn. Messages that are on the branch already are not copied.

        Args:
            ids: ids of messages of this session, or unique beginnings of them.

        Raises:
            UnknownReferenceError: an id is not stored.
        """
        return copies.cherry_pick(self._checkout, [ids] if isinstance(ids, str) else texts("ids", ids))

    @reported("rebase", _of_copies)
    def rebase(self, onto: str, since: str | None = None) -> CherryPickResult:
        """Let the branch end at another position, followed by copies of what only the branch has.

        `reset("name@{1}")` undoes it. A branch that stands behind that position is just moved there.

        Args:
            onto: a reference.
            since: copy only the messages after this reference; None: all.

        Raises:
            UnknownReferenceError: there is no such reference.
            ValueError: the head is detached.
        """
        return copies.rebase(self._checkout, onto, since)

    @reported("stash", _of_stash)
    def stash(self, since: str | None = None, note: str = "") -> Stash | None:
        """Take the end of the branch away and keep it under number 0; None if there is nothing to take.

        Stashes belong to the session: they outlive this object.

        Args:
            since: the last message that stays, or another reference on this branch; None: take the newest user message
                and everything after it.
            note: your own words, shown with the stash.

        Raises:
            UnknownReferenceError: there is no such reference on this branch.
            ValueError: a merge brought it in.
        """
        return copies.stash(self._checkout, since, note)

    def stashes(self) -> list[Stash]:
        """Return all stashes, the newest first."""
        return copies.stashes(self._checkout)

    @reported("stash_pop", _of_copies)
    def stash_pop(self, number: int = 0, *, keep: bool = False) -> CherryPickResult:
        """Add copies of a stash's messages to the branch and drop the stash, both or neither.

        Args:
            number: which stash; 0 is the newest.
            keep: whether the stash stays.

        Raises:
            UnknownReferenceError: there is no such stash.
        """
        return copies.apply_stash(self._checkout, whole_number("number", number, least=0), drop=not keep)

    def stash_drop(self, number: int = 0) -> None:
        """Drop a stash; its messages stay until they are forgotten. UnknownReferenceError if there is none."""
        copies.drop_stash(self._checkout, whole_number("number", number, least=0))


def _check_name(name: str) -> None:
    if not name_text("name", name).strip():
        raise ValueError(f"name={name!r}: a branch or a tag needs a name")
    if EARLIER.fullmatch(name):
        raise ValueError(f"name={name!r}: this is how an earlier end of a branch is written; choose another name")


def _refuse_main(name: str, done: str) -> None:
    if name_text("name", name) == MAIN:
        raise ValueError(
            f"{MAIN!r} is where every memory begins and cannot be {done}; make another branch main, or rewind it"
        )
