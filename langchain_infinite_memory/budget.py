"""Budget: how many tokens a prompt may take, by what is known of the model that is asked."""

import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from typing import Any, Literal

from langchain_core import exceptions
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables.base import RunnableBindingBase

from shared_core.arguments import in_range, whole_number
from shared_core.prompt.report import ContextReport
from shared_core.runtime.forks import Depth, fork_safe_lock

logger = logging.getLogger("langchain_infinite_memory")

MaxTokens = int | tuple[Literal["fraction"], float] | None

UNKNOWN = 4_096
"""The limit for a model without a profile. Today's models take more; see `Budget.tokens`."""

OVERFLOW: tuple[type[Exception], ...] = tuple(
    error for name, error in vars(exceptions).items() if name == "ContextOverflowError"
)
"""What models raise if a prompt is too large; nothing with versions of langchain-core that do not have the error."""

TOO_LARGE = {"context_length_exceeded", "exceed_context_size_error"}
"""The code of OpenAI, and the type of llama.cpp, of an error that says that a prompt is too large."""

UNCODED = "maximum context length", "exceeds the maximum number of tokens"
"""What vLLM and Google say in the text of such an error, which has no code of its own."""

RECENT = 8
"""Of so many newest answers, the largest ratio counts: see `Budget.observe`."""

STEP, LEAST, MOST = 0.05, 0.8, 2.0
"""The factor goes in steps, so that the start of the window stays where it is. Outside of the bounds, something else
was measured than the counter, such as pictures whose size is estimated."""

FEWEST = 1_000
"""Smaller prompts say nothing about a counter: what providers add to tools or media is most of the difference."""

SPARE = 0.95
"""The share of what should fit that a prompt takes after an overflow, which must not occur twice."""

SHRUNK = 2 / 3
"""The share of a prompt that was too large, if the error does not say by how much."""

_LIMIT = re.compile(
    r"(?:maximum|limit|context size)\D{0,60}?(\d{3,})|(?<!\d)(\d{3,}+) (?:tokens? )?(?:maximum|limit)",
    re.IGNORECASE,
)


class Budget:
    """The size of prompts for the models of an agent. It learns from their answers, and may be shared by threads.

    Args:
        max_tokens: the limit of prompt and reply together: a number; `("fraction", f)`, a share of the input
            that the model takes by its profile; None: all of that, or `UNKNOWN` tokens.

    Raises:
        ValueError, TypeError: `max_tokens` is nothing of this.
    """

    def __init__(self, max_tokens: MaxTokens = None) -> None:
        self.max_tokens = max_tokens
        self._share, self._number = limit_parts(max_tokens)
        self._ratios: dict[str, deque[float]] = {}
        self._said: dict[str, int] = {}  # the limits that providers named
        self._least: int | None = None
        self._lock = fork_safe_lock(Depth.MOMENT)

    def tokens(self, model: Any, *, extra: Callable[[], int] = int) -> int:
        """Return the `max_tokens` of a prompt for a model, in the tokens of the counter that `observe` compares.

        Args:
            model: the chat model, perhaps with bound arguments.
            extra: returns the tokens of tool schemas and of `must_send`, and is called if the limit is `UNKNOWN`: they
                come on top, as that is no limit of the model. It bounds the older text, also the older results of the
                current turn, and nothing that the agent needs is lost for it. With any other limit they are part of it.

        Raises:
            ValueError: the limit is a fraction, and the model has no profile.
        """
        name, known = model_name(model), self._number or _profile_limit(model)
        if known is None and self._share is not None:
            raise ValueError(
                f"max_tokens={self.max_tokens!r}: the model {name!r} has no profile that says how much input it takes; "
                'pass a number of tokens, or give the model one: profile={"max_input_tokens": 128_000}'
            )
        with self._lock:
            is_new = name not in self._ratios
            self._ratios.setdefault(name, deque(maxlen=RECENT))
            limit = min((self._share or 1) * (known or inf), self._said.get(name, inf)) / self._factor(name)
        if known is not None:
            self._least = min(self._least or int(limit), int(limit))
            return int(limit)
        if is_new:
            logger.warning(
                "the model %r has no profile: older text may take %s tokens; pass max_tokens=", name, f"{UNKNOWN:,}"
            )
        return int(min(UNKNOWN + extra(), limit))

    @property
    def least(self) -> int | None:
        """The smallest limit of a model so far; None: the models are unknown."""
        return self._least

    def observe(self, model: Any, estimated: int, answer: Any) -> None:
        """Compare the size of a prompt, as counted here, with what the provider counted.

        The model's limit is divided by the factor between them. Of the `RECENT` newest, the largest counts: too small a
        prompt costs a few old messages, too large a one the whole call. It is rounded up to a multiple of `STEP`.

        Args:
            model: the model that was asked.
            estimated: all that was sent, in tokens: system messages, tool schemas and messages.
            answer: what the model or the handler of a middleware returned. Without `usage_metadata`, nothing happens.
        """
        real = _input_tokens(answer)
        if real and estimated >= FEWEST:
            with self._lock:
                self._ratios.setdefault(model_name(model), deque(maxlen=RECENT)).append(real / estimated)

    def overflowed(self, model: Any, report: ContextReport, error: Exception) -> int:
        """Return the `max_tokens` with which to build the prompt again, after the provider refused it as too large.

        Later prompts for this model count as many more tokens, within the bounds of `observe`, for the `RECENT` newest
        answers. Try only once again: a second error is the caller's.

        Args:
            model: the model that was asked.
            report: the report on the prompt that was refused.
            error: one of which `is_overflow` is true. It is raised if older text is not what makes the prompt too
                large: if even `MOST` times the size that was counted would fit, or if nothing would be left besides
                what is reserved.
        """
        name, size, (limit, asked) = model_name(model), report.total_tokens + report.reserve, _numbers(error)
        shrunk = shrunk_tokens(report, error)
        if shrunk <= report.reserve or (asked and MOST * size < limit):
            raise error
        known = min(limit or inf, self._number or _profile_limit(model) or inf)
        with self._lock:
            if asked:
                self._said[name] = limit
            if known < inf and MOST * size >= known:
                self._ratios.setdefault(name, deque(maxlen=RECENT)).append(known / shrunk)
        return shrunk

    def _factor(self, name: str) -> float:
        ratios = self._ratios.get(name)
        return min(MOST, max(LEAST, ceil(round(max(ratios) / STEP, 6)) * STEP)) if ratios else 1.0


