"""The tools that read: search, recall, read, log and sessions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from shared_core.display import counted
from shared_core.doors.mcp_server.conversations import Conversations
from shared_core.doors.mcp_server.fenced_records import (
    CUT,
    Packed,
    Said,
    in_utc_or_first,
    pack,
    quoted,
    quoted_name,
    said_in,
)
from shared_core.doors.mcp_server.limits import (
    MOST_BRANCHES,
    BranchName,
    MaxTokens,
    MessageId,
    Question,
    RoleName,
    Scope,
    SessionName,
    When,
)
from shared_core.doors.mcp_server.tool_results import (
    Log,
    LogAnswer,
    Records,
    RecordsAnswer,
    SessionRecord,
    Sessions,
    SessionsAnswer,
    answer,
    records_of,
)
from shared_core.errors import BudgetError, UnknownReferenceError
from shared_core.index.text import language_of, terms
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.base import TokenCounter
from shared_core.prompt.context import Context, ReportLine
from shared_core.prompt.hits import Hit, Kind, Reason
from shared_core.prompt.template import speaker
from shared_core.recall.excerpts import excerpt
from shared_core.records import MAIN, SessionInfo

__all__ = ["ReadTools", "branch_names", "with_notes"]

EXCERPT_TOKENS = 150
"""The size of a passage that stands for a long message among several."""

RANKED = 50
"""The results of a search that say which conversation a message of another one belongs to."""


class ReadTools:
    """The tools that change nothing. Their answers are bounded, and say what was cut.

    Args:
        conversations: lends the memories of the user who calls.
    """

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    def search(
        self, query: Question, top_k: Annotated[int, Field(ge=1, le=50)] = 10, since: When = None, until: When = None,
        role: RoleName = None, scope: Scope = "session", session: SessionName = None, branch: BranchName = None,
        max_tokens: MaxTokens = 2_000,
    ) -> RecordsAnswer:  # fmt: skip
        """Find messages that match a query by words or meaning, with ids, dates and scores.

        Use recall to answer a question. Long messages are shown as excerpts; read shows them whole.
        """
        if scope == "user":
            self._conversations.require_user()
        with self._conversations.reading(session, branch) as memory:
            hits = memory.search(query, top_k, since=since, until=until, role=role, scope=scope, repeats=1)
            home = memory.session_id
        words = [*terms(query, language_of(query))]
        packed = self._pack([self._found(hit, words, home) for hit in hits], max_tokens)
        notes = [f"top_k={top_k} reached: there may be more"] if len(hits) == top_k else []
        return self._records(packed, notes, max_tokens, nothing="nothing matches; log lists the newest messages")

    def recall(
        self, question: Question, scope: Scope = "session", session: SessionName = None, branch: BranchName = None,
        max_tokens: MaxTokens = 1_000,
    ) -> RecordsAnswer:  # fmt: skip
        """Recall what was said that helps to answer a question, as records between fences, oldest first.

        They are the messages that match, the user's standing wishes that bear on it, and the newest messages in the
        room that is left. Each record says why it is there.
        """
        with self._conversations.reading(session, branch, of_user=scope == "user") as memory:
            context = _prompt(memory, question, max_tokens)
            said = [*_recalled(context, memory, question, wide=scope == "user"), *_others(context, memory.session_id)]
        report = context.report
        packed = self._pack(said, max_tokens)
        unfit = sum(one.kind is Kind.RECALLED and one.reason is Reason.NO_ROOM for one in report.lines)
        packed = replace(packed, left_out=packed.left_out + unfit)
        return self._records(packed, report.degraded, max_tokens, nothing="nothing was said yet; remember stores it")

    def read(
        self, id: MessageId, before: Annotated[int, Field(ge=0, le=50)] = 2,
        after: Annotated[int, Field(ge=0, le=50)] = 2,
        offset: Annotated[int, Field(ge=0, description="Where to begin in the message, in characters.")] = 0,
        session: SessionName = None, branch: BranchName = None, max_tokens: MaxTokens = 4_000,
    ) -> RecordsAnswer:  # fmt: skip
        """Read a message whole, with the messages before and after it on the branch.

        The message itself takes precedence; a long one is read in parts, with offset.
        """
        with self._conversations.reading(session, branch) as memory:
            around = memory.messages(replaced=True).around(id, before=before, after=after)
            home = memory.session_id
        said = [said_in(message, home, order=order) for order, message in enumerate(around.messages)]
        own = said[around.at]
        if offset >= len(own.text) > 0:
            raise ValueError(f"offset={offset}: message {own.id!r} has {len(own.text):,} characters")
        shown = replace(own, text=own.text[offset:], part=offset > 0)
        rest = sorted(said[: around.at] + said[around.at + 1 :], key=lambda one: abs(one.order - own.order))
        packed = pack([shown, *rest], max_tokens, self._conversations.counter)
        return self._records(packed, _how_to_go_on(packed, own, offset), max_tokens)

    def log(
        self, limit: Annotated[int, Field(ge=1, le=100)] = 20, session: SessionName = None, branch: BranchName = None,
        max_tokens: MaxTokens = 2_000,
    ) -> LogAnswer:  # fmt: skip
        """List the newest messages of a branch, oldest first, and the branches that there are.

        Long messages are cut; read shows them whole, and what was said before the first one.
        """
        with self._conversations.reading(session, branch) as memory:
            newest, branches = memory.newest(limit), memory.branches()
            standing, home = memory.branch or MAIN, memory.session_id
        said = [said_in(message, home, order=order) for order, message in enumerate(newest)]
        counter = self._conversations.counter
        names, notes = branch_names((one.name for one in branches), max_tokens // 2, counter)
        listed = f"\n{_listed(names)}" if names else ""
        packed = self._pack(said[::-1], max_tokens - counter(listed), most_each=2 * EXCERPT_TOKENS)
        text = f"{packed.text or 'nothing was said yet; remember stores it'}{listed}"
        notes += self._notes(packed, max_tokens)
        data = Log(
            records=records_of(packed), tokens=counter(text), left_out=packed.left_out, notes=notes, branch=standing,
            branches=names,
        )  # fmt: skip
        return answer(data, with_notes(text, notes))

    def sessions(self, limit: Annotated[int, Field(ge=1, le=100)] = 20) -> SessionsAnswer:
        """List the conversations of the user, the one added to last first."""
        found = self._conversations.sessions(limit + 1)
        notes = [f"only the newest {limit} are listed: raise limit"] if len(found) > limit else []
        shown = [_session_record(info) for info in found[:limit]]
        lines = [
            f"- {quoted_name(one.session)}: {counted(one.messages, 'message')}, {one.first[:10]} to {one.last[:10]}: "
            f"{quoted_name(one.title or '')}"
            for one in shown
        ]
        data = Sessions(sessions=shown, notes=notes)
        text = "\n".join(["<records>", data.about, *lines, "</records>"]) if lines else "there are no conversations yet"
        return answer(data, with_notes(text, notes))

    # Records

    def _found(self, hit: Hit, words: Sequence[str], home: str) -> Said:
        said, counter = said_in(hit.message, hit.session_id), self._conversations.counter
        passage = excerpt(said.text, words, EXCERPT_TOKENS, counter, len(said.text) // 4)
        return replace(
            said, text=said.text if passage is None else passage, part=passage is not None, score=hit.score,
            found_by=hit.source, elsewhere=hit.session_id != home,
        )  # fmt: skip

    def _pack(self, ranked: Sequence[Said], max_tokens: int, *, most_each: int | None = None) -> Packed:
        return pack(ranked, max_tokens, self._conversations.counter, most_each=most_each)

    def _records(
        self, packed: Packed, notes: Iterable[str], max_tokens: int, *, nothing: str = "there is nothing to read"
    ) -> RecordsAnswer:
        notes = [*notes, *self._notes(packed, max_tokens)]
        data = Records(records=records_of(packed), tokens=packed.tokens, left_out=packed.left_out, notes=notes)
        return answer(data, with_notes(packed.text or nothing, notes))

    def _notes(self, packed: Packed, max_tokens: int) -> list[str]:
        if not packed.left_out:
            return []
        return [f"{packed.left_out} more did not fit in max_tokens={max_tokens}: raise it, or ask for less"]


def with_notes(text: str, notes: Iterable[str]) -> str:
    """Return a text with notes below it, each on a line of its own."""
    return "\n".join([text, *(f"note: {quoted(' '.join(note.split()))}" for note in notes)])


def branch_names(names: Iterable[str], max_tokens: int, counter: TokenCounter) -> tuple[list[str], list[str]]:
    """Return the names of branches to list, in at most so many tokens, and a note if there are more."""
    every = [*names]
    shown = every[:MOST_BRANCHES]
    while shown and counter(f"\n{_listed(shown)}") > max_tokens:
        shown.pop()
    more = len(every) - len(shown)
    return shown, [f"{more} more {'branch is' if more == 1 else 'branches are'} not listed"] if more > 0 else []


def _listed(branches: Iterable[str]) -> str:
    return f"branches: {', '.join(repr(quoted_name(one)) for one in branches)}"


def _session_record(info: SessionInfo) -> SessionRecord:
    return SessionRecord(
        session=info.session_id, messages=info.messages, branches=info.branches, first=info.first.isoformat(),
        last=info.last.isoformat(), title=None if info.title is None else quoted(info.title),
    )  # fmt: skip


def _how_to_go_on(packed: Packed, own: Said, offset: int) -> list[str]:
    """Return how to read what is left of a message that is too long for one answer."""
    shown = next((one.text for one in packed.said if one.id == own.id), None)
    if shown is None or shown == own.text[offset:]:
        return []
    end = offset + len(shown.removesuffix(CUT))
    return [f"characters {offset:,} to {end:,} of {len(own.text):,}: read(id={own.id!r}, offset={end}) goes on"]


# Recall


def _prompt(memory: InfiniteMemory, question: str, max_tokens: int) -> Context:
    """Return the prompt for a question, in which all but the question and what is always sent takes so many tokens."""
    room = max_tokens + memory.count(Message.user(question))
    try:
        context = memory.context(question, max_tokens=room, reserve_tokens=0)
    except BudgetError as error:
        return memory.context(question, max_tokens=room + error.needed, reserve_tokens=0)
    always = context.report.totals[Kind.SYSTEM]
    return memory.context(question, max_tokens=room + always, reserve_tokens=0) if always else context


def _recalled(context: Context, memory: InfiniteMemory, question: str, *, wide: bool) -> Iterator[Said]:
    """Yield what a prompt recalls, standing facts first, then best first."""
    lines = [line for line in context.report.included if line.kind is Kind.RECALLED and line.id is not None]
    lines.sort(key=lambda line: -(line.score or 0.0))
    of_others: dict[tuple[str | None, object], Hit] = {}
    if wide and lines:
        hits = [hit for hit in memory.search(question, RANKED, scope="user") if hit.session_id != memory.session_id]
        of_others = {(hit.message.id, hit.message.created_at): hit for hit in hits}
    for line in lines:
        own, hit = _own(memory, line), of_others.get((line.id, line.at))
        if own is not None:
            yield _of_line(line, own, memory.session_id)
        elif hit is not None:
            yield replace(_of_line(line, hit.message, hit.session_id), elsewhere=True)
        else:
            yield replace(_of_line(line, None, None), elsewhere=True)


def _own(memory: InfiniteMemory, line: ReportLine) -> Message | None:
    """Return the message of a line if this conversation holds it; one of another may have the same id."""
    try:
        message = memory.get(line.id or "")
    except UnknownReferenceError:
        return None
    return message if message.created_at == line.at else None


def _others(context: Context, session: str) -> Iterator[Said]:
    """Yield what a prompt holds besides: what is pinned, then the newest messages, newest first."""
    sent = {message.id: message for message in context.messages}
    kept = [line for line in context.report.included if line.id is not None and line.role != "system"]
    pinned = [line for line in kept if line.kind is Kind.SYSTEM]
    window = [line for line in kept if line.kind is Kind.WINDOW]
    for order, line in enumerate([*pinned, *window]):
        yield replace(_of_line(line, sent.get(line.id), session), order=-order)


def _of_line(line: ReportLine, message: Message | None, session: str | None) -> Said:
    """Return a line of a report as a record; the message says who speaks."""
    role = line.role or "user"
    return Said(
        id=line.id or "", session=session, role=role, speaker=role if message is None else speaker(message),
        at=in_utc_or_first(line.at), text=line.text, part=line.part,
        score=line.score, why=line.reason.why,
    )  # fmt: skip
