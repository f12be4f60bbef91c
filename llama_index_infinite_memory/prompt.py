"""What a buffer gives a model for a question: the whole conversation while it fits, else what the engine chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory.conversation import FIRST_READ, Conversation, newest_turn
from llama_index_infinite_memory.messages import read_message, to_message
from llama_index_infinite_memory.settings import NO_LIMIT, joined_tokens
from llama_index_infinite_memory.strippers import rejoin, strip
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.messages import Message
from shared_core.prompt.context import Context, ContextReport
from shared_core.prompt.frame import render_grounding, with_grounding
from shared_core.prompt.stubs import is_stub
from shared_core.tokens import body_tokens

Input = str | ChatMessage | None

OVERCOUNTED = 2
"""The most tokens that a message can count less among others than it counts alone."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a buffer.

    Attributes:
        message: the question, if it is not stored; None: the newest user message.
        turn: the newest user message and its replies, as stored.
        room: the tokens for everything that is sent from memory, and for the question.
        budget: the part of them that the engine may use; the rest is taken by text that it does not see.
    """

    message: Message | None
    turn: tuple[Message, ...]
    room: int
    budget: int

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `InfiniteMemory.context`."""
        return {
            "question": self.message,
            "reserve_tokens": NO_LIMIT - self.budget,
            "include_question": self.message is None,
        }


def read_question(conversation: Conversation, given: Input, room: int) -> Question:
    """Return the question that the input of `get` asks.

    Input with the text of the newest user message stands for that message, as long as it is not answered.

    Args:
        conversation: the conversation.
        given: the input.
        room: the tokens for messages.
    """
    turn = tuple(newest_turn(conversation.memory))
    asked = _new_question(conversation, given, turn)
    if asked is not None or not turn:
        return Question(asked, turn, room, max(0, room))
    # Agents write into the newest user message, and the model is shown its whole turn, with text that is set apart.
    apart = sum(_tokens(conversation, rejoin(message)) - _tokens(conversation, message) for message in turn[1:])
    return Question(None, turn, room, max(0, room - _growth(conversation, turn[0]) - apart))


def _new_question(conversation: Conversation, given: Input, turn: Sequence[Message]) -> Message | None:
    message = read_message(given)[0] if isinstance(given, ChatMessage) else Message.user(given or "")
    text = message.content
    if not text.strip():
        return None
    if turn and not _is_answered(turn) and text in (rejoin(turn[0]).content, conversation.live_text(turn[0])):
        return None
    return strip(Message.user(text, media_tokens=message.media_tokens), conversation.settings.strippers)


def _is_answered(turn: Sequence[Message]) -> bool:
    return turn[-1].role == "assistant" and not turn[-1].tool_calls


def _growth(conversation: Conversation, stored: Message) -> int:
    written, text = conversation.live_text(stored), rejoin(stored).content
    return max(0, conversation.counter(written) - conversation.counter(text)) if written != text else 0


def _tokens(conversation: Conversation, message: Message) -> int:
    return body_tokens(message, conversation.counter)


# The whole conversation


def whole_conversation(conversation: Conversation, question: Question) -> list[ChatMessage] | None:
    """Return all messages of the branch; None if they do not fit.

    They are counted as `ChatMemoryBuffer` counts them, as one text, plus tool calls and media.
    """
    if conversation.settings.engine.get("scope") == "user":
        return None  # messages of other sessions may matter, too
    room, growth = question.room, 0
    if question.message is not None:
        room -= _tokens(conversation, _with_grounding(question.message))
    elif question.turn:
        growth = _growth(conversation, question.turn[0])
    messages = _read_if_few(conversation, question, room)
    if messages is None:
        return None
    total = sum(map(conversation.size, messages))
    shown = [_shown(conversation, message, question) for message in messages]
    if total + growth > room:
        texts = sum(conversation.counter(message.content) for message in messages)
        if total - texts + joined_tokens(shown, conversation.counter) > room:
            return None
    return shown