def is_overflow(error: Exception) -> bool:
    """Return whether a provider refused a prompt as too large: as LangChain says it, or as servers of models do.

    In a stream that has begun, such an error has no status of its own.
    """
    if isinstance(error, OVERFLOW) or getattr(error, "status_code", None) not in (400, 413, None):
        return isinstance(error, OVERFLOW)
    body = getattr(error, "body", None)
    told = body if isinstance(body, Mapping) else {}
    return not TOO_LARGE.isdisjoint({str(told.get("code")), str(told.get("type"))}) or any(
        told in str(error) for told in UNCODED
    )


def limit_parts(max_tokens: Any) -> tuple[float | None, int | None]:
    """Return the share and the number that a limit consists of; None for what is not given.

    Raises:
        ValueError, TypeError: it is no limit.
    """
    if not isinstance(max_tokens, tuple):
        return None, None if max_tokens is None else whole_number("max_tokens", max_tokens, least=1)
    if len(max_tokens) != 2 or max_tokens[0] != "fraction":
        raise ValueError(f'max_tokens={max_tokens!r}: expected a number or ("fraction", f)')
    return in_range("max_tokens", max_tokens[1], 0.01, 1), None


def shrunk_tokens(report: ContextReport, error: Exception) -> int:
    """Return the `max_tokens` for a prompt that fits, given the report on one that did not, and what the error says."""
    limit, asked = _numbers(error)
    share = SPARE * limit / asked if asked else SHRUNK
    # System messages of the request are part of the reserve, so that is made smaller, too.
    return max(1, int(share * (report.total_tokens + report.reserve)))


def _numbers(error: Exception) -> tuple[int, int]:
    """Return the limit and the size of a prompt that an error names; 0 for what it does not."""
    text = str(error).replace(",", "")
    found = _LIMIT.search(text)
    limit = int(found[1] or found[2]) if found else 0
    # Other numbers in the text, such as ids, are out of the range.
    return limit, max((size for size in map(int, re.findall(r"\d+", text)) if limit < size < 4 * limit), default=0)


def must_send(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return what every prompt has: the newest human message, and what the model called last, with the results."""
    start = next((n for n in range(len(messages) - 1, -1, -1) if isinstance(messages[n], HumanMessage)), 0)
    turn = messages[start:]
    group = next((n for n in range(len(turn) - 1, 0, -1) if isinstance(turn[n], AIMessage)), 1)
    return [*turn[:1], *turn[group:]]


def model_name(model: Any) -> str:
    """Return the name by which a provider knows a model, or its class's."""
    model = _unbound(model)
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__)


def _unbound(model: Any) -> Any:
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return model


def _profile_limit(model: Any) -> int | None:
    profile = getattr(_unbound(model), "profile", None)  # older versions of LangChain have none
    limit = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return limit if isinstance(limit, int) and limit > 0 else None


def _input_tokens(answer: Any) -> int | None:
    """Return what the provider counted as the input of an answer, as a message or a middleware's response."""
    answer = getattr(answer, "model_response", answer)
    said = [answer] if isinstance(answer, AIMessage) else getattr(answer, "result", ())
    usage = next((one.usage_metadata for one in reversed(said) if isinstance(one, AIMessage)), None)
    return usage.get("input_tokens") if usage else None
