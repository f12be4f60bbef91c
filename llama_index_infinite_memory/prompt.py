"""What a buffer asks the engine for a question, and the engine's prompt as LlamaIndex's messages."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import QueryBundle

from llama_index_infinite_memory.conversation import Conversation, newest_turn
from llama_index_infinite_memory.messages import read_message, to_message
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.messages import Message
from shared_core.prompt.context import Context

Input = str | ChatMessage | QueryBundle | None


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a buffer.

    Attributes:
        message: the question, if it is not stored; None: the newest user message.
        turn: the newest user message and its replies, as stored.
        max_tokens: the buffer's limit.
        reserve: the part of it that is taken: by what is sent besides, and by what an agent has written into `turn`.
    """

    message: Message | None
    turn: tuple[Message, ...]
    max_tokens: int
    reserve: int

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `InfiniteMemory.context`."""
        return {
            "question": self.message,
            "max_tokens": self.max_tokens,
            "reserve_tokens": self.reserve,
            "include_question": self.message is None,
        }


def read_question(conversation: Conversation, given: Input, limit: int, initial: int) -> Question:
    """Return the question that the input of `get` asks.

    Input with the text of the newest user message stands for that message, as long as it is not answered.

    Args:
        conversation: the conversation.
        given: the input.
        limit: the tokens for everything that is sent.
        initial: the tokens that are sent besides the messages.
    """
    turn = tuple(newest_turn(conversation.memory))
    asked = _new_question(conversation, given, turn)
    written = _written(conversation, turn[0]) if asked is None and turn else 0
    return Question(asked, turn, limit, min(limit, initial + written))


def _new_question(conversation: Conversation, given: Input, turn: Sequence[Message]) -> Message | None:
    if isinstance(given, ChatMessage):
        message = read_message(given, conversation.settings.media)[0]
    else:
        message = Message.user((given.query_str if isinstance(given, QueryBundle) else given) or "")
    text = message.content
    if not text.strip():
        return None
    if turn and not _is_answered(turn) and text in (turn[0].whole.content, conversation.live_text(turn[0])):
        return None
    return Message.user(text, media_tokens=message.media_tokens, grounding=message.grounding)


def _is_answered(turn: Sequence[Message]) -> bool:
    return turn[-1].role == "assistant" and not turn[-1].tool_calls


def _written(conversation: Conversation, stored: Message) -> int:
    """Return the tokens that an agent has written into the newest user message."""
    live, text = conversation.live_text(stored), stored.whole.content
    return max(0, conversation.counter(live) - conversation.counter(text)) if live != text else 0


def cached_context(conversation: Conversation, question: Question) -> tuple[Any, Context | None]:
    """Return the state that the prompt depends on, and the newest prompt if it was built for the same state.

    In a tool loop, every round asks for the same prompt. The state is None if it is not known: when the prompt depends
    on other sessions, or when no branch is checked out.
    """
    engine, store = conversation.engine, conversation.store
    key = store.session(engine.user_id, engine.session_id)
    if key is None or engine.branch is None or conversation.settings.scope == "user":
        return None, None
    budget = question.max_tokens - question.reserve
    state = (question.message, budget, engine.branch, store.state(key, engine.branch))
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
    return replace(question, max_tokens=error.needed + question.reserve)


def prompt_messages(conversation: Conversation, question: Question, context: Context) -> list[ChatMessage]:
    """Return the engine's prompt as LlamaIndex's messages; never empty if a stored message is asked."""
    asked = question.turn[0] if question.message is None and question.turn else None
    shown = [_sent(conversation, message, asked) for message in context.messages]
    if not shown and question.message is None:
        return [conversation.whole(message) for message in conversation.memory.newest(1)]
    return shown


def _sent(conversation: Conversation, message: Message, asked: Message | None) -> ChatMessage:
    """Return a message of the prompt; `asked` is the question as stored."""
    if asked is None or message.id != asked.id:
        return conversation.sent(message)
    # Agents write their state into the question; unless the engine added to it, it is the user's own object.
    plain = asked.whole.grounding is None and message.content == asked.whole.content
    return conversation.live(asked) if plain else to_message(message)
