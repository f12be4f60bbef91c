"""infinite-memory for LangChain: messages, embeddings and token counters of LangChain, for the engine `shared_core`.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shared_core.errors import MissingExtraError

if TYPE_CHECKING:
    from langchain_infinite_memory.counting import as_token_counter as as_token_counter
    from langchain_infinite_memory.counting import message_counter as message_counter
    from langchain_infinite_memory.embeddings import as_embedder as as_embedder
    from langchain_infinite_memory.messages import UnstorableWarning as UnstorableWarning
    from langchain_infinite_memory.messages import from_message as from_message
    from langchain_infinite_memory.messages import to_message as to_message
    from langchain_infinite_memory.middleware import InfiniteMemoryMiddleware as InfiniteMemoryMiddleware
    from langchain_infinite_memory.node import infinite_memory_node as infinite_memory_node

try:
    _found = find_spec("langchain_core") is not None
except ModuleNotFoundError:  # what an import hook answers that hides a package
    _found = False
if not _found:
    raise MissingExtraError(
        "langchain-core is not installed: pip install 'infinite-memory[langchain]'", name="langchain_core"
    )

_HOMES = {
    "counting": ["as_token_counter", "message_counter"],
    "embeddings": ["as_embedder"],
    "messages": ["UnstorableWarning", "from_message", "to_message"],
    "middleware": ["InfiniteMemoryMiddleware"],
    "node": ["infinite_memory_node"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
