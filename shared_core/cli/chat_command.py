"""The command chat."""

from typing import Annotated

import typer

from shared_core.cli.chat_loop import ChatLoop
from shared_core.cli.models import ECHO, ModelName, chat_model, merge_summarizer
from shared_core.cli.options import BranchName, MaxTokens, ReserveTokens, SessionOptions, with_options

chat_commands = typer.Typer()


@chat_commands.command()
@with_options
def chat(
    options: SessionOptions,
    model: ModelName = ECHO,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first, with every question.")
    ] = None,
    branch: BranchName = None,
    max_tokens: MaxTokens = 4096,
    reserve_tokens: ReserveTokens = 500,
) -> None:
    """Chat with a model that remembers.

    /help lists what you can do in the chat, such as going on with another branch. The store and the conversation are
    created if they do not exist. Ctrl-C stops an answer.
    """
    answer, summarizer = chat_model(model), merge_summarizer(model)
    limits = {"max_tokens": max_tokens, "reserve_tokens": reserve_tokens}
    with options.create(system=system, on_overflow="keep", **limits) as memory:
        if branch is not None:
            memory.checkout(branch)
        ChatLoop(memory, answer, summarizer=summarizer, check_out=options.check_out).run(options.store)