def _read_if_few(conversation: Conversation, question: Question, room: int) -> list[Message] | None:
    """Return all messages of the branch as they were put; None if they are clearly too many."""
    size = FIRST_READ
    while True:
        newest = conversation.memory.newest(size)
        whole = [_with_grounding(message) if _is_question(message, question) else rejoin(message) for message in newest]
        if sum(map(conversation.size, whole)) - OVERCOUNTED * len(whole) > room:
            return None
        if conversation.settings.engine.get("keep_grounding", "newest") != "newest" and any(m.grounding for m in whole):
            return None
        if len(newest) < size:
            return whole
        size *= 2


def _is_question(message: Message, question: Question) -> bool:
    return question.message is None and bool(question.turn) and message.id == question.turn[0].id


def _with_grounding(message: Message) -> Message:
    """Return a message with all its grounding in its content."""
    whole = rejoin(message)
    return with_grounding(whole, render_grounding(whole.grounding))


def _shown(conversation: Conversation, whole: Message, question: Question) -> ChatMessage:
    if not _is_question(whole, question):
        return conversation.whole(whole)
    foreign = rejoin(question.turn[0]).grounding is not None
    return to_message(whole) if foreign else conversation.live(question.turn[0])


# What the engine chooses


def cached_context(conversation: Conversation, question: Question) -> tuple[Any, Context | None]:
    """Return the state that the prompt depends on, and the newest prompt if it was built for the same state.

    In a tool loop, every round asks for the same prompt. The state is None if it is not known: when the prompt depends
    on other sessions, or when no branch is checked out.
    """
    engine, store = conversation.engine, conversation.store
    key = store.session(engine.user_id, engine.session_id)
    if key is None or engine.branch is None or conversation.settings.engine.get("scope") == "user":
        return None, None
    state = (question.message, question.budget, engine.branch, store.state(key, engine.branch))
    built = conversation.built
    return state, built[1] if built is not None and built[0] == state else None


def cache_context(conversation: Conversation, state: Any, context: Context) -> None:
    """Keep a prompt for `cached_context`, unless the next one may be better, because more will be embedded by then."""
    if state is not None and not context.report.pending and not context.report.degraded:
        conversation.built = state, context


def widened(conversation: Conversation, question: Question, error: BudgetError) -> Question:
    """Return the question with the budget that system messages need, for `on_overflow="keep"`.

    Raises:
        BudgetError: `error`, with any other `on_overflow`.
    """
    if isinstance(error, MessageTooLargeError) or conversation.settings.on_overflow != "keep":
        raise error
    return replace(question, budget=error.needed)


def prompt_messages(conversation: Conversation, question: Question, context: Context) -> list[ChatMessage]:
    """Return the engine's prompt as LlamaIndex's messages; never empty if a stored message is asked."""
    current = {} if question.message is not None else {message.id: message for message in question.turn}
    shown = [_sent(conversation, message, current.get(message.id)) for message in context.messages]
    if not shown and question.message is None:
        return [conversation.whole(message) for message in conversation.memory.newest(1)]
    return shown


def _sent(conversation: Conversation, message: Message, stored: Message | None) -> ChatMessage:
    """Return a message of the prompt; `stored` is that message as stored, if it belongs to the turn of the question."""
    if stored is None:
        return conversation.sent(message)
    if message.role != "user":
        return to_message(message) if is_stub(message) else conversation.whole(stored)
    if message.content != with_grounding(stored, render_grounding(stored.grounding)).content:
        return to_message(message)  # recalled messages stand before it, or its grounding was trimmed
    return conversation.live(stored) if rejoin(stored).grounding is None else to_message(message)


def as_report(question: Question, context: Context) -> ContextReport:
    """Return the report with the tokens that `get` keeps free, instead of those that the engine was told to."""
    return replace(context.report, reserve=question.room - question.budget)
