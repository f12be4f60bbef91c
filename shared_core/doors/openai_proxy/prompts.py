"""The memory of the server: the prompt for a request, and the answer that is stored. All of it runs in threads."""

import logging
import threading
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, chain, takewhile
from types import MappingProxyType
from typing import Any, NamedTuple

from shared_core.doors.openai_proxy.asides import Asides
from shared_core.doors.openai_proxy.identity import new_session
from shared_core.doors.openai_proxy.inspector.request_ring import RequestRing
from shared_core.doors.openai_proxy.protocol import ApiRequest
from shared_core.doors.openai_proxy.refusal import Refused
from shared_core.doors.openai_proxy.response_ids import answer_named, keep_name, messages_with, to_be_named
from shared_core.doors.openai_proxy.seen_histories import Seen, SeenHistories, digests_of
from shared_core.errors import BudgetError, StaleHeadError, UnknownReferenceError
from shared_core.events import EventHook, MemoryEvent
from shared_core.history.followed import FollowedHistory
from shared_core.history.matcher import Removed
from shared_core.history.normal_form import says_the_same
from shared_core.history.unnamed import session_like
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.pool import SessionPool
from shared_core.prompt.context import Context
from shared_core.records import MAIN, Delete, Expect
from shared_core.session.turns import is_prompt

logger = logging.getLogger("shared_core.doors.openai_proxy")

LOCKS = 64
"""Locks for the conversations of a process: two that share one wait for each other, which is rare."""

ASIDE, OVER_LIMIT = "aside", "over-limit"
"""Why a request goes on as it came: it is about a conversation, or what must be sent does not fit."""

