"""What a buffer asks the engine for a question, and the engine's prompt as LlamaIndex's messages."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import QueryBundle

from llama_index_infinite_memory.conversation import Conversation
from llama_index_infinite_memory.messages import read_message, to_message
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.plugins.calls import Steps
from shared_core.prompt.context import Context

Input = str | ChatMessage | QueryBundle | None

FIRST_READ = 8
"""How many messages are read first, from the end; then twice as many, and so on."""


class Question(NamedTuple):
    """A question to a buffer.

    Attributes:
        message: the question, if it is not stored; None: the newest user message.
        turn: the newest user message and its replies, as stored.
        limit: the tokens for everything that is sent.
        reserve: the part of them that is taken: by what is sent besides, and by what an agent has written into `turn`.
    """

    message: Message | None
    turn: tuple[Message, ...]
    limit: int
    reserve: int


def read_question(conversation: Conversation, given: Input, limit: int, initial: int) -> Question:
    """Return the question that the input of `get` asks.

    Input with the text of the newest user message stands for that message, as long as it is not answered.

    Args:
        conversation: the conversation.
        given: the input.
        limit: the tokens for everything that is sent.
        initial: the tokens that are sent besides the messages.
    """
    turn = tuple(_newest_turn(conversation.memory))
    asked = _new_question(conversation, given, turn)
    written = _written(conversation, turn[0]) if asked is None and turn else 0
    return Question(asked, turn, limit, min(limit, initial + written))


def _newest_turn(memory: InfiniteMemory) -> list[Message]:
    """Return the newest user message of the branch and its replies; empty if there is no user message."""
    newest = _newest_since(memory, lambda message: message.role == "user")
    return [message for message in newest if message.turn_id == newest[0].turn_id]


def _newest_since(memory: InfiniteMemory, begins: Callable[[Message], bool]) -> list[Message]:
    """Return the newest message that `begins`, and those after it; empty if there is none."""
    size = FIRST_READ
    while True:
        newest = memory.newest(size)
        first = next((index for index in reversed(range(len(newest))) if begins(newest[index])), None)
        if first is not None:
            return newest[first:]
        if len(newest) < size:
            return []
        size *= 2


def _new_question(conversation: Conversation, given: Input, turn: Sequence[Message]) -> Message | None:
    if isinstance(given, ChatMessage):
        message = read_message(given)[0]
    else:
        message = Message.user((given.query_str if isinstance(given, QueryBundle) else given) or "")
    text = message.content
    if not text.strip():
        return None
    if turn and not _is_answered(turn) and text in (turn[0].whole.content, conversation.live_text(turn[0])):
        return None
    return Message.user(text, media_tokens=message.media_tokens)


def _is_answered(turn: Sequence[Message]) -> bool:
    return turn[-1].role == "assistant" and not turn[-1].tool_calls


def _written(conversation: Conversation, stored: Message) -> int:
    """Return the tokens that an agent has written into the newest user message."""
    live, text = conversation.live_text(stored), stored.whole.content
    counter = conversation.settings.counter
    return max(0, counter(live) - counter(text)) if live != text else 0


def prompt_steps(conversation: Conversation, question: Question) -> Steps[Context]:
    """Return the steps to the engine's prompt for a question, which `run_steps` and `arun_steps` take.

    Raises:
        BudgetError: system messages do not fit, and `on_overflow` is not `"keep"`.
    """
    try:
        return (yield from _engine_steps(conversation, question, question.limit))
    except BudgetError as error:
        if isinstance(error, MessageTooLargeError) or conversation.settings.given.get("on_overflow", "keep") != "keep":
            raise
        return (yield from _engine_steps(conversation, question, error.needed + question.reserve))


def _engine_steps(conversation: Conversation, question: Question, max_tokens: int) -> Steps[Context]:
    return conversation.engine._context_steps(
        question.message, system=None, tools=None, max_tokens=max_tokens, reserve_tokens=question.reserve,
        include_question=question.message is None,
    )  # fmt: skip


def prompt_messages(conversation: Conversation, question: Question, context: Context) -> list[ChatMessage]:
    """Return the engine's prompt as LlamaIndex's messages; never empty if a stored message is asked."""
    asked = question.turn[0] if question.message is None and question.turn else None
    shown = [_sent(conversation, message, asked) for message in context.messages]
    if not shown and question.message is None:  # nobody has asked anything yet
        newest = _newest_since(conversation.memory, lambda message: message.role != "tool")
        return [to_message(message.whole) for message in newest]
    return shown


def _sent(conversation: Conversation, message: Message, asked: Message | None) -> ChatMessage:
    """Return a message of the prompt; `asked` is the question as stored."""
    if asked is None or message.id != asked.id:
        return to_message(message)
    # Agents write their state into the question; unless the engine added to it, it is the user's own object.
    plain = asked.whole.grounding is None and message.content == asked.whole.content
    return conversation.live(asked) if plain else to_message(message)
