"""Token counters, and the sizes of messages and tool schemas."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

from shared_core.arguments import whole_number
from shared_core.messages import MOST_TOKENS, Message
from shared_core.plugins.base import OVERHEAD, TokenCounter
from shared_core.tokens.conservative import ConservativeCounter
from shared_core.tokens.tiktoken import TiktokenCounter, TokenFallbackWarning

__all__ = [
    "TOOL_OVERHEAD",
    "CallableCounter",
    "ConservativeCounter",
    "RememberedCounter",
    "TiktokenCounter",
    "TokenFallbackWarning",
    "as_counter",
    "body_tokens",
    "message_tokens",
    "tools_tokens",
]

TOOL_OVERHEAD = 12
"""Tokens of framing per tool schema: 7 to 10 open each function and 12 close the list (OpenAI cookbook, measured)."""


class CallableCounter:
    """Counts with the caller's function, and checks what it returns.

    Args:
        function: takes a text and returns its number of tokens.
        name: identifies the function in the database. None: counts are not stored.
        overhead: the tokens of framing per message.
    """

    def __init__(self, function: Callable[[str], int], name: str | None = None, overhead: int = OVERHEAD) -> None:
        self._function = function
        self.name = name
        self.overhead = whole_number("overhead", overhead, least=0)

    def __call__(self, text: str, /) -> int:
        """Return what the function returns, as an int; `ValueError` if that is not a count."""
        count = self._function(text)
        if type(count) is int and 0 <= count <= MOST_TOKENS:
            return count
        if isinstance(count, Integral) and not isinstance(count, bool) and 0 <= count <= MOST_TOKENS:
            return int(count)  # such as numpy's
        who = self.name or getattr(self._function, "__qualname__", None) or type(self._function).__name__
        raise ValueError(f"token counter {who!r} returned {count!r}; it must return a non-negative int below 2**31")


REMEMBERED = 4_096
"""How many counts a `RememberedCounter` keeps: up to 1 MB. The one that was made first is dropped first."""


class RememberedCounter:
    """Counts with another counter, and few texts more than once.

    Each prompt sizes the same turns anew, with and without their images and grounding, and the same tool schemas. A
    hash stands for a text, so that nothing that is forgotten stays in memory here.

    Args:
        counter: the other counter, whose name and overhead it has.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self.name, self.overhead = counter.name, counter.overhead
        self._counter = counter
        self._known: dict[bytes, int] = {}

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of a text."""
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        count = self._known.get(key)
        if count is None:
            count = self._known[key] = self._counter(text)
            if len(self._known) > REMEMBERED:
                self._known.pop(next(iter(self._known)), None)
        return count


def as_counter(value: TokenCounter | Callable[[str], int] | str | None) -> TokenCounter:
    """Return the token counter that `value` means.

    A counter of this package is returned as it is. Any other `TokenCounter` or callable is wrapped, and what it returns
    is checked; only a `TokenCounter` has a name and an overhead of its own. A str is the name of a tiktoken encoding or
    model, `"conservative"`, `"characters/4"`, which counts a quarter of the characters, rounded down, or the `name` of
    such a counter. None is tiktoken's `o200k_base`. Anything else is a `TypeError`.
    """
    if isinstance(value, type) or not (value is None or isinstance(value, str) or callable(value)):
        raise TypeError(f"token_counter={value!r}: expected a TokenCounter, callable(str) -> int, str or None")
    if value is None:
        return TiktokenCounter()
    if value == "characters/4":
        return CallableCounter(lambda text: len(text) // 4, value)
    if value in ("conservative", ConservativeCounter.name):
        return ConservativeCounter()
    if isinstance(value, str):
        return TiktokenCounter(value)
    if isinstance(value, TiktokenCounter | ConservativeCounter | CallableCounter):
        return value
    if not isinstance(value, TokenCounter):
        return CallableCounter(value)
    if value.name is not None and not isinstance(value.name, str):
        raise TypeError(f"token_counter={value!r}: its name is {value.name!r}; expected a text, or None for none")
    return CallableCounter(value, value.name, value.overhead)


def message_tokens(message: Message, counter: TokenCounter) -> int:
    """Return the tokens a message takes when it is sent: its framing, and `body_tokens`."""
    return counter.overhead + body_tokens(message, counter)


def body_tokens(message: Message, counter: Callable[[str], int]) -> int:
    """Return the tokens of content, media, name, tool calls and tool call id. Grounding is not included."""
    total = message.media_tokens + counter(message.content)
    for call in message.tool_calls:
        total += counter(call.id) + counter(call.name) + counter(call.arguments)
    for extra in (message.name, message.tool_call_id):
        if extra:
            total += counter(extra)
    return total


def tools_tokens(tools: Sequence[Mapping[str, Any] | str], counter: TokenCounter) -> int:
    """Return the tokens of tool schemas: each as compact JSON (a str as it is), plus `TOOL_OVERHEAD`.

    Raises:
        TypeError: `tools` is one schema instead of a sequence, or a schema is neither a str nor a mapping that JSON can
            express.
    """
    if isinstance(tools, str | Mapping):
        raise TypeError(f"tools must be a sequence of tool schemas, not one {type(tools).__name__}; put it in a list")
    return sum(counter(_tool_text(tool)) + TOOL_OVERHEAD for tool in tools)


def _tool_text(tool: Mapping[str, Any] | str) -> str:
    if isinstance(tool, str):
        return tool
    try:
        return json.dumps(dict(tool), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise TypeError(f"a tool schema must be a JSON-able mapping (OpenAI style) or a str, not {tool!r}") from error
