"""The chat models that the command can talk to: `echo`, which needs no key, and those of other packages."""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer

from shared_core.doors.interop.echo import echo, words
from shared_core.messages import Message
from shared_core.plugins.base import Summarizer
from shared_core.summaries.wording import SUMMARY_PROMPT, instruction

__all__ = ["ECHO", "ChatModel", "ModelName", "chat_model", "merge_summarizer"]

ChatModel = Callable[[Sequence[Message]], Iterator[str]]
"""Takes the messages of a prompt and yields the answer in pieces, as it is written."""

ECHO = "echo"
"""The name of the model that quotes the line of its prompt that answers the question."""

PLUGINS = "infinite_memory.models"
"""The group of entry points under which a package offers the models of a provider, whose name is the entry's.

Each takes the whole name of a model, such as `provider:model`, and returns a `ChatModel`.
"""

ANY = "langchain"
"""The entry that is asked for the models of all other providers."""

ModelName = Annotated[
    str,
    typer.Option(
        "--model", metavar="PROVIDER:MODEL", envvar="INFINITE_MEMORY_MODEL",
        help="The model that answers, for example openai:gpt-4o-mini. It needs the extra langchain and the package of "
        "the provider. The model echo needs neither: it quotes the line that answers.",
    ),
]  # fmt: skip


def chat_model(name: str) -> ChatModel:
    """Return the model of a name.

    Raises:
        MissingExtraError: the package that offers such models is not installed.
        ValueError: there is no such model, or it cannot be used.
    """
    if name == ECHO:
        return _echo
    plugins = {plugin.name: plugin for plugin in entry_points(group=PLUGINS)}
    plugin = plugins.get(name.partition(":")[0]) or plugins.get(ANY)
    if plugin is None:
        raise ValueError(f"no model {name!r}: no package that offers it is installed; {ECHO} is always there")
    model: ChatModel = plugin.load()(name)
    return model


def merge_summarizer(name: str | None) -> Summarizer | None:
    """Return what writes the summary of a merge. None, for no model and for `echo`: it lists what was said."""
    if name in (None, ECHO):
        return None
    model = chat_model(name or "")
    return lambda previous, messages: "".join(model([Message.user(instruction(previous, messages, SUMMARY_PROMPT))]))


def _echo(messages: Sequence[Message]) -> Iterator[str]:
    yield from words(echo([(message.role, message.content) for message in messages]))
