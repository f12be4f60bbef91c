"""What the inspector reads and changes: the conversations and requests of one user. All of it runs in threads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from shared_core.display import on_one_line
from shared_core.doors.openai_proxy.inspector.request_ring import RequestRing, SeenRequest
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.serving.erasing import DAMAGED, Erasing, StaleConfirmationError, readable
from shared_core.doors.view import gather
from shared_core.doors.view.page_data import WORDS, SentPrompt, sent_prompt
from shared_core.errors import UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.pool import SessionPool
from shared_core.prompt.hits import Hit, Reason, without_weak
from shared_core.prompt.report import ReportLine
from shared_core.records import MAIN
from shared_core.store import Store

__all__ = ["LiveSessions"]

LISTED = 500
"""The most conversations that are listed, those added to last."""

MOST_MESSAGES = 20_000
"""The messages of the longest conversation that is shown. Of a longer one, `infinite-memory view` writes a page."""

QUESTIONS = 5
"""How many of the newest questions of each branch get their prompt built."""

FOUND = 20
"""The most messages that a search finds, in each session and altogether."""

SEARCHED = 20
"""How many conversations without a user are searched, those added to last: there is no index of all of them."""

SHOWN = 50
"""The most messages that are shown before they are erased."""

PREVIEW = 300
"""Characters of a message that are shown of it."""


class LiveSessions:
    """Reads and changes the conversations of a user, and of nobody else.

    A conversation of another user is told from one that does not exist by nothing.

    Args:
        pool: the memories.
        ring: the requests.
    """

    def __init__(self, pool: SessionPool, ring: RequestRing) -> None:
        # Memories of its own: those of the conversations keep the branches that they have checked out.
        self._pool, self._ring = pool.sharing(size=8, **pool.settings), ring
        self._erasing = Erasing()

    # Reading

    def sessions(self, user: str | None) -> dict[str, Any]:
        """Return the conversations of a user, the one added to last first."""
        found = self._pool.sessions(user, LISTED + 1)
        return {"sessions": [one.to_dict() for one in found[:LISTED]], "more": len(found) > LISTED}

    def session(self, user: str | None, name: str, *, also: Sequence[str]) -> dict[str, Any]:
        """Return the data of a page that shows a conversation, with the prompts that were sent."""
        key = self._key(user, name)
        messages = self._store(user).stats(key)["messages"]
        if messages > MOST_MESSAGES:
            text = f"this conversation has {messages:,} messages; infinite-memory view --out FILE writes a page of it"
            raise Refused(413, text, code="too_long")
        sent: dict[str, SentPrompt] = {}
        for one in self._kept(user):  # newest first
            question = _question(one)
            if one.session == name and question is not None and question.id is not None:
                sent.setdefault(question.id, one.prompt)
        return gather(
            self._store(user), session_id=name, user_id=user, questions=QUESTIONS, also=also, sent=sent,
            **{**self._pool.settings, "on_event": None},  # nobody sends these prompts
        )  # fmt: skip

    def search(self, user: str | None, query: str) -> dict[str, Any]:
        """Return the messages of all conversations of a user that match a query, the closest first.

        Those that match weakly are left out if others do not. Without a user, the newest conversations are searched.
        """
        there = self._pool.sessions(user, 1 if user is not None else SEARCHED)
        scope: Literal["session", "user"] = "session" if user is None else "user"
        hits: list[Hit] = []
        for info in there:
            with self._reading(user, info.session_id) as memory:
                hits += memory.search(query, FOUND, scope=scope, repeats=1)
        good = without_weak(hits)
        if user is None:  # scores of two searches cannot be compared
            good.sort(key=lambda hit: -hit.closeness)
        return {"found": [_hit(hit) for hit in good[:FOUND]]}

    # Requests

    def requests(self, user: str | None, after: int) -> dict[str, Any]:
        """Return the requests of a user, newest first, unless none of them was seen or changed after a stamp."""
        kept = self._kept(user)  # first, as another process may have forgotten something
        stamp = max((one.stamp for one in kept), default=0)
        if stamp and stamp <= after:
            return {"stamp": stamp}
        return {"stamp": stamp, **WORDS, "requests": [_summary(one) for one in kept]}

    def request(self, user: str | None, number: int) -> dict[str, Any]:
        """Return a request with the whole report on its prompt."""
        one = next((one for one in self._kept(user) if one.number == number), None)
        if one is None:
            raise Refused(404, "there is no such request; the server keeps the newest ones only")
        return {**_summary(one), **sent_prompt(one.prompt)}

    def _kept(self, user: str | None) -> list[SeenRequest]:
        """Return the requests of a user, newest first, without those that show what has been forgotten since."""
        seen = self._ring.of(user)
        gone: set[int] = set()
        for session in {one.session for one in seen if one.session is not None}:
            of_it = [one for one in seen if one.session == session]
            gone |= self._stale(user, session, of_it)
        if gone:
            self._ring.drop(user, gone)
            seen = self._ring.of(user)  # another one counts as changed now
        return [one for one in seen if one.number not in gone]

    def _stale(self, user: str | None, session: str, seen: Sequence[SeenRequest]) -> set[int]:
        """Return the numbers of requests of a conversation whose reports show a message that is forgotten."""
        key = self._store(user).session(user, session)
        if key is None:  # renamed, or removed
            return {one.number for one in seen}
        ids = {one.number: {line.id for line in one.prompt.report.lines if line.id is not None} for one in seen}
        forgotten = self._store(user).are_forgotten(key, set().union(*ids.values()))
        return {number for number, shown in ids.items() if shown & forgotten}

    # Changing

    def forget(
        self, user: str | None, session: str, ids: Sequence[str] | None, confirmation: str | None
    ) -> dict[str, Any]:
        """Erase messages for good, or all of a conversation, or show what would be erased.

        Args:
            user: whose conversation it is.
            session: the conversation.
            ids: the messages. None: all of it, with its branches.
            confirmation: what the dry run gave. None: this is the dry run.
        """
        which: dict[str, Any] = {"session": True} if ids is None else {"ids": list(ids)}
        with self._reading(user, session) as memory:
            try:
                result, fits = self._erasing.forget(memory, which, confirmation)
            except UnknownReferenceError:
                raise Refused(404, "there is no such message") from None
            except StaleConfirmationError as error:
                raise Refused(409, f"{error}; look at it again", code="stale_confirmation") from None
            if confirmation is None:
                shown, stay = ([_preview(memory, id) for id in some[:SHOWN]] for some in (result.ids, result.stay))
                return {"messages": len(result.ids), "shown": shown, "stay": stay, "confirmation": fits}
        self._kept(user)
        return {"erased": len(result.ids), "scrubbed": result.scrubbed, "reason": result.reason}

    # Finding

    def _store(self, user: str | None) -> Store:
        return self._pool.store.for_user(user)

    def _key(self, user: str | None, session: str) -> int:
        key = self._store(user).session(user, session)
        if key is None:
            raise Refused(404, "there is no such session")
        return key

    @contextmanager
    def _reading(self, user: str | None, session: str) -> Iterator[InfiniteMemory]:
        """Lend the memory of a conversation that exists, with `main` checked out."""
        self._key(user, session)
        with self._pool.use(session, user) as memory:
            memory.checkout(MAIN)
            yield memory


def _question(seen: SeenRequest) -> ReportLine | None:
    """Return the line of the question in a report."""
    return next((line for line in seen.prompt.report.lines if line.reason is Reason.QUESTION), None)


def _summary(seen: SeenRequest) -> dict[str, Any]:
    """Return a request without the lines of its report."""
    report, question = seen.prompt.report, _question(seen)
    return {
        "number": seen.number,
        "stamp": seen.stamp,
        "at": seen.prompt.at.isoformat(),
        "model": seen.prompt.model,
        "session": seen.session,
        "seconds": seen.seconds,
        "question": on_one_line(question.text[:PREVIEW]) if question is not None else "",
        "id": question.id if question is not None else None,
        "recalled": len(report.best),
        "budget": report.budget,
        "total_tokens": report.total_tokens,
        "totals": list(report.totals.values()),
    }


def _hit(hit: Hit) -> dict[str, Any]:
    message = hit.message
    return {
        "session": hit.session_id,
        "id": message.id,
        "role": message.role,
        "name": message.name,
        "at": message.created_at.isoformat() if message.created_at is not None else None,
        "text": message.content[: 20 * PREVIEW],
        "band": hit.band,
    }


def _preview(memory: InfiniteMemory, id: str) -> dict[str, Any]:
    message = readable(memory, id)
    if message is None:
        return {"id": id, "role": None, "text": f"({DAMAGED})"}
    return {"id": id, "role": message.name or message.role, "text": on_one_line(message.content[:PREVIEW])}
