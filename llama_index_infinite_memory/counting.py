"""LlamaIndex's tokenizer as the engine's token counter."""

from collections.abc import Callable, Sequence, Sized
from functools import partial

import tiktoken
from llama_index.core.base.llms.types import ChatMessage

__all__ = ["SEPARATOR", "TokenizerCounter", "joined_tokens"]

SEPARATOR = " "
"""What `ChatMemoryBuffer` puts between messages before it counts them as one text."""

BLOCK = 20_000
"""Characters given to tiktoken at once: it panics on a million of white space."""


class TokenizerCounter:
    """Counts a text with the space that stands before it, so that messages together need no more than their sum.

    The counts are stored if the tokenizer is LlamaIndex's default, which can be told from others.

    Args:
        tokenizer_fn: from a text to its tokens.
    """

    def __init__(self, tokenizer_fn: Callable[[str], Sized]) -> None:
        self.tokenizer_fn = tokenizer_fn
        encoding = _default_encoding(tokenizer_fn)
        self.name = f"llama-index/{encoding}" if encoding else None

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens of the text, with a space or alone, whichever is more: the first has none."""
        return max(self.tokens(SEPARATOR + text), self.tokens(text))

    def tokens(self, text: str) -> int:
        """Return the number of tokens of the text alone."""
        if self.name is None or len(text) <= BLOCK:
            return len(self.tokenizer_fn(text))
        return sum(len(self.tokenizer_fn(text[at : at + BLOCK])) for at in range(0, len(text), BLOCK))


def joined_tokens(messages: Sequence[ChatMessage], counter: TokenizerCounter) -> int:
    """Return how `ChatMemoryBuffer` counts messages: the text of all as one, and nothing else."""
    return counter.tokens(SEPARATOR.join(str(message.content) for message in messages)) if messages else 0


def _default_encoding(tokenizer_fn: Callable[[str], Sized]) -> str | None:
    if (
        not isinstance(tokenizer_fn, partial)
        or tokenizer_fn.args
        or tokenizer_fn.keywords != {"allowed_special": "all"}
    ):
        return None
    encoding = getattr(tokenizer_fn.func, "__self__", None)
    plain = isinstance(encoding, tiktoken.Encoding) and tokenizer_fn.func == encoding.encode
    return encoding.name if plain and isinstance(encoding, tiktoken.Encoding) else None
