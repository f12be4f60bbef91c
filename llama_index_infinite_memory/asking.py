"""What a model is given for a question, from a buffer: everything while it fits, else what the engine chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage

from llama_index_infinite_memory.attached import Attached
from llama_index_infinite_memory.counting import joined_tokens
from llama_index_infinite_memory.line import FIRST_LOOK, newest_turn
from llama_index_infinite_memory.messages import read_message, to_message
from llama_index_infinite_memory.settings import NO_LIMIT
from llama_index_infinite_memory.stripping import rejoin, strip
from shared_core.errors import BudgetError, MessageTooLargeError
from shared_core.messages import Message
from shared_core.prompt.context import Context, ContextReport
from shared_core.prompt.frame import render_grounding, with_grounding
from shared_core.tokens import body_tokens

__all__ = [
    "Input", "Question", "built_before", "everything", "prompt", "question", "remember", "report", "wider",
]  # fmt: skip

Input = str | ChatMessage | None

OVERCOUNTED = 2
"""Tokens that a message takes less beside others than it counts alone, at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a memory.

    Attributes:
        message: what is asked, if it is not stored; None: the newest user message.
        turn: the newest user message and what answers it, as stored.
        room: tokens for all that is sent from memory, and for the question.
        budget: those that the engine may use: some are taken by what it does not know of.
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


def question(attached: Attached, given: Input, room: int) -> Question:
    """Return what is meant by the input of `get`.

    An input that says what the newest user message says, to which there is no answer yet, is that message.

    Args:
        attached: the memory.
        given: what `get` was given.
        room: tokens for messages.
    """
    turn = tuple(newest_turn(attached.memory))
    asked = _asked(attached, given, turn)
    if asked is not None or not turn:
        return Question(asked, turn, room, max(0, room))
    # An agent writes into the newest user message, and the model sees all of its turn, also what is set apart.
    apart = sum(_tokens(attached, rejoin(message)) - _tokens(attached, message) for message in turn[1:])
    return Question(None, turn, room, max(0, room - _growth(attached, turn[0]) - apart))


def _asked(attached: Attached, given: Input, turn: Sequence[Message]) -> Message | None:
    message = read_message(given)[0] if isinstance(given, ChatMessage) else Message.user(given or "")
    text = message.content
    if not text.strip():
        return None
    if turn and not _answered(turn) and text in (rejoin(turn[0]).content, attached.written(turn[0])):
        return None
    return strip(Message.user(text, media_tokens=message.media_tokens), attached.settings.strippers)


def _answered(turn: Sequence[Message]) -> bool:
    return turn[-1].role == "assistant" and not turn[-1].tool_calls


def _growth(attached: Attached, stored: Message) -> int:
    written, text = attached.written(stored), rejoin(stored).content
    return max(0, attached.counter(written) - attached.counter(text)) if written != text else 0


def _tokens(attached: Attached, message: Message) -> int:
    return body_tokens(message, attached.counter)


# Everything


def everything(attached: Attached, asked: Question) -> list[ChatMessage] | None:
    """Return all messages of the branch, or None if they do not fit.

    They fit if `ChatMemoryBuffer` says so, which counts their texts as one, with tool calls and media beside.
    """
    if attached.settings.engine.get("scope") == "user":
        return None  # what was said in other sessions may matter, too
    room, growth = asked.room, 0
    if asked.message is not None:
        room -= _tokens(attached, _with_all(asked.message))
    elif asked.turn:
        growth = _growth(attached, asked.turn[0])
    messages = _all_if_few(attached, asked, room)
    if messages is None:
        return None
    total = sum(map(attached.size, messages))
    shown = [_shown(attached, message, asked) for message in messages]
    if total + growth > room:
        texts = sum(attached.counter(message.content) for message in messages)
        if total - texts + joined_tokens(shown, attached.counter) > room:
            return None
    return shown


def _all_if_few(attached: Attached, asked: Question, room: int) -> list[Message] | None:
    """Return all messages of the branch as they are sent whole, or None if that are clearly too many."""
    size = FIRST_LOOK
    while True:
        newest = attached.memory.newest(size)
        whole = [_with_all(message) if _is_asked(message, asked) else rejoin(message) for message in newest]
        if sum(map(attached.size, whole)) - OVERCOUNTED * len(whole) > room:
            return None
        if attached.settings.engine.get("keep_grounding", "newest") != "newest" and any(m.grounding for m in whole):
            return None
        if len(newest) < size:
            return whole
        size *= 2


def _is_asked(message: Message, asked: Question) -> bool:
    return asked.message is None and bool(asked.turn) and message.id == asked.turn[0].id


def _with_all(message: Message) -> Message:
    """Return a message as it is sent with all its grounding."""
    whole = rejoin(message)
    return with_grounding(whole, render_grounding(whole.grounding))


def _shown(attached: Attached, whole: Message, asked: Question) -> ChatMessage:
    if not _is_asked(whole, asked):
        return attached.whole(whole)
    foreign = rejoin(asked.turn[0]).grounding is not None
    return to_message(whole) if foreign else attached.live(asked.turn[0])


# What the engine chooses


def built_before(attached: Attached, asked: Question) -> tuple[Any, Context | None]:
    """Return what the prompt is a function of, and the prompt, if the one built last was built for just that.

    So it is in every round of a tool loop. None is a function of what other sessions hold, or detached.
    """
    engine, store = attached.engine, attached.store
    key = store.session(engine.user_id, engine.session_id)
    if key is None or engine.branch is None or attached.settings.engine.get("scope") == "user":
        return None, None
    moment = (asked.message, asked.budget, engine.branch, store.state(key, engine.branch))
    built = attached.built
    return moment, built[1] if built is not None and built[0] == moment else None


def remember(attached: Attached, moment: Any, context: Context) -> None:
    """Keep the prompt built last, unless the next one may be better, because more will be embedded then."""
    if moment is not None and not context.report.pending and not context.report.degraded:
        attached.built = moment, context


def wider(attached: Attached, asked: Question, error: BudgetError) -> Question:
    """Return the question with as much room as system messages need, as `on_overflow="keep"` has it.

    Raises:
        BudgetError: `error`, if `on_overflow` is another.
    """
    if isinstance(error, MessageTooLargeError) or attached.settings.on_overflow != "keep":
        raise error
    return replace(asked, budget=error.needed)


def prompt(attached: Attached, asked: Question, context: Context) -> list[ChatMessage]:
    """Return the engine's prompt as LlamaIndex's messages; never nothing where something is stored and asked."""
    now = {} if asked.message is not None else {message.id: message for message in asked.turn}
    shown = [_sent(attached, message, now.get(message.id)) for message in context.messages]
    if not shown and asked.message is None:
        return [attached.whole(message) for message in attached.memory.newest(1)]
    return shown


def _sent(attached: Attached, message: Message, stored: Message | None) -> ChatMessage:
    """Return a message of the prompt; `stored` if it belongs to the turn that is asked."""
    if stored is None:
        return attached.sent(message)
    if message.role != "user":
        return attached.whole(stored)
    if message.content != with_grounding(stored, render_grounding(stored.grounding)).content:
        return to_message(message)  # recalled text stands beside it, or what came with it had to be trimmed
    return attached.live(stored) if rejoin(stored).grounding is None else to_message(message)


def report(asked: Question, context: Context) -> ContextReport:
    """Return the report with what `get` keeps free, instead of what the engine was told."""
    return replace(context.report, reserve=asked.room - asked.budget)
