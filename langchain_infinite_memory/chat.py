"""The command `infinite-memory chat`: a chat in the terminal with a LangChain model that remembers."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from langchain_infinite_memory.echo import EchoChatModel
from langchain_infinite_memory.runnable import InfiniteMemoryRunnable
from shared_core.cli.chat_loop import ChatLoop
from shared_core.cli.options import MaxTokens, SessionOptions, with_options
from shared_core.memory import InfiniteMemory

__all__ = ["chat"]


@with_options
def chat(
    options: SessionOptions,
    model: Annotated[
        str,
        typer.Option(metavar="PROVIDER:MODEL", help="A model for init_chat_model; echo is a model that needs no key."),
    ] = "echo",
    max_tokens: MaxTokens = 4096,
) -> None:
    """Chat with a model that remembers; /help lists the commands in the chat."""
    chosen = _model(model)
    settings: dict[str, Any] = {"session_id": options.session, "user_id": options.user, "max_tokens": max_tokens}
    with InfiniteMemory(options.store, on_overflow="keep", **settings) as memory:
        loop = ChatLoop(memory)
        chain = InfiniteMemoryRunnable(chosen, memory=memory, on_error="raise", on_report=loop.keep_report)

        def reply(question: str) -> Iterator[str]:
            for chunk in chain.stream(HumanMessage(question), {"configurable": {"session_id": options.session}}):
                yield chunk.text

        loop.run(options.store, reply)


def _model(name: str) -> BaseChatModel:
    if name == "echo":
        return EchoChatModel()
    try:
        model: BaseChatModel = init_chat_model(name)
    except Exception as error:  # each provider raises errors of its own for a missing key
        raise typer.BadParameter(f"the model {name!r} cannot be used: {error}") from error
    return model
