"""The message list of a thread: store what is new in it, leave out what was taken back, and build the prompt."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_infinite_memory.followed_lists import (
    Followed,
    FollowedLists,
    StateList,
    read_list,
)
from langchain_infinite_memory.identity import (
    NOBODY,
    UNDER,
    RunError,
    Thread,
    ThreadRecord,
    erased_question,
    refusal,
)
from langchain_infinite_memory.messages import read_message
from langchain_infinite_memory.request_view import Shown, request_view
from langchain_infinite_memory.sessions import Outage
from langchain_infinite_memory.traces import arecall_run, recall_run
from shared_core.errors import BudgetError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.calls import Steps, arun_steps, run_steps
from shared_core.pool import SessionPool
from shared_core.prompt.context import Context
from shared_core.prompt.hits import Hit, Kind
from shared_core.prompt.report import ContextReport
from shared_core.records import MAIN
from shared_core.runtime.threads import lent_async, threads_of
from shared_core.session.forget import ForgetResult

logger = logging.getLogger("langchain_infinite_memory")

Result = TypeVar("Result")

GROWTHS = 3
"""How often a prompt is built again because other middleware made its messages larger than they are stored."""


@dataclass(frozen=True, slots=True)
class ThreadPrompt:
    """The messages to send.

    Attributes:
        messages: the messages.
        report: the report on them.
        tokens: their size, with everything else that is sent.
    """

    messages: list[BaseMessage]
    report: ContextReport
    tokens: int


@dataclass(frozen=True, slots=True)
class ModelInput:
    """What a model is given, besides what is stored.

    Attributes:
        messages: the list as the model is to see it. What only this list has is sent and charged, but not stored.
        system: system messages that the caller sends before the list: charged, but neither stored nor returned.
        tools: the schemas of tools that the model may call, as JSON; they are charged, too.
        max_tokens: the limit of the model, instead of the pool's `max_tokens`.
    """

    messages: Sequence[BaseMessage]
    system: Sequence[BaseMessage] = ()
    tools: Sequence[Any] = ()
    max_tokens: int | None = None


class Hits(NamedTuple):
    """What a search found, and the newest message of the line that was searched."""

    found: list[Hit]
    newest: list[Message]


class ThreadMemory:
    """Stores the message lists of threads, and builds prompts from them and from what was said before.

    A list is never changed. Its messages are sent as the request has them, except for text that is put before the
    question, and for results of tools that do not fit.

    Args:
        pool: the memories.
    """

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool
        self._lists = FollowedLists(pool.store)
        self._outage = Outage(pool.store)

    # Users

    @property
    def needs_user(self) -> bool:
        """Whether each run must name its user, because it recalls from the user's other sessions, too."""
        return self.pool.settings.get("scope") == "user"

    def owned(self, thread: Thread, messages: Sequence[BaseMessage]) -> Thread:
        """Return the conversation with the user whose it is. A checkpointer keeps a thread for one user, or for nobody.

        Args:
            thread: the conversation, with the user that the run names, if any.
            messages: the list as the graph's state has it.

        Raises:
            RunError: the run names another user. What it brought to the list is never stored nor sent.
            StoreError: the store cannot be read.
        """
        if thread.saver is None:
            return thread
        listed = read_list(messages)
        owner = thread.record.owner if thread.record is not None else self._stored_owner(thread, listed)
        if thread.owner not in (NOBODY, owner):
            try:
                self._lists.erase_brought(replace(thread, user_id=owner or None), listed.talk)
            except Exception as error:  # stores may be the caller's own, and raise anything
                logger.warning("what another user's run brought to thread %r stays there: %s", thread.thread_id, error)
            raise refusal(thread, owner)
        return thread if self.needs_user else replace(thread, user_id=owner or None)

    def _stored_owner(self, thread: Thread, listed: StateList) -> str:
        """Return whose list it is by the messages that are stored, for graphs whose state has no record."""
        ids, store = [message.id for message in listed.talk if message.id is not None], self.pool.store
        if self._lists.newest(thread, listed) is not None or not ids:
            return thread.owner  # their own, or a new thread
        sessions = store.sessions_named(thread.session_id)
        for one in sorted(sessions, key=lambda one: one.user_id != thread.user_id):
            own = one.user_id == thread.user_id
            if store.get(one.key, ids[:1] if own else ids) or store.are_forgotten(one.key, ids):
                return one.user_id or NOBODY
        return thread.owner

    # Prompts

    def prompt(self, thread: Thread, messages: Sequence[BaseMessage], given: ModelInput | None = None) -> ThreadPrompt:
        """Store what is new in the list and return the prompt for its newest human message.

        System messages at the beginning of the list are sent and charged, but not stored. Later ones are stored,
        and sent after those.

        Args:
            thread: the conversation that the list belongs to.
            messages: the list as the graph's state has it, oldest first. It is stored.
            given: what the model is to be given. None: this list, within the pool's `max_tokens`.

        Raises:
            BudgetError: what must be sent exceeds the budget.
            StoreError, EmbedderMismatchError: the memory cannot be used.
            ValueError: the memory cannot be used for this thread, such as one without a user with `scope="user"`.
        """
        with self._lent(thread, messages) as (memory, listed), recall_run(_question(messages)) as recall:
            prompt = run_steps(self._prompt_steps(memory, thread, listed, given or ModelInput(messages)))
            recall.report = prompt.report
            return prompt

    async def aprompt(
        self, thread: Thread, messages: Sequence[BaseMessage], given: ModelInput | None = None
    ) -> ThreadPrompt:
        """Do what `prompt` does without blocking the event loop."""
        async with self._alent(thread, messages) as (memory, listed), arecall_run(_question(messages)) as recall:
            steps = self._prompt_steps(memory, thread, listed, given or ModelInput(messages))
            prompt = await arun_steps(steps, self.call)
            recall.report = prompt.report
            return prompt

    def _prompt_steps(
        self, memory: InfiniteMemory, thread: Thread, listed: StateList, given: ModelInput
    ) -> Steps[ThreadPrompt]:
        try:
            return (yield from self._followed_prompt_steps(memory, thread, listed, given))
        except UnknownReferenceError:  # others have erased the end of the list since it was followed
            self._lists.drop((thread.session_id, thread.user_id), ())
            return (yield from self._followed_prompt_steps(memory, thread, listed, given))

    def _followed_prompt_steps(
        self, memory: InfiniteMemory, thread: Thread, listed: StateList, given: ModelInput
    ) -> Steps[ThreadPrompt]:
        followed = self._follow(memory, thread, listed)
        if not followed.is_asked(listed):
            raise erased_question()
        view = request_view(listed.talk, given.messages)
        limit = memory.max_tokens if given.max_tokens is None else given.max_tokens
        reserve = _reserve(memory, [*given.system, *view.unstored], limit)
        growth, own = 0, followed.by_id(listed)
        for _ in range(1 + GROWTHS):
            reserved = min(reserve + growth, limit)
            context = yield from _context_steps(memory, followed.newest, given.tools, limit, reserved)
            plain = not view.reworded(own).isdisjoint(_recalled(context.report))
            shown = view.show(_listed_system(thread, context.messages, own), own, plain=plain)
            before, growth = growth, max(growth, _growth(memory, shown))
            if growth == before:
                break
        sent_tokens = context.report.total_tokens + reserve + growth - memory.reserve_tokens
        return ThreadPrompt(shown.messages, context.report, sent_tokens)

    # Storing

    def store(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Store what is new in the list, and leave out what was taken back."""
        with self._lent(thread, messages) as (memory, listed):
            self._follow(memory, thread, listed)

    def begin_turn(self, thread: Thread, messages: Sequence[BaseMessage]) -> None:
        """Leave out what was taken back before a run, and store nothing that is new, which others may yet redact.

        A middleware may sum up the rest of the list before the model is called. What it sums up stays recallable, and
        could then not be told apart from what was taken back.
        """
        self._outage.begin(thread)
        listed = read_list(messages)
        if thread.removed == "keep" or self._lists.is_continued(thread, listed):
            return
        with self._lent(thread, messages) as (memory, _):
            if (known := self._lists.stored_part(memory, listed)).talk:
                self._follow(memory, thread, known)

    def _follow(self, memory: InfiniteMemory, thread: Thread, listed: StateList) -> Followed:
        # What helpers say among themselves is not recalled for the user, who searches the main branches of sessions.
        aside = thread.nested and self.needs_user
        with self._outage.storing((thread.session_id, thread.user_id), self._outage.asked(thread)):
            return self._lists.follow(memory, thread, listed, aside=aside)

    def record(self, thread: Thread) -> ThreadRecord:
        """Return what the state is to record of a thread."""
        return self._lists.record(thread) or thread.record or ThreadRecord(thread.owner, thread.session_id)

    # Searching

    def search(self, thread: Thread, messages: Sequence[BaseMessage], query: str, top_k: int) -> Hits:
        """Return what matches a query best on the line that a list stands on."""
        with self._lent(thread, messages) as (memory, listed):
            return run_steps(self._search_steps(memory, thread, listed, query, top_k))

    async def asearch(self, thread: Thread, messages: Sequence[BaseMessage], query: str, top_k: int) -> Hits:
        """Do what `search` does without blocking the event loop."""
        async with self._alent(thread, messages) as (memory, listed):
            return await arun_steps(self._search_steps(memory, thread, listed, query, top_k), self.call)

    def _search_steps(
        self, memory: InfiniteMemory, thread: Thread, listed: StateList, query: str, top_k: int
    ) -> Steps[Hits]:
        self._stand(memory, thread, listed)
        return (yield from hits_steps(memory, query, top_k))

    def _stand(self, memory: InfiniteMemory, thread: Thread, listed: StateList) -> None:
        if memory.branch != MAIN:
            memory.checkout(MAIN)
        if thread.nested and (known := self._lists.stored_part(memory, listed).talk):
            memory.checkout(str(known[-1].id))  # others may work on lists that begin alike, and move `main`
        else:
            _stands_at_end(memory, self._lists.newest(thread, listed))

    # Erasing

    def forget(self, thread: Thread, message_ids: Sequence[str] | None) -> ForgetResult:
        """Erase messages of a session and of those under it, None: all of them.

        Raises:
            UnknownReferenceError: no message of these ids is stored, or no session of this name and user.
        """
        if message_ids is not None and not message_ids:
            return ForgetResult(())
        own = thread.session_id
        under, known = f"{own}{UNDER}", self.pool.sessions(thread.user_id)
        nested = [one.session_id for one in known if one.session_id.startswith(under)]
        results = [self._forget(session, thread.user_id, message_ids) for session in (own, *nested)]
        erased = [result for result in results if result is not None]
        if not erased:
            raise UnknownReferenceError(f"no message {', '.join(map(repr, message_ids or ()))} in session {own!r}")
        if message_ids is None and not any(result.ids or result.reason for result in erased):
            raise UnknownReferenceError(
                f"no session {own!r} of user {thread.user_id!r} holds messages: if it is another user's, pass user_id="
            )
        reason = next((result.reason for result in erased if result.reason is not None), None)
        ids = tuple(id_ for result in erased for id_ in result.ids)
        return ForgetResult(ids, scrubbed=all(result.scrubbed for result in erased), reason=reason)

    def _forget(self, session_id: str, user_id: str | None, message_ids: Sequence[str] | None) -> ForgetResult | None:
        session = session_id, user_id
        with self._outage.storing(session, monotonic()), self.pool.use(*session) as memory:
            result: ForgetResult | None
            if message_ids is None:
                result = memory.forget(session=True)
            else:
                ids = self._lists.forms(memory, message_ids)
                result = memory.forget(ids=ids) if ids else None
        self._lists.drop(session, [*(message_ids or ()), *(result.ids if result is not None else ())])
        return result

    def known_erased(self, thread: Thread, messages: Sequence[BaseMessage]) -> Set[str | None]:
        """Return the ids of messages of a list that were erased, as far as this process knows without the store.

        Raises:
            RunError: its newest question is among them.
        """
        listed = read_list(messages)
        erased = self._lists.known_erased(thread, listed)
        if next((one.id for one in reversed(listed.talk) if isinstance(one, HumanMessage)), None) in erased:
            raise erased_question()
        return erased

    # Memories

    @contextmanager
    def _lent(self, thread: Thread, messages: Sequence[BaseMessage]) -> Iterator[tuple[InfiniteMemory, StateList]]:
        listed = read_list(messages)
        with self._outage.watch():
            memory = self._take(thread, self._outage.asked(thread))
            try:
                yield memory, listed
            finally:
                self.pool.give_back(memory)

    @asynccontextmanager
    async def _alent(
        self, thread: Thread, messages: Sequence[BaseMessage]
    ) -> AsyncIterator[tuple[InfiniteMemory, StateList]]:
        listed = read_list(messages)
        take = partial(self._take, thread, self._outage.asked(thread))
        with self._outage.watch():
            async with lent_async(self.call, take, self.pool.give_back, InfiniteMemory.close) as memory:
                yield memory, listed

    def _take(self, thread: Thread, asked: float) -> InfiniteMemory:
        self._outage.check(asked)
        if thread.user_id is None and self.needs_user:
            raise RunError('scope="user" recalls from all sessions of a user: name the user_id in each run')
        return self.pool.take(thread.session_id, thread.user_id)

    async def call(self, function: Callable[..., Result], /, *given: Any) -> Result:
        """Call a function in a thread of the store's own, and do not block the event loop meanwhile."""
        return await threads_of(self.pool.store).run(function, *given)


def hits_steps(memory: InfiniteMemory, query: str, top_k: int) -> Steps[Hits]:
    """Return the steps of a search, for `run_steps` or `arun_steps`.

    What was said again and again, such as a question that is asked every day, is found once.
    """
    found = yield from memory._search_steps(query, top_k, repeats=1)
    return Hits(found, memory.newest(1))


def _context_steps(
    memory: InfiniteMemory, newest: str | None, tools: Sequence[Any], limit: int, reserve: int
) -> Steps[Context]:
    """Return the steps to the prompt at the end of a list, also if others go on there meanwhile."""
    for _ in range(2):
        context = yield from memory._context_steps(
            None, system=None, tools=tools, max_tokens=limit, reserve_tokens=reserve, include_question=True
        )
        if _stands_at_end(memory, newest):
            break
    return context


def _stands_at_end(memory: InfiniteMemory, newest: str | None) -> bool:
    """Return whether the branch ends where the list ends; if others have gone on there, check out the list's end."""
    if newest is None or [message.id for message in memory.newest(1)] == [newest]:
        return True
    memory.checkout(newest)
    return False


def _listed_system(thread: Thread, prompt: Sequence[Message], known: Mapping[str, BaseMessage]) -> list[Message]:
    """Return a prompt without the system messages that were taken out of the list."""
    if thread.removed == "keep":
        return list(prompt)
    return [one for one in prompt if one.role != "system" or one.pinned or one.id is None or one.id in known]


def _recalled(report: ContextReport) -> set[str | None]:
    """Return the ids of the messages whose text is put before the question as it was stored."""
    return {line.id for line in report.included if line.kind is Kind.RECALLED}


def _question(messages: Sequence[BaseMessage]) -> str:
    return next((str(message.text) for message in reversed(messages) if isinstance(message, HumanMessage)), "")


def _taken(memory: InfiniteMemory, messages: Sequence[BaseMessage]) -> int:
    return sum(memory._count(read_message(message)[0]) for message in messages)


def _reserve(memory: InfiniteMemory, unstored: Sequence[BaseMessage], limit: int) -> int:
    """Return the tokens to keep free: for the reply and for what is not stored; BudgetError if that is too large."""
    taken, budget = _taken(memory, unstored), limit - memory.reserve_tokens
    if taken > budget:
        raise BudgetError(
            f"system messages need {taken:,} tokens, but the budget is {budget:,}: raise max_tokens, lower "
            "reserve_tokens, or shorten them",
            needed=taken,
            available=budget,
        )
    return memory.reserve_tokens + taken


def _growth(memory: InfiniteMemory, shown: Shown) -> int:
    """Return how much larger a prompt is because the request has its messages in another form."""
    sizes = [_taken(memory, [sent]) - _taken(memory, [stored]) for stored, sent in shown.changed]
    return max(0, sum(sizes))
