"""InfiniteMemory: keeps everything ever said in a chat and builds, for each question, the best prompt that fits."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from shared_core.arguments import a_name, one_of, whole_number
from shared_core.base import Embedder, TokenCounter
from shared_core.embedders import as_embedder
from shared_core.errors import UnknownReferenceError
from shared_core.forget import ForgetResult, forget, select
from shared_core.history import FollowedHistory, Follower
from shared_core.lifecycle import fork_safe_lock
from shared_core.messages import Message, Role, given_messages, in_utc
from shared_core.paths import Head, read
from shared_core.pipeline import Ask, AskSteps, IndexSteps, Progress, PromptBuilder, SearchSteps, SummarySteps, drive
from shared_core.prompt.assembler import Assembler, Placement
from shared_core.prompt.context import Context
from shared_core.prompt.frame import (
    Framer,
    GroundingOverflow,
    KeepGrounding,
    OnOverflow,
    SummaryPlacement,
    render_grounding,
    with_grounding,
)
from shared_core.prompt.template import RecallTemplate
from shared_core.prompt.window import Fill
from shared_core.recall.embedding import EmbedText
from shared_core.recall.ranking import ScoredMessage
from shared_core.recall.scope import Filter, RecallUnit
from shared_core.recall.search import RecallRules, RecallScope, RecallTools, Searcher
from shared_core.recall.signals import Ranking
from shared_core.records import MAIN, Summary
from shared_core.session import Checkout, LiveSession, Sizer, Writer
from shared_core.sharing.files import FileVerbs
from shared_core.store import Store
from shared_core.stores import open_store
from shared_core.summaries.requests import AnySummarizer, SummaryRules
from shared_core.summaries.rolling import RollingSummary
from shared_core.summaries.wording import SummaryTemplate
from shared_core.tokens import as_counter, message_tokens
from shared_core.tree.verbs import TreeVerbs

__all__ = ["InfiniteMemory"]

SNAPSHOT_ROWS = 1_000
"""New messages below which `close` keeps no snapshot: reading them again is as fast."""

SNAPSHOT_EVERY = 10_000
"""Additions by one object after which a snapshot is kept."""

NO_SESSION = -1
"""A key that no session has."""


class InfiniteMemory(TreeVerbs, FileVerbs):
    """The memory of one conversation.

    Args:
        store: a path (SQLite), a `Store`, or None: in memory, gone when it is closed.
        session_id: which conversation.
        user_id: whose; two users' sessions of one name never meet.
        scope: recall from this `"session"`, or from the main branches of all sessions of this `"user"`.
        max_tokens: the model's limit.
        reserve_tokens: kept free for the reply.
        token_counter: a `TokenCounter`, a `callable(str) -> int`, or the name of a tiktoken encoding or model; None is
            `o200k_base`.
        message_overhead: tokens of framing per message.
        window_slack: share of the window that may be given up so that its start stands still for prompt caches.
        embedder: an `Embedder`, the name of a sentence-transformers model, or None: the one whose vectors the session
            holds, else static word vectors, else words alone.
        ranking: `"hybrid"`, or `"dense"` or `"lexical"` alone.
        recall_unit: bring back single messages or whole turns.
        embed_text: what is embedded for a unit, given its messages.
        top_k: at most this many recalled units; None: as many as fit.
        recall_tokens: what recalled messages may take, in tokens, or as a float the share of what pinned text leaves;
            of a share, the newest turn takes what it needs, up to three quarters.
        min_score: cosine a unit must reach, unless its words match; None: the embedder's own floor, which what is said
            around strong matches need not reach.
        min_lexical: share of the question's informative words it must match, unless its cosine is high enough.
        excerpt_tokens: a recalled message that is longer by half comes back as an excerpt of at most so many tokens,
            marked with its id; None: whole.
        recall_tools: of turns that used tools recall the `"replies"`, nothing (`"none"`), or `"all"`, results too.
        placement: recalled text goes beside the question (`"grounding"`), before the window as real `"messages"`, or
            into a `"system"` message.
        recall_template: the wording around it.
        keep_grounding: grounding stays on the `"newest"` user message, on `"all"`, on `"none"`, or on the newest n.
        grounding_overflow: `"trim"` grounding that does not fit, weakest items first, or raise an `"error"`.
        on_overflow: `"raise"` if the question does not fit, or `"keep"` it and say so in the report.
        fill: `"stop"` the window at the first turn that does not fit, or `"skip"` it and try older ones.
        summarizer: sums up what leaves the window, given the summary so far (or None) and the messages since; a
            coroutine function for the async face. None: no summary.
        summary_tokens: what the summary takes at most, without the wording around it.
        summarizer_tokens: what one call is given at most, the summary so far included.
        summary_placement: at the end of the `"system"` message, or with the question's `"grounding"`.
        summary_template: the wording around it.
        embed_budget_ms: how long one question may embed messages that have no vector yet.
        durability: `"full"` survives a power cut, `"process"` a killed process; for a path.
        clock: the time of a message that has none; aware.
        new_id: the id of a message that has none.

    Raises:
        ValueError: an argument is out of range.
        StoreError: the store cannot be opened.
    """

    def __init__(
        self, store: str | Path | Store | None = None, *, session_id: str = "default", user_id: str | None = None,
        scope: RecallScope = "session", max_tokens: int = 4096, reserve_tokens: int = 500,
        token_counter: TokenCounter | Callable[[str], int] | str | None = None, message_overhead: int = 4,
        window_slack: float = 0.25, embedder: Embedder | str | None = None, ranking: Ranking = "hybrid",
        recall_unit: RecallUnit = "message", embed_text: EmbedText | None = None, top_k: int | None = None,
        recall_tokens: float | int = 0.8, min_score: float | None = None, min_lexical: float | None = None,
        excerpt_tokens: int | None = 100, recall_tools: RecallTools = "replies", placement: Placement = "grounding",
        recall_template: RecallTemplate | None = None, keep_grounding: KeepGrounding = "newest",
        grounding_overflow: GroundingOverflow = "trim", on_overflow: OnOverflow = "raise", fill: Fill = "stop",
        summarizer: AnySummarizer | None = None, summary_tokens: int = 500, summarizer_tokens: int = 4000,
        summary_placement: SummaryPlacement = "system", summary_template: SummaryTemplate | None = None,
        embed_budget_ms: float = 200, durability: Literal["full", "process"] = "full",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:  # fmt: skip
        self.max_tokens = whole_number("max_tokens", max_tokens, least=1)
        self.reserve_tokens = whole_number("reserve_tokens", reserve_tokens, least=0)
        a_name("session_id", session_id)
        if user_id is not None:
            a_name("user_id", user_id)
        if scope == "user" and user_id is None:
            raise ValueError('scope="user": pass the user_id whose sessions are to be searched')
        framer = Framer(as_counter(token_counter), message_overhead, keep_grounding, grounding_overflow, on_overflow)
        assembler = Assembler(
            framer, slack=window_slack, fill=fill, placement=placement, template=recall_template or RecallTemplate(),
            recall_tokens=recall_tokens, top_k=top_k,
        )  # fmt: skip
        rules = RecallRules(
            embedder=None if embedder is None else as_embedder(embedder), ranking=ranking, recall_unit=recall_unit,
            embed_text=embed_text, min_score=min_score, min_lexical=min_lexical, excerpt_tokens=excerpt_tokens,
            recall_tools=recall_tools, scope=scope, embed_budget_ms=embed_budget_ms,
        )  # fmt: skip
        summing = SummaryRules(
            summarizer, summary_tokens, summarizer_tokens, summary_placement, summary_template or SummaryTemplate()
        )
        lock = fork_safe_lock()
        # The store comes last: an argument that is refused leaves no file behind and none open.
        self._owns_store = not isinstance(store, Store)
        opened = open_store(store, durability=durability)
        live = LiveSession(opened, user_id, session_id, Sizer(framer.counter, framer.overhead))
        self._store, self._lock = opened, lock
        self._checkout = Checkout(live, Writer(live, framer.counter, clock=clock, new_id=new_id), lock)
        rolling = RollingSummary(live, assembler, summing, lock, clock=clock)
        self._prompts = PromptBuilder(live, assembler, Searcher(live, lock, rules), rolling, lock)
        self._unsaved = 0
        self._closed = False

    # Storing

    def add(self, messages: Message | Sequence[Message], *, turn: str | None = None) -> list[Message]:
        """Store messages at the head of the branch, in one transaction, durable on return.

        A reply joins the turn of the message before it in the list, also if that one is stored already. The first ones
        join the turn named, else the turn this object opened last, else the newest of the branch; name it where several
        threads share one object. Adding a known id again with the same content changes nothing, on whatever branch it
        stands.

        Returns:
            The messages as stored, with `id`, `created_at` and `turn_id`. Ids that were forgotten are left out.

        Raises:
            DuplicateError: an id is stored with other content.
            UnknownReferenceError: no such turn on this branch.
        """
        given = given_messages(messages)
        with self._lock:
            stored = self._checkout.writer.add(given, turn)
            self._unsaved += len(stored)
            if self._unsaved >= SNAPSHOT_EVERY:
                self._save_snapshot()
            return stored

    def follow(self, messages: Sequence[Message], *, after: FollowedHistory | None = None) -> FollowedHistory:
        """Stand where a history leads that a client sends again and again, and store what of it is new.

        A message goes by its id, or without one by all that is said up to it. Where the history has gone back or was
        changed, it goes on as another branch. Only its end is compared with what is stored.

        Args:
            messages: the history, oldest first; with `after`, what comes then.
            after: what an earlier call returned, as far as it has not changed since: `history.upto(count)`.

        Returns:
            All of the history, with the ids its messages are stored under.
        """
        given = given_messages(messages)
        checkout = self._checkout
        with self._lock:
            checkout.live.sync()
            followed = Follower(checkout.live).follow(given, after or FollowedHistory())
            if followed.at is not None:
                checkout.stand_at(followed.at)
                checkout.writer.open_turn = followed.turn
            stored = checkout.writer.add(followed.new, None)
            self._unsaved += len(stored)
            if self._unsaved >= SNAPSHOT_EVERY:
                self._save_snapshot()
            gone = {message.id for message in followed.new} - {message.id for message in stored}
        history = followed.history
        return history if not gone else replace(history, ids=tuple(None if i in gone else i for i in history.ids))

    def close_turn(self) -> None:
        """Let the next reply join the newest turn of the branch, even if this object opened another."""
        with self._lock:
            self._checkout.writer.open_turn = None

    def _save_snapshot(self) -> None:
        self._unsaved = 0
        self._prompts.refresh_and_save(least=SNAPSHOT_ROWS)

    # Reading

    @property
    def session_id(self) -> str:
        """The conversation's name."""
        return self._checkout.live.session_id

    @property
    def user_id(self) -> str | None:
        """The user it belongs to; None: nobody."""
        return self._checkout.live.user_id

    def get(self, id: str) -> Message:
        """Return one message of the session; UnknownReferenceError if there is none."""
        session = self._checkout.live.key
        records = self._store.get(session, [id]) if session is not None else []
        if not records:
            raise UnknownReferenceError(f"no message {id!r} in this session")
        return records[0].message

    def messages(self) -> Iterator[Message]:
        """Iterate over the branch, oldest first, reading as it goes."""
        live = self._checkout.live
        with self._lock:
            live.sync()
            session, path = live.key, live.path
        if session is None:
            return
        for record in read(self._store, session, path.spans):
            yield record.message

    def newest(self, limit: int) -> list[Message]:
        """Return the newest messages of the branch, oldest first, at most `limit`."""
        with self._lock:
            self._checkout.live.sync()
            return [entry.message for entry in self._checkout.live.last(whole_number("limit", limit, least=0))]

    def stats(self) -> dict[str, Any]:
        """Return what the session holds: counts, bytes on disk, and the embedders whose vectors it has."""
        key = self._checkout.live.key
        session = key if key is not None else NO_SESSION
        return {"branch": self.branch, **self._store.stats(session), "embedders": self._store.spaces(session)}

    # Recalling

    def context(
        self, question: str | Message | None = None, *, tools: Sequence[Any] | None = None,
        reserve_tokens: int | None = None, include_question: bool = True,
    ) -> Context:  # fmt: skip
        """Return the prompt for a question, and why it is as it is. Stores nothing.

        Args:
            question: what is asked, if it is not stored yet. None or empty: the newest user message. A question equal
                to a newest user message that is not answered yet is that message.
            tools: tool schemas that are sent too and take room.
            reserve_tokens: kept free for the reply, instead of the constructor's.
            include_question: False: the question takes room but is not returned; recalled text then goes into a system
                message.

        Raises:
            BudgetError: system and pinned messages alone exceed the budget.
            MessageTooLargeError: the question does not fit.
            EmbedderMismatchError: the session's vectors are another embedder's.
        """
        return drive(
            self.context_steps(question, tools=tools, reserve_tokens=reserve_tokens, include_question=include_question)
        )

    def context_steps(
        self, question: str | Message | None, *, tools: Sequence[Any] | None, reserve_tokens: int | None,
        include_question: bool,
    ) -> AskSteps:  # fmt: skip
        """Return the steps of `context`, for a face that answers their requests in its own way."""
        message = Message.user(question) if isinstance(question, str) else question
        if message is not None and message.role != "user":
            raise ValueError(f"question: expected a user message, not one of role {message.role!r}")
        blank = message is not None and not message.content.strip() and message.grounding is None
        reserve = self.reserve_tokens if reserve_tokens is None else reserve_tokens
        whole_number("reserve_tokens", reserve, least=0)
        whole_number("max_tokens", self.max_tokens, least=1)  # it may have been changed since
        ask = Ask(None if blank else message, self.max_tokens, reserve, tuple(tools or ()), include_question)
        return self._prompts.steps(ask)

    def count(self, message: Message) -> int:
        """Return what a message costs as sent, in tokens: text, name, tool calls, media, grounding and framing."""
        sent = with_grounding(message, render_grounding(message.grounding))
        return message_tokens(sent, self._checkout.writer.counter, self._checkout.live.sizer.overhead)

    def search(
        self, query: str, top_k: int = 10, *, since: datetime | None = None, until: datetime | None = None,
        role: Role | None = None,
    ) -> list[ScoredMessage]:  # fmt: skip
        """Return the messages of this branch that match best, best first; none if nothing matches well enough.

        Args:
            query: what to look for.
            top_k: how many at most.
            since: only what was said at or after this moment; without a zone it is taken as UTC, here and below.
            until: only what was said at or before it.
            role: only what this role said; tool results and system messages are found only so.
        """
        return drive(self.search_steps(query, top_k, since=since, until=until, role=role))

    def search_steps(
        self, query: str, top_k: int, *, since: datetime | None, until: datetime | None, role: Role | None
    ) -> SearchSteps:
        """Return the steps of `search`."""
        whole_number("top_k", top_k, least=0)
        if role is not None:
            one_of("role", role, get_args(Role))
        wanted = Filter(
            since=in_utc(since).timestamp() if since else float("-inf"),
            until=in_utc(until).timestamp() if until else float("inf"),
            role=role,
        )
        return self._prompts.search_steps(query, top_k, wanted)

    def index(self, progress: Progress | None = None) -> None:
        """Embed everything that has no vector yet and keep a snapshot, so that the next question need not wait.

        Args:
            progress: called with how many messages are done and how many there are to do.

        Raises:
            EmbedderError: the embedder failed; what was done before is kept.
        """
        drive(self.index_steps(progress))

    def reindex(self, progress: Progress | None = None) -> None:
        """Embed the session anew with the embedder given, though it holds another's vectors; those stay."""
        drive(self.index_steps(progress, anew=True))

    def index_steps(self, progress: Progress | None, *, anew: bool = False) -> IndexSteps:
        """Return the steps of `index` and `reindex`."""
        if anew:
            with self._lock:
                self._prompts.searcher.accept_embedder()
        yield from self._prompts.index_steps(progress)

    # Summing up

    def summary(self) -> Summary | None:
        """Return the summary of this branch that reaches farthest from its beginning; None: there is none."""
        with self._lock:
            self._checkout.live.sync()
            return self._prompts.rolling.newest(self._checkout.live.path)

    def summarize(self) -> Summary | None:
        """Sum up all that has left the window, so that no question need wait for it, and return `summary()`.

        What is sent for the newest user message if nothing is recalled decides what has left.

        Raises:
            ValueError: this memory has no summarizer, or it returned nothing. What it raises is passed on.
        """
        return drive(self.summary_steps())

    def summary_steps(self) -> SummarySteps:
        """Return the steps of `summarize`."""
        if self._prompts.rolling.rules.summarizer is None:
            raise ValueError("summarize: pass summarizer= where this memory is made")
        return self._prompts.summary_steps(Ask(None, self.max_tokens, self.reserve_tokens))

    # Forgetting

    def forget(
        self, *, ids: Sequence[str] | None = None, before: datetime | None = None, session: bool = False,
        dry_run: bool = False,
    ) -> ForgetResult:  # fmt: skip
        """Erase messages everywhere: rows, vectors, indexes, snapshots, all branches, and the bytes of the files.

        Tool groups are erased whole. Forgotten ids are not stored again.

        Args:
            ids: these messages.
            before: what was said before this moment, taken as UTC if it has no zone; system messages stay.
            session: everything.
            dry_run: only return what would be erased.

        Raises:
            UnknownReferenceError: an id is not stored.
        """
        if (ids is not None) + (before is not None) + session != 1:
            raise ValueError("forget: pass one of ids=, before= and session=True")
        with self._lock:
            key = self._checkout.live.key
            if key is None and ids:
                raise UnknownReferenceError(f"no message {ids[0]!r}: nothing is stored yet")
            moment = None if before is None else in_utc(before)
            records = select(self._store, key, ids=ids, before=moment, everything=session) if key is not None else []
            if dry_run or key is None:
                return ForgetResult(tuple(record.message.id or "" for record in records), dry_run=dry_run)
            if not records and not session:
                return self.scrub()  # every process would otherwise drop its indexes for nothing
            result = forget(self._store, key, records, everything=session)
            if session:
                self._checkout.stand(Head(MAIN))
            return result

    def scrub(self) -> ForgetResult:
        """Try again to remove erased bytes from the files, where `forget` reported that a reader was in the way."""
        reason = self._store.scrub()
        return ForgetResult((), scrubbed=reason is None, reason=reason)

    # Life

    def close(self) -> None:
        """Keep what was indexed and release the store; closing twice is fine."""
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    self._prompts.close(least=SNAPSHOT_ROWS)
                finally:
                    if self._owns_store:
                        self._store.close()

    def __enter__(self) -> "InfiniteMemory":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
