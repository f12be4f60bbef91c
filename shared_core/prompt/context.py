"""The prompt, and how it is written for the APIs of models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared_core.display import counted
from shared_core.formats.anthropic import anthropic_request
from shared_core.formats.fields import write_each
from shared_core.formats.openai_chat import custom_calls, write_chat
from shared_core.formats.openai_responses import write_items
from shared_core.messages import Message, fields_of
from shared_core.prompt.report import ContextReport


@dataclass(frozen=True, slots=True)
class Context:
    """The prompt for a question, and the report on it.

    Attributes:
        messages: the messages to send, oldest first, with grounding and recalled text included.
        report: why each message is in the prompt or not.
        stable_prefix: how many messages stand before the question and what is recalled for it. The next prompt begins
            with the same ones, so that a provider can cache them, unless its window or summary is another one.
    """

    messages: tuple[Message, ...]
    report: ContextReport
    stable_prefix: int = 0

    @property
    def tokens(self) -> int:
        """The size of the prompt in tokens, including tool schemas and framing."""
        return self.report.total_tokens

    def __repr__(self) -> str:
        return f"<Context: {counted(len(self.messages), 'message')}, {self.report._tokens()}>"

    def to_openai(self) -> list[Any]:
        """Return the prompt for OpenAI's chat completions: `create(model=..., messages=context.to_openai())`.

        Raises:
            ValueError: a message holds what chat completions cannot express. The error names both.
        """
        return write_each([*map(fields_of, self.messages)], lambda fields: [write_chat(fields)])

    def to_responses(self) -> list[Any]:
        """Return the prompt for OpenAI's Responses API: `create(model=..., input=context.to_responses())`.

        Raises:
            ValueError: a message holds what the Responses API cannot express. The error names both.
        """
        given = [*map(fields_of, self.messages)]
        custom = {call_id for fields in given for call_id in custom_calls(fields)}
        return write_each(given, lambda fields: write_items(fields, custom))

    def to_anthropic(self, *, cache_control: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the prompt for Anthropic's API: `create(model=..., max_tokens=..., **context.to_anthropic())`.

        `system` holds all system messages, and is missing if there are none. `messages` holds the others, with blocks
        for tool calls and their results. What one role says in a row is one message, and names stand before the text.
        If the prompt begins with a greeting of the assistant's, a user's message of a few words is put before it.

        Args:
            cache_control: a mark such as `{"type": "ephemeral"}`, which is put where the stable part of the prompt
                ends (`stable_prefix`). The API caches a prompt up to its marks. None: no mark.

        Raises:
            ValueError: a message holds what Anthropic's API cannot express. The error names both.
        """
        return anthropic_request([*map(fields_of, self.messages)], stable=self.stable_prefix, mark=cache_control)