AT_ONCE = 128
"""How many messages other requests to one conversation may store while one is read."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """The prompt for a request, and where its answer belongs.

    Attributes:
        messages: the messages to send, as the API writes them. None: the request goes on as it came.
        user: the user whom the conversation belongs to.
        session: the conversation. None: it is a new one, and nothing of it is stored before it is answered.
        history: what was followed. None: nothing was.
        said: the messages of a new conversation.
        report: why each message is in the prompt or not, as plain data.
        number: its number in the ring of requests. None: it is in none.
        header: why the client's own messages are sent, for the header of the response. None: they are not.
    """

    messages: tuple[Any, ...] | None
    user: str | None = None
    session: str | None = None
    history: FollowedHistory | None = None
    said: tuple[Message, ...] = ()
    report: Mapping[str, Any] | None = None
    number: int | None = None
    header: str | None = None

    @property
    def remembered(self) -> bool:
        """Whether the answer is to be stored."""
        return self.history is not None or bool(self.said)


class Written(NamedTuple):
    """A message of a prompt.

    Attributes:
        message: the message.
        made: its entries, as the memory writes them.
        said: the message as the client says it. None: it does not, or it says the same in every field.
        raw: the entries that the client sent for it.
    """

    message: Message
    made: list[Any]
    said: Message | None
    raw: Sequence[Any]


class Prompts:
    """Builds the prompts of all users' conversations and stores the answers.

    Args:
        pool: the memories.
        windows: context limits of models, in tokens, by their names. The others have that of the pool.
        ring: keeps the reports of the newest requests. None: none are kept.
        told: returns the context limit of a model as its server tells it; None: it does not.
        asides: tells which requests are about a conversation.

    Raises:
        ValueError: the pool's memories search all conversations of a user.
    """

    def __init__(
        self, pool: SessionPool, windows: Mapping[str, int] = MappingProxyType({}), ring: RequestRing | None = None,
        told: Callable[[str], int | None] = lambda _: None, asides: Asides | None = None,
    ) -> None:  # fmt: skip
        if pool.settings.get("scope") == "user":
            # The first question of a conversation without a name is answered before the store knows the conversation.
            raise ValueError(
                'a pool with scope="user" cannot be served: the first question of a conversation that has no name '
                'would recall nothing; create the pool with scope="session"'
            )
        self.pool = pool
        self._windows, self._told = dict(windows), told
        self._asides = asides or Asides()
        self._ring = ring
        self._seen = SeenHistories()
        self._locks = [threading.Lock() for _ in range(LOCKS)]

    @contextmanager
    def _alone(self, session: str, user: str | None) -> Iterator[InfiniteMemory]:
        """Lend the memory of a conversation for a block that no other of this process enters meanwhile.

        A question that another request stored between the two steps of a prompt would be in it.
        """
        with self._locks[hash((session, user)) % LOCKS], self.pool.use(session, user) as memory:
            yield memory

    def read(self, request: ApiRequest, *, user: str | None, session: str | None, shared: bool) -> ApiRequest:
        """Return a request with its messages, and what is stored in place of its references to earlier responses.

        Args:
            request: the request.
            user: the user it belongs to.
            session: the conversation that it names.
            shared: whether all users share this server's key at the model's: then it may not refer to anything else.

        Raises:
            Refused: an entry has another form, or an item is not stored and may be another user's.
        """
        if request.previous is None and any(map(request.answers, request.said)):  # alone, the same words are a turn
            digests = digests_of(request.said)
            request = replace(request, digest=digests[-1] if digests else None)
            request = replace(request, known=self._seen_before(user, session, digests))
        try:
            return self._read(request, user, session, shared=shared)
        except Refused:
            if request.known is None:
                raise
            whole = replace(request, known=None)  # the error counts entries from the first
            return self._read(whole, user, session, shared=shared)

    def _read(self, request: ApiRequest, user: str | None, session: str | None, *, shared: bool) -> ApiRequest:
        references = request.references(request.unread())
        if not references:
            return request.read()
        store = self.pool.store.for_user(user)
        name = session if request.known is None else request.known.session
        stored = messages_with(store, user, name, references, () if name else request.read().messages)
        if shared and any(one not in stored for one in references):
            text = "input: an item that is referred to is not stored; send the item itself"
            raise Refused(400, text, code="item_not_found")
        return request.read(stored)

    def _seen_before(self, user: str | None, session: str | None, digests: Sequence[int]) -> Seen | None:
        """Return what a history begins with, if it was seen before and nothing was forgotten since."""
        seen = self._seen.longest(user, session, digests)
        return seen if seen is not None and self._stored(user, seen.session) == seen.stored else None

    def _stored(self, user: str | None, session: str) -> tuple[int, int]:
        """Return the key of a conversation and its epoch; (0, 0): nothing is stored."""
        store = self.pool.store.for_user(user)
        key = store.session(user, session)
        return (0, 0) if key is None else (key, store.state(key).epoch)

    def _note(
        self, request: ApiRequest, user: str | None, session: str, stored: tuple[int, int], history: FollowedHistory
    ) -> None:
        """Note a history that was followed, so that the next request is not matched from its beginning."""
        known = request.known.ends if request.known is not None else array("I")
        pairs = zip(request.messages, request.sent, strict=True)
        sizes = [len(raw) for message, raw in pairs if not is_prompt(message)]
        ends = known + array("I", [*accumulate(sizes, initial=known[-1] if known else 0)][1:])
        ids = tuple(history.split()[0])
        if request.digest is not None and len(ids) == len(ends) and ends[-1:].tolist() == [len(request.said)]:
            self._seen.note(user, request.digest, Seen(session, stored, ids, ends))

    def prompt(
        self, request: ApiRequest, *, user: str | None, session: str | None, report: bool, retried: bool = False,
        client: str = "",
    ) -> Prompted:  # fmt: skip
        """Store what is new in a request and return the prompt.

        Args:
            request: the request.
            user: the user it belongs to.
            session: the conversation that it names. None: the one that its history began or that holds the response
                it goes on after, or a new one.
            report: whether the report on the prompt is wanted.
            retried: whether the client says that it sends the request once more.
            client: the client, as it names itself.

        Raises:
            Refused: the response that it goes on after is not known.
            StoreError: the store cannot be read or written.
        """
        named, after = session is not None, None
        talk = (user, session or "", client)
        known = request.known
        aside = self._asides.known(request) or (known is None and self._asides.alone(talk, request.messages))
        if aside and request.previous is None:  # upstream, the response before it may be another user's
            return Prompted(_as_sent(request), header=ASIDE)
        if request.previous is not None:
            session, after = answer_named(
                self.pool.store.for_user(user), user, session, request.previous, request.messages
            )
        elif known is not None:
            session, after = known.session, known.followed
        elif session is None:
            session = session_like(self.pool.store.for_user(user), user, request.messages)
        if session is None:
            return self._first_prompt(request, user, report=report)
        with self._alone(session, user) as memory:
            if named and after is None:
                request = replace(request, messages=_sent_again(memory, request.messages, retried=retried))
            edited = (
                named and (known is not None or bool(memory.newest(1))) and self._asides.hear(talk, request.opening)
            )
            stored = known.stored if known is not None else self._stored(user, session)
            history = _followed(memory, request, after, named=named and not edited)
            self._note(request, user, session, stored, history)
            try:
                context, sent = self._built(memory, request, history)
            except BudgetError as error:
                return replace(_over_limit(request, error), user=user, session=session, history=history)
        return Prompted(
            sent, user, session, history, (), context.report.to_dict() if report else None,
            self._noted(request, context, user, session),
        )  # fmt: skip

    def _first_prompt(self, request: ApiRequest, user: str | None, *, report: bool) -> Prompted:
        """Return the prompt of a conversation of which nothing is stored."""
        if all(message.role != "user" for message in request.messages):
            return Prompted(None, header="off")
        settings = self.pool.settings
        hook = _of_the_prompt(settings["on_event"], user) if settings.get("on_event") is not None else None
        # In this process alone.
        with InfiniteMemory(user_id=user or "nobody", **{**settings, "on_event": hook}) as memory:
            history = memory.follow(request.messages, removed="leave_out")
            # Under these ids they are stored, too, so that what is told of the prompt leads to them.
            said = tuple(one.replace(id=id_) for one, id_ in zip(request.messages, history.ids, strict=True))
            try:
                context = self._context(memory, request)
            except BudgetError as error:
                return replace(_over_limit(request, error), user=user, said=said)
            sent = _sent(request, _written(context, request, history))
        return Prompted(
            sent, user, said=said, report=context.report.to_dict() if report else None,
            number=self._noted(request, context, user, None),
        )  # fmt: skip

    def _noted(self, request: ApiRequest, context: Context, user: str | None, session: str | None) -> int | None:
        """Put a request into the ring, if there is one, and return its number."""
        if self._ring is None:
            return None
        model = request.body.get("model")
        return self._ring.note(user, session, model if isinstance(model, str) else None, context.report)

    def _built(
        self, memory: InfiniteMemory, request: ApiRequest, history: FollowedHistory
    ) -> tuple[Context, tuple[Any, ...]]:  # fmt: skip
        """Return the prompt for a request, and its entries, with room for answers that the client made longer."""
        context = self._context_of(memory, request, history)
        written = _written(context, request, history)
        longer = _longer(memory, context, written)
        if context.tokens + sum(longer.values()) > context.report.budget:
            try:
                context = self._context_of(memory, request, history, sum(longer.values()))
            except BudgetError:  # what must be sent leaves no room for them
                return context, _sent(request, written)
            written = _written(context, request, history)
        return context, _sent(request, written, longer)

    def _context_of(
        self, memory: InfiniteMemory, request: ApiRequest, history: FollowedHistory, kept_free: int = 0
    ) -> Context:  # fmt: skip
        """Return the prompt for a request, without what others stored after its history meanwhile."""
        context = self._context(memory, request, kept_free)
        if not context.messages or context.messages[-1].id in history.ids:
            return context
        with _standing_still(memory, history):
            return self._context(memory, request, kept_free)

    def _context(self, memory: InfiniteMemory, request: ApiRequest, kept_free: int = 0) -> Context:
        """Return the prompt for a request, within the window of its model; BudgetError: it does not fit."""
        model = str(request.body.get("model"))
        limit = self._windows.get(model) or self._told(model) or memory.max_tokens
        # Clients often allow a reply as long as the window, or longer; the prompt has at least half of it.
        reserve = min(request.reply_tokens or memory.reserve_tokens, limit // 2)
        beside = memory._count(request.beside) if request.beside is not None else 0
        if beside >= limit - reserve:
            raise BudgetError("the instructions do not fit", needed=beside, available=limit - reserve)
        most = max(limit - beside - kept_free, reserve + 1)
        return memory.context(tools=request.body.get("tools"), max_tokens=most, reserve_tokens=reserve)

    def keep(self, prompted: Prompted, answer: Sequence[Message]) -> str | None:
        """Store the answer to a prompt, and return the name of the conversation.

        Raises:
            StoreError: the store cannot be written.
        """
        session = self._kept(prompted, answer)
        if self._ring is not None and prompted.number is not None:
            self._ring.answered(prompted.user, prompted.number, session)
        return session

    def _kept(self, prompted: Prompted, answer: Sequence[Message]) -> str | None:
        store = self.pool.store.for_user(prompted.user)
        if prompted.session is not None and prompted.history is not None:
            with self._alone(prompted.session, prompted.user) as memory:
                answer = to_be_named(store, memory, answer)
                keep_name(memory, answer, memory.follow(answer, after=prompted.history))
                _make_main(memory)
            return prompted.session
        if not prompted.said:
            return None
        session = new_session()
        with self._alone(session, prompted.user) as memory:
            whole = (*prompted.said, *to_be_named(store, memory, answer))
            keep_name(memory, whole, memory.follow(whole, removed="leave_out"))
        return session

    def check(self) -> None:
        """Read from the store; StoreError if it cannot be read."""
        self.pool.store.sessions(limit=1)


def _of_the_prompt(hook: EventHook, user: str | None) -> EventHook:
    """Return a hook for a throw-away memory that passes on what is told of the prompt alone, without the session.

    What that memory stores is stored nowhere.
    """

    def pass_on(event: MemoryEvent) -> None:
        if event.name == "context":
            hook(replace(event, session_id="", user_id=user))

    return EventHook(pass_on, wants_content=hook.wants_content)


def _followed(
    memory: InfiniteMemory, request: ApiRequest, after: FollowedHistory | None, *, named: bool
) -> FollowedHistory:
    """Store what is new in a request, after a response if it names one, or after what was seen before."""
    removed: Removed = "keep" if named or request.previous is not None else "leave_out"
    history = memory.follow(request.messages, after=after, removed=removed, rewritten=True)
    if after is not None:
        return history
    if named and all(message.role != "assistant" for message in request.messages):
        # The client sends only what is new: answers of two requests at once belong to one branch.
        history = replace(history, branch=memory.branch)
    return history


def _make_main(memory: InfiniteMemory) -> None:
    """Let `main` end here. Where it ended before keeps a name, unless that was in the middle of another line."""
    name = memory.branch
    if name == MAIN:
        return
    before = {branch.name for branch in memory.branches()}
    memory.make_main()
    lines = {branch.name: branch.head for branch in memory.branches()}
    name = name or next(iter(lines.keys() - before), None)
    end = None if name is None else lines.pop(name, None)
    live = memory._checkout.live
    longer = [(one, head) for one, head in lines.items() if end is not None and live.path_to(head).covers(end)]
    if name is None or end is None or not longer:
        return
    # Another process may have added to the line that had the name, or moved the one that holds it.
    unmoved = [Expect(live.epoch, *one) for one in ((name, end), longer[0])]
    with suppress(StaleHeadError, UnknownReferenceError):
        memory._store.change(memory._checkout.stored(), [*unmoved, Delete(name)])


def _sent_again(memory: InfiniteMemory, messages: tuple[Message, ...], *, retried: bool) -> tuple[Message, ...]:
    """Return messages of which some were sent before with the ids under which those are stored.

    They are a single question that the client says it sends again, and results of the newest calls from a client that
    sends only what is new. Else their words would stand for other ones, if an answer to them is stored and the client
    has not received all of it.
    """
    asked = [message for message in messages if message.role == "user"] if retried else []
    only_new = all(message.role != "assistant" for message in messages)
    results = only_new and any(message.role == "tool" and message.tool_call_id for message in messages)
    if len(asked) != 1 and not results:
        return messages
    # Of all branches: a process that has just begun stands on `main`, wherever the conversation goes on.
    told = [entry.message for entry in memory.log(AT_ONCE) if entry.message is not None]
    known = [message for message in told if message.role == "user"][:1] if len(asked) == 1 else []
    newest = takewhile(lambda one: results and not one.tool_calls, told)
    known += [message for message in newest if message.role == "tool" and message.tool_call_id]
    ids = {(one.role, one.tool_call_id): one for one in known}

    def with_id(message: Message) -> Message:
        same = ids.get((message.role, message.tool_call_id))
        return (
            message if same is None or message.id or not says_the_same(message, same) else message.replace(id=same.id)
        )

    return tuple(map(with_id, messages))


@contextmanager
def _standing_still(memory: InfiniteMemory, history: FollowedHistory) -> Iterator[None]:
    """Check out the end of a history for a block: what was stored after it since is not part of its prompt."""
    branch, own = memory.branch, set(history.ids)
    end = next((message.id for message in reversed(memory.newest(AT_ONCE)) if message.id in own), None)
    if end is not None:
        memory.checkout(end)
    try:
        yield
    finally:
        if branch is not None:
            memory.checkout(branch)


def _over_limit(request: ApiRequest, error: BudgetError) -> Prompted:
    """Return the messages of a request as they came: without a memory they would reach the model, too."""
    logger.warning(
        "a request went on as it came: tools, system prompt and newest turn take %d tokens of %d; see --window",
        error.needed, error.available,
    )  # fmt: skip
    # Without the response before it, which is known to be this user's, it would say too little.
    return Prompted(None if request.previous is not None else _as_sent(request), header=OVER_LIMIT)


def _as_sent(request: ApiRequest) -> tuple[Any, ...]:
    return tuple(request.given)


def _written(context: Context, request: ApiRequest, history: FollowedHistory) -> list[Written]:
    """Return the messages of a prompt with their entries, and how the client says them."""
    wanted = {message.id for message in context.messages}
    count = len(request.messages) + (len(request.known.ids) if request.known is not None else 0)
    own = {id_: index for index, id_ in enumerate(history.ids[len(history) - count :]) if id_ in wanted}
    written = []
    for message, made in zip(context.messages, request.entries(context), strict=True):
        read, raw = request.at(own[message.id]) if message.id in own else (None, made)
        said = read() if read is not None and [*raw] != made else None  # most are the same, and need not be read
        written.append(Written(message, made, said, raw))
    return written


def _longer(memory: InfiniteMemory, context: Context, written: Sequence[Written]) -> dict[str | None, int]:
    """Return the answers of a prompt that the client wrote anew, and by how many tokens that made them longer.

    The newest ones are sent as the client says them, so long as they add at most half of the prompt.
    """
    left, longer = context.report.budget // 2, dict[str | None, int]()
    for message, _, said, _ in reversed(written):
        if said is not None and _length(said) > _length(message) and not says_the_same(message, said):
            more = max(0, memory._count(said) - memory._count(message))
            if more <= left:
                longer[message.id], left = more, left - more
    return longer


def _length(message: Message) -> int:
    return len(message.content) + sum(len(call.arguments) for call in message.tool_calls)


def _sent(request: ApiRequest, written: Sequence[Written], longer: Collection[str | None] = ()) -> tuple[Any, ...]:
    """Return the messages of a prompt as the API writes them; what the client sent itself goes on as it was sent.

    The memory keeps what it knows of a message. A client may send more, such as fields of its provider, and an answer
    in its own words; those that are `longer` have room.
    """
    if all(message.role != "user" for message, *_ in written):
        return _as_sent(request)  # nothing is asked that a prompt could be built for
    sent = (
        raw if said is not None and _goes_on(message, said, longer) else made for message, made, said, raw in written
    )
    return tuple(chain.from_iterable(sent))


def _goes_on(message: Message, said: Message, longer: Collection[str | None]) -> bool:
    """Return whether a message of a prompt is sent as the client said it: nothing is put beside it, or left out."""
    if message.grounding is not None or said.grounding is not None or message.media_tokens != said.media_tokens:
        return False
    fits = message.id in longer or _length(said) <= _length(message)
    return says_the_same(message, said) or (said.role == "assistant" and fits)
