"""InfiniteMemory: stores everything said in a chat and builds, for each question, the best prompt that fits."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from shared_core.arguments import (
    SystemPrompt,
    function,
    instance,
    missing_method,
    moment,
    name_text,
    one_of,
    prompt_budget,
    prompt_text,
    role_names,
    schemas,
    session_names,
    suggests_names,
    text_value,
    user_message,
    whole_number,
)
from shared_core.display import counted
from shared_core.errors import UnknownReferenceError
from shared_core.events import OnEvent, as_hook
from shared_core.events.source import EventSource, Watch, reported
from shared_core.formats.fields import Role
from shared_core.history.followed import FollowedHistory
from shared_core.history.matcher import Removed, follow
from shared_core.messages import Message, MessageLike, message_list, one_message
from shared_core.pipeline import Progress, PromptBuilder
from shared_core.plugins.base import Embedder, Reranker, Summarizer, TokenCounter
from shared_core.plugins.calls import Steps, run_steps
from shared_core.plugins.embedders import as_embedder
from shared_core.prompt.assembler import Assembler, Placement
from shared_core.prompt.context import Context
from shared_core.prompt.fixed_part import FixedPartBuilder, KeepGrounding, OnOverflow
from shared_core.prompt.hits import Hit
from shared_core.prompt.plan import Ask
from shared_core.prompt.template import RecallTemplate
from shared_core.prompt.window import Fill
from shared_core.recall.scope import Filter, RecallScope, RecallUnit
from shared_core.recall.search import Searcher
from shared_core.recall.settings import EmbedText, RecallRules
from shared_core.recall.worth import Recall
from shared_core.records import ALL, SessionInfo, Summary, title_of
from shared_core.runtime.forks import Depth, fork_safe_lock
from shared_core.session.checkout import Checkout, Past, Stamps, Writer
from shared_core.session.forget import ForgetVerbs
from shared_core.session.live import LiveSession, Sizer
from shared_core.session.message_sequence import MessageSequence
from shared_core.sharing.files import FileVerbs
from shared_core.store import Store, give_title
from shared_core.stores import open_store
from shared_core.strippers import Stripper, strip, stripper_list
from shared_core.summaries.requests import as_summarizer
from shared_core.summaries.rolling import RollingSummary
from shared_core.tokens import RememberedCounter, as_counter, message_tokens
from shared_core.tree.verbs import TreeVerbs

NO_SESSION = -1
"""A key that no session has, for statistics of a session that is not stored yet."""


class InfiniteMemory(TreeVerbs, ForgetVerbs, FileVerbs):
    """The memory of one conversation: it stores every message and builds the best prompt for each question.

    It calls no model except its embedder and, if you pass them, the summarizer and the reranker.

    The arguments stand in four groups: what every program sets, up to `embedder`; recall, up to `recall_template`;
    summaries, the next one; and what few programs set, from `window_turns` on.

    Args:
        store: where messages are stored. A path opens an SQLite database, which is created if it does not exist
            (`sqlite:///path` and `~` work, too), `postgresql://…` a PostgreSQL database. A `Store` is used as it is
            and stays open after `close`. None keeps everything in memory until `close`.
        session_id: the name of the conversation.
        user_id: the user it belongs to. Sessions of the same name that belong to different users are separate. None:
            no user.
        system: the system prompt, as a setting: a text, or a function that returns one for each question. It comes
            first in every prompt, takes part of the budget, and is never stored. It is sent instead of a system prompt
            that is stored; pinned system messages are sent, too. Assign `memory.system` to change it.
        max_tokens: the context limit of your model, in tokens: prompt and reply together.
        reserve_tokens: the part of `max_tokens` that is kept free for the reply.
        token_counter: counts the tokens of a text: a `TokenCounter`, a `callable(str) -> int`, or the name of a
            tiktoken encoding or model. None uses tiktoken's `o200k_base`, or, if its table can neither be found nor
            downloaded, a counter that never counts too few.
        embedder: makes the vectors for recall by meaning: an `Embedder`, `"static"`, `"all-MiniLM-L6-v2"` or
            `"all-MiniLM-L6-v2-int8"`. None uses the embedder whose vectors the session already has, else
            all-MiniLM-L6-v2 if its weights are on this machine (see `infinite-memory download`), else static word
            vectors, else none: then recall goes by words alone, as it does with `"words"`.
        scope: what recall searches: `"session"` is this conversation, on the branch that is checked out; `"user"` also
            searches the main branches of the user's other sessions and needs a `user_id`.
        recall: how likely a message must help to be recalled: `"balanced"` recalls what is worth its tokens, and
            nothing if the conversation hardly holds an answer; `"precise"` asks for more; `"thorough"` fills
            `recall_tokens` with all that matches. `min_score` is a condition besides.
        top_k: the largest number of units that are recalled. None: as many as fit in `recall_tokens`.
        recall_tokens: the most that recalled messages may take: an int is a number of tokens, a float is a share of
            what system and pinned messages leave. With a share, the newest turn goes first if it takes at most three
            quarters of the room; a larger one gets what recall leaves. Tokens that recall does not use go to the
            window. None: a share of 0.8 and, in prompts without tool schemas, what then remains because the next older
            turn is too large for it.
        min_score: the cosine with the question that a unit must reach to be recalled; at least one must exceed it.
            Units without a vector are recalled by their words. None: words that match are enough, or the embedder's own
            floor, and for what was said around strong matches less than that.
        recall_unit: what is recalled: a single `"message"` or a whole `"turn"`.
        embed_text: returns the text that is embedded for a unit, given its messages. None: the text of each message,
            after its speaker's name.
        reranker: orders the best 30 results of a search, before what is worth its tokens is recalled: a function, sync
            or async, of the question and texts that returns a score for each text. If it fails or takes too long, the
            order stays as it is, and the report says why. None: no reranker.
        placement: where recalled text goes: `"grounding"` puts it next to the question, `"messages"` puts real messages
            before the window, `"system"` puts it into a system message.
        recall_template: the wording around recalled text and the summary, and the size of excerpts. None: the default
            `RecallTemplate`.
        summarizer: sums up what has left the window, given the previous summary (None the first time) and the messages
            since then. It may be a coroutine function, or a `SummarizerModel`, which says how much it can read. None:
            nothing is summed up.
        window_turns: the largest number of turns in the window beside the question, such as 1 for the last exchange
            alone; recall brings what matters of the rest. None: tokens alone limit the window.
        fill: how turns fill the window. `"steady"` ends it at the first turn that does not fit, and leaves up to a
            quarter unused so that its start stays where it is for several turns and a provider's prompt cache keeps
            working; in prompts of more than 4,000 tokens it also leaves a quarter, at most 12,000 tokens, to questions
            and what they recall. `"stop"` ends it there, too, and uses it fully. `"skip"` leaves such a turn out and
            tries older ones.
        keep_grounding: which user messages keep their grounding in the prompt: the `"newest"`, `"all"`, `"none"`, or
            the newest n, as an int.
        on_overflow: what happens if the question does not fit: `"raise"` raises a `MessageTooLargeError`, `"keep"`
            sends it anyway and says so in the report.
        strippers: set apart text that only serves one turn when a message is stored, such as documents pasted around a
            question: `shared_core.strippers` has `PASTED_CONTEXT` and `TOOL_RESULTS`. The current turn is sent with it,
            older ones without. What is set apart is not recalled, but `search` finds it.
        on_event: called with a `MemoryEvent` after each verb: its name and duration, the sizes of the prompt, ids and
            scores, and what could not be done. It holds nothing that was said unless the hook is one of
            `with_content(…)`. What it raises is logged once. It is called in the thread that did the work.
            `OpenTelemetryEvents` of `shared_core.events.telemetry` makes spans and metrics. None: nothing is told.
        clock: returns the time for messages that have none, as a datetime with a time zone.

    Raises:
        ValueError, TypeError: an argument is out of range, of a wrong type, or unknown. The message says what to pass.
        EmbedderError: `embedder` is the name of no model on this machine, nor of one that the hub confirms in time.
        StoreError: the store cannot be opened.
    """

    @suggests_names
    def __init__(
        self, store: str | Path | Store | None = None, *, session_id: str = "default", user_id: str | None = None,
        system: SystemPrompt | None = None, max_tokens: int = 4096, reserve_tokens: int = 500,
        token_counter: TokenCounter | Callable[[str], int] | str | None = None, embedder: Embedder | str | None = None,
        # Recall
        scope: RecallScope = "session", recall: Recall = "balanced", top_k: int | None = None,
        recall_tokens: float | int | None = None, min_score: float | None = None, recall_unit: RecallUnit = "message",
        embed_text: EmbedText | None = None, reranker: Reranker | None = None,
        placement: Placement = "grounding", recall_template: RecallTemplate | None = None,
        # Summaries
        summarizer: Summarizer | None = None,
        # Advanced
        window_turns: int | None = None, fill: Fill = "steady", keep_grounding: KeepGrounding = "newest",
        on_overflow: OnOverflow = "raise",
        strippers: Iterable[Stripper] = (), on_event: OnEvent | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:  # fmt: skip
        prompt_budget(max_tokens, reserve_tokens)
        self.max_tokens, self.reserve_tokens = max_tokens, reserve_tokens
        session_names(session_id, user_id)
        if system is not None and not isinstance(system, str):
            function("system", system, "() -> str | None, or a text")
        if reranker is not None:
            function("reranker", reranker, "(query, texts) -> scores, such as one that calls a cross-encoder's predict")
        function("clock", clock, "() -> datetime")
        hook = as_hook(on_event)
        self.system, self._strippers = system, stripper_list(strippers)
        if scope == "user" and user_id is None:
            raise ValueError('scope="user": pass the user_id whose sessions are to be searched')
        template = recall_template or RecallTemplate()
        instance("recall_template", template, RecallTemplate)
        self._summarizer = as_summarizer(summarizer)
        counter = RememberedCounter(as_counter(token_counter))
        builder = FixedPartBuilder(counter, keep_grounding, on_overflow, template.fences)
        assembler = Assembler(
            builder, fill=fill, placement=placement, template=template,
            recall_tokens=recall_tokens, top_k=top_k, window_turns=window_turns,
        )  # fmt: skip
        rules = RecallRules(
            embedder=None if embedder in (None, "words") else as_embedder(embedder), words_alone=embedder == "words",
            recall_unit=recall_unit, embed_text=embed_text, min_score=min_score, excerpt_tokens=template.excerpt_tokens,
            scope=scope, recall=recall, reranker=reranker,
        )  # fmt: skip
        lock = fork_safe_lock(Depth.MEMORY)
        # The store is opened last, so that an invalid argument neither creates a file nor leaves one open.
        self._owns_store = not isinstance(store, Store)
        opened = open_store(store).for_user(user_id)
        stamps = Stamps(clock)
        live = LiveSession(opened, user_id, session_id, Sizer(counter))
        self._store, self._lock = opened, lock
        self._checkout = Checkout(live, Writer(live, counter, stamps), lock)
        rolling = RollingSummary(live, assembler, self._summarizer, lock, clock=stamps.time)
        self._prompts = PromptBuilder(live, assembler, Searcher(live, lock, rules), rolling, lock)
        self._indexes = self._prompts.searcher.indexes
        self._checkout.writer.own_vectors = self._indexes.own_vectors
        self._events = EventSource(hook, live, self._indexes.is_cached)
        self._indexes.saved = self._events.snapshot
        self._closed = False

    # Storing

    @suggests_names
    @reported("add", Watch.told)
    def add(self, messages: MessageLike | Sequence[MessageLike], *, turn: str | None = None) -> list[Message]:
        """Store messages at the head of the branch, in one transaction. They are durable when the method returns.

        A user message opens a turn. A reply joins the turn of the message before it in the list, even if that message
        is stored already. Replies at the beginning of the list join `turn`. Adding a message of this branch again, with
        the same id and content, changes nothing.

        System messages of one call are the system prompt from then on: they replace the one before, which stays stored
        and is no longer sent. Adding the current one again changes nothing. A pinned system message is sent always.

        Args:
            messages: one message or several, oldest first. Dicts and replies of OpenAI's and Anthropic's
                clients are accepted, see `Message.from_openai` and `from_anthropic`.
            turn: the id of the turn that the first replies join. None: the turn that this object opened last, or the
                newest turn of the branch. Pass it if several threads share one object.

        Returns:
            The messages as stored, with `id`, `created_at` and `turn_id`. Messages whose ids were forgotten are left
            out.

        Raises:
            DuplicateError: an id is stored already with other content, or not on this branch. Nothing is stored.
            UnknownReferenceError: the branch has no such turn.
        """
        given = self._stripped(message_list(messages))
        with self._lock:
            stored = self._checkout.writer.add(given, turn)
            self._indexes.note_stored()
            return stored

    @suggests_names
    def follow(
        self, messages: Sequence[MessageLike], *, after: FollowedHistory | None = None, removed: Removed = "keep",
        since: str | None = None, rewritten: bool = False,
    ) -> FollowedHistory:  # fmt: skip
        """Store what is new in a history that a client sends again with each request, and check out its end.

        A message is recognized by its id or, if it has none, by what it says, after what is said before it: space
        around a text, a `<think>` block before an answer, and how the JSON of a call is written make no difference. If
        the history went back to an earlier message, or an earlier message was edited, it continues on a branch of its
        own. The system messages of the history are its system prompt, whatever else it says: when they change, the new
        ones replace the old ones, and no branch is opened. A pinned one is part of the talk instead: a client that
        changes it sends another history. What was forgotten is not stored again; but a question without an id at the
        end of the history is stored as a new message, because its words may have been said again.

        Args:
            messages: the history, oldest first; with `after`, only the messages that follow it. What `add` takes is
                accepted; items of the Responses API that the model said at once count as one message.
            after: what an earlier call returned, cut to the part that has not changed since: `history.upto(count)`.
            removed: what happens to stored messages that the history lacks. `"keep"`: the client trimmed them; they
                stay, and only the end of the history is compared with what is stored. `"leave_out"`: the history is the
                whole conversation, and they were taken back: it continues on a branch without them, to which the
                messages after them are copied. They stay stored. Messages that were forgotten, and system prompts, are
                not missed.
            since: with `"leave_out"`, the id of a message of the history: all that is stored before it stays, such as
                what a summary replaced. What the history says before it, such as that summary, is not stored.
            rewritten: whether the client may have written answers anew, all of which are stored as they came: an
                answer without an id that says what none of its turn does, and after which the history goes on, is the
                stored one that stands there.

        Returns:
            The whole history, with the ids under which its messages are stored.
        """
        given = self._stripped(message_list(messages))
        one_of("removed", removed, get_args(Removed))
        return self._follow(given, after or FollowedHistory(), removed, since, rewritten)[0]

    @reported("follow", lambda watch, result: watch.told(result[1]))
    def _follow(
        self, messages: Sequence[Message], after: FollowedHistory, removed: Removed, since: str | None, rewritten: bool
    ) -> tuple[FollowedHistory, list[Message]]:
        with self._lock:
            history, stored = follow(self._checkout, messages, after, removed, since, rewritten)
            self._indexes.note_stored()
            return history, stored

    def _stripped(self, messages: Sequence[Message]) -> list[Message]:
        return [strip(message, self._strippers) for message in messages] if self._strippers else list(messages)

    # Reading

    @property
    def session_id(self) -> str:
        """The name of the conversation."""
        return self._checkout.live.session_id

    @property
    def user_id(self) -> str | None:
        """The user whom the conversation belongs to; None: no user."""
        return self._checkout.live.user_id

    @suggests_names
    def get(self, id: str) -> Message:
        """Return the message with this id, on any branch; UnknownReferenceError if there is none."""
        name_text("id", id)
        session = self._checkout.live.key
        records = self._store.get(session, [id]) if session is not None else []
        if not records:
            if session is not None:
                self._store.check_absent(session, [id])
            where = f"in session {self.session_id!r}; get takes a whole id, as messages() and search give it"
            raise UnknownReferenceError(f"no message {id!r} {where}")
        return records[0].message

    @suggests_names
    def messages(self, *, at: str | None = None, replaced: bool = False) -> MessageSequence:
        """Return the messages of the branch as it is now, oldest first, as a sequence that reads them in pages.

        Args:
            at: read up to this reference, such as another branch, instead: nothing is checked out, and system messages
                that newer ones have replaced are included.
            replaced: whether system messages are included that newer ones have replaced.

        Raises:
            UnknownReferenceError: there is no such reference.
        """
        live = self._checkout.live
        with self._lock:
            if at is not None:
                session, path = self._checkout.existing(), live.path_to(self._checkout.position_of(at))
                return MessageSequence(self._store, session, path, system_prompt=None, replaced=0)
            live.sync()
            hidden = {entry.message.id for entry in live.system_prompt()} if live.replaced and not replaced else None
            return MessageSequence(self._store, live.key, live.path, system_prompt=hidden, replaced=live.replaced)

    @suggests_names
    def newest(self, limit: int) -> list[Message]:
        """Return the newest messages of the branch, at most `limit`, oldest first."""
        with self._lock:
            self._checkout.live.sync()
            return [entry.message for entry in self._checkout.live.last(whole_number("limit", limit, least=0))]

    def stats(self) -> dict[str, Any]:
        """Return what the session holds: counts, bytes on disk, and the embedders whose vectors are stored."""
        key = self._checkout.live.key
        session = key if key is not None else NO_SESSION
        return {"branch": self.branch, **self._store.stats(session), "embedders": self._store.spaces(session)}

    # The sessions of the user

    @suggests_names
    def sessions(self, limit: int | None = None, *, titled: str = "") -> list[SessionInfo]:
        """Return the sessions of this memory's user that hold messages, the one added to last first.

        Sessions of other users are never among them. If this memory has no user, these are the sessions without a user.

        Args:
            limit: the largest number of sessions. None: all.
            titled: only those whose titles hold these words, in capitals or not.
        """
        most = ALL if limit is None else whole_number("limit", limit, least=0)
        words = text_value("titled", titled).casefold().split()
        found = self._store.overview(self.user_id, limit=ALL if words else most)
        return [one for one in found if all(word in (one.title or "").casefold() for word in words)][:most]

    def set_title(self, title: str | None) -> None:
        """Give this conversation a title, which `sessions` has then; None: that of its first question again.

        It is erased with the session, and not with a message.

        Raises:
            UnknownReferenceError: nothing is stored yet.
        """
        given = title_of("" if title is None else text_value("title", title))
        with self._lock:
            give_title(self._store, self._checkout.existing(), given)

    def rename_session(self, session_id: str) -> None:
        """Give this conversation another name. It keeps everything, and `session_id` is the new name.

        Other objects that have used it before, also in other processes, go on with the same conversation, and their
        `session_id` remains the old name. An object that is created with the old name begins a new conversation.

        Args:
            session_id: the new name. If a conversation of the user had this name and all of it was forgotten, it gets
                the old name.

        Raises:
            DuplicateError: a conversation of the user has this name.
            UnknownReferenceError: nothing is stored yet.
        """
        session_names(session_id, None)
        with self._lock:
            self._checkout.live.rename(session_id)

    def _is_renamed(self) -> bool:
        """Return whether another object has renamed this conversation: then `session_id` is not its name any more."""
        with self._lock:
            return self._checkout.live.is_renamed()

    # Recalling

    @suggests_names
    def context(
        self, question: str | MessageLike | None = None, *, system: SystemPrompt | None = None,
        tools: Sequence[Any] | None = None, max_tokens: int | None = None, reserve_tokens: int | None = None,
        include_question: bool = True, as_of: date | str | None = None,
    ) -> Context:  # fmt: skip
        """Return the prompt for a question, with a report that explains it. No message is stored.

        Args:
            question: the question, if it is not stored yet. None or empty: the newest user message. If the newest user
                message has the same text and no answer yet, the question is taken to be that message.
            system: the system prompt for this question, instead of the constructor's `system`. `""`: the stored one, if
                there is one.
            tools: the tool schemas that you send with the prompt. They take part of the budget.
            max_tokens: the context limit of the model that is asked, instead of the constructor's `max_tokens`.
            reserve_tokens: the tokens kept free for the reply, instead of the constructor's `reserve_tokens`.
            include_question: whether the prompt contains the question. If False, room is kept for the question, and
                recalled text goes into a system message.
            as_of: build the prompt as it would have been then: a datetime, a date, which means the end of its day, ISO
                8601 text, or the id of a message, which counts as said. Window, recall, system prompt and summary hold
                nothing that was said later, here and in other sessions. What was forgotten since stays forgotten.

        Raises:
            UnknownReferenceError: `as_of` is no time, and names no message of this branch.
            BudgetError: system and pinned messages alone exceed the budget.
            MessageTooLargeError: the question does not fit.
            EmbedderMismatchError: another embedder made the session's vectors.
        """
        steps = self._context_steps(
            question, system=system, tools=tools, max_tokens=max_tokens, reserve_tokens=reserve_tokens,
            include_question=include_question, as_of=as_of,
        )  # fmt: skip
        return run_steps(steps)

    def _context_steps(
        self, question: str | MessageLike | None = None, *, system: SystemPrompt | None = None,
        tools: Sequence[Any] | None = None, max_tokens: int | None = None, reserve_tokens: int | None = None,
        include_question: bool = True, as_of: date | str | None = None,
    ) -> Steps[Context]:  # fmt: skip
        """Return the steps of `context`. The caller answers their requests, synchronously or asynchronously."""
        message = None if question is None else self._stripped([user_message("question", question)])[0]
        blank = message is not None and not (message.content.strip() or message.grounding or message.media_tokens)
        limit = self.max_tokens if max_tokens is None else max_tokens
        reserve = self.reserve_tokens if reserve_tokens is None else reserve_tokens
        # Checked again, because callers may assign the attributes. A caller's own reserve may leave nothing.
        prompt_budget(limit, reserve, least=1 if reserve_tokens is None else 0)
        prompt = prompt_text(self.system if system is None else system)
        ask = Ask(None if blank else message, limit, reserve, schemas(tools), include_question, prompt)
        past = None if as_of is None else self._past(as_of)
        prompts = self._prompts if past is None else self._prompts.at(past)
        watch = self._events.watch("context", prompts.live)
        return self._events.steps(watch, prompts.steps(ask, watch))

    def _past(self, as_of: date | str) -> Past:
        """Return the past that an argument `as_of` means."""
        with self._lock:
            return self._checkout.past(as_of, self._indexes.end_at)

    def _count(self, message: MessageLike) -> int:
        """Return the tokens a message takes when it is sent: text, name, tool calls, media, grounding and framing."""
        sent = one_message(message).grounded
        return message_tokens(sent, self._checkout.writer.counter)

    @suggests_names
    def search(
        self, query: str, top_k: int = 10, *, since: date | str | None = None, until: date | str | None = None,
        role: Role | Sequence[Role] | None = None, scope: RecallScope | None = None, repeats: int | None = None,
        in_conversation: bool = False, as_of: date | str | None = None,
    ) -> list[Hit]:  # fmt: skip
        """Return the messages of this branch that match a query, best first; `Hit.band` says how well each one does.

        Weak matches are among them, such as what was said beside a strong one.

        Messages are also found by the words of their grounding, such as documents pasted around a question. The
        reranker, if there is one, orders the best 30.

        Of messages of one speaker that match about as well and share their words, such as two dates of one appointment,
        the newest comes first.

        Args:
            query: the text to search for.
            top_k: the largest number of messages to return.
            since: only messages said at or after this time: a datetime, a date, or ISO 8601 text such as
                `"2026-01-31"` or `"2026-01-31T10:00"`. A time without a zone is taken as UTC.
            until: only messages said at or before this time; a date means until the end of that day.
            role: only messages of this role, or of these. None: user and assistant messages. Tool results and system
                messages are found only if you name their role.
            scope: what is searched, instead of the constructor's `scope`: `"session"` is this branch alone, `"user"`
                also the main branches of the other sessions that `sessions` lists.
            repeats: how many messages that say the same may be found, the newest first. None: all.
            in_conversation: whether the query is understood as the next message of the conversation, as `context` does:
                "and how much was it?" looks for what the newest messages are about.
            as_of: search what was said up to then, as `context` does: a time, or the id of a message. Unlike with
                `until`, what is newest is judged among that, too.
        """
        steps = self._search_steps(
            query, top_k, since=since, until=until, role=role, scope=scope, repeats=repeats,
            in_conversation=in_conversation, as_of=as_of,
        )  # fmt: skip
        return run_steps(steps)

    def _search_steps(
        self, query: str, top_k: int = 10, *, since: date | str | None = None, until: date | str | None = None,
        role: Role | Sequence[Role] | None = None, scope: RecallScope | None = None, repeats: int | None = None,
        in_conversation: bool = False, as_of: date | str | None = None,
    ) -> Steps[list[Hit]]:  # fmt: skip
        """Return the steps of `search`; see `_context_steps`."""
        text_value("query", query)
        whole_number("top_k", top_k, least=0)
        if repeats is not None:
            whole_number("repeats", repeats, least=1)
        if scope is not None:
            one_of("scope", scope, get_args(RecallScope))
        roles = None if role is None else role_names("role", role)
        past = None if as_of is None else self._past(as_of)
        wanted = Filter(
            since=float("-inf") if since is None else moment("since", since).timestamp(),
            until=float("inf") if until is None else moment("until", until, end=True).timestamp(),
            roles=roles,
            scope=scope,
            repeats=repeats,
            in_conversation=in_conversation,
            path=None if past is None else self._checkout.live.path_to(past.position),
            as_of=float("inf") if past is None else past.time,
        )
        watch = self._events.watch("search")
        if watch is not None:
            watch.ask(query)
        return self._events.steps(watch, self._prompts.search_steps(query, top_k, wanted, watch), Watch.hits)

    @suggests_names
    def index(self, progress: Progress | None = None, *, again: bool = False) -> None:
        """Embed all messages that have no vector yet, and save the index, so that the next question does not wait.

        Args:
            progress: called with how many messages are embedded and how many there are to embed.
            again: whether the whole session is embedded with this memory's embedder, even if another one made its
                vectors. Those stay stored.

        Raises:
            EmbedderError: the embedder failed; vectors made before that are stored.
        """
        run_steps(self._index_steps(progress, again=again))

    def _index_steps(self, progress: Progress | None = None, *, again: bool = False) -> Steps[None]:
        if progress is not None:
            function("progress", progress, "(done, total) -> None")
        if again:
            with self._lock:
                self._prompts.searcher.embedder.accept_given()
        steps = self._prompts.index_steps(progress or (lambda done, total: None))
        return self._events.steps(self._events.watch("index"), steps)

    # Summing up

    def summary(self) -> Summary | None:
        """Return the summary of this branch that covers most of it, from its beginning; None if there is none."""
        with self._lock:
            self._checkout.live.sync()
            return self._prompts.rolling.newest(self._checkout.live.path)

    def summarize(self) -> Summary | None:
        """Sum up everything that has left the window, so that no question waits for it, and return `summary()`.

        The window meant here is that of the newest user message, if nothing is recalled for it.

        Raises:
            ValueError: this memory has no summarizer, or the summarizer returned nothing.
            Exception: whatever the summarizer raises.
        """
        return run_steps(self._summary_steps())

    def _summary_steps(self) -> Steps[Summary | None]:
        if self._summarizer is None:
            raise ValueError("summarize: this memory has no summarizer; pass summarizer= to InfiniteMemory")
        ask = Ask(None, self.max_tokens, self.reserve_tokens, system=prompt_text(self.system))
        return self._events.steps(self._events.watch("summarize"), self._prompts.summary_steps(ask))

    # What it is

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing_method(self, name)

    def __repr__(self) -> str:
        whose = "" if self.user_id is None else f" of {self.user_id!r}"
        where = f"on branch {self.branch!r}" if self.branch else "detached at a message"
        return f"<InfiniteMemory: conversation {self.session_id!r}{whose}, {where}>"

    def __str__(self) -> str:
        if self._closed:
            return f"{self!r}, closed"
        budget = self.max_tokens - self.reserve_tokens
        return f"{self!r}, {counted(len(self.messages()), 'message')}, prompts of at most {budget:,} tokens"

    # Closing

    def _rest(self) -> None:
        """Store the vectors that questions have made, close the turn, and take little memory until it is lent again."""
        with self._lock:
            self._checkout.writer.open_turn = None
            if self._closed:
                return
            self._indexes.save_vectors()
            if self._prompts.searcher.backlog.runs:
                return  # the vectors that are still to come are stored by the next call, or by `close`
            self._indexes.rest()

    def close(self) -> None:
        """Save the index and release the store. Closing twice is allowed."""
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    self._prompts.close()
                finally:
                    if self._owns_store:
                        self._indexes.cache.release()
                        self._store.close()

    def __enter__(self) -> "InfiniteMemory":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
