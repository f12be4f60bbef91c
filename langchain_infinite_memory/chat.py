"""The models of LangChain for `infinite-memory chat` and `infinite-memory merge`.

The entry point `infinite_memory.models` in `pyproject.toml` names this module, and nothing here imports it.
"""

from collections.abc import Callable, Iterator, Sequence

from langchain_core.language_models import BaseChatModel

from langchain_infinite_memory.messages import from_message, system_first
from shared_core.errors import require
from shared_core.messages import Message

__all__ = ["chat_model"]


def chat_model(name: str) -> Callable[[Sequence[Message]], Iterator[str]]:
    """Return a model, named as `init_chat_model` names it, that takes a prompt and yields the answer in pieces.

    Raises:
        MissingExtraError: `langchain` is not installed.
        ValueError: there is no such model, or it cannot be used.
    """
    require("langchain", 'pip install "infinite-memory[langchain]"')
    from langchain.chat_models import init_chat_model

    try:
        model: BaseChatModel = init_chat_model(name)
    except Exception as error:  # each provider raises errors of its own for a missing key
        raise ValueError(f"the model {name!r} cannot be used: {error}") from error

    def answer(prompt: Sequence[Message]) -> Iterator[str]:
        for chunk in model.stream([from_message(message) for message in system_first(prompt)]):
            yield chunk.text

    return answer
