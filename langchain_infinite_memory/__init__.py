"""infinite-memory for LangChain: messages, embeddings and token counters of LangChain, for the engine `shared_core`.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shared_core.errors import MissingExtraError

if TYPE_CHECKING:
    from langchain_infinite_memory.embeddings import as_embedder as as_embedder
    from langchain_infinite_memory.history import InfiniteChatMessageHistory as InfiniteChatMessageHistory
    from langchain_infinite_memory.history import SessionHistories as SessionHistories
    from langchain_infinite_memory.history import session_factory as session_factory
    from langchain_infinite_memory.lists import prune_messages as prune_messages
    from langchain_infinite_memory.messages import UnstorableWarning as UnstorableWarning
    from langchain_infinite_memory.messages import from_message as from_message
    from langchain_infinite_memory.messages import to_message as to_message
    from langchain_infinite_memory.middleware import InfiniteMemoryMiddleware as InfiniteMemoryMiddleware
    from langchain_infinite_memory.node import infinite_memory_node as infinite_memory_node
    from langchain_infinite_memory.recalling import recall_tool as recall_tool
    from langchain_infinite_memory.repair import repair_messages as repair_messages
    from langchain_infinite_memory.runnable import InfiniteMemoryRunnable as InfiniteMemoryRunnable
    from langchain_infinite_memory.runnable import MemoryFailedWarning as MemoryFailedWarning
    from langchain_infinite_memory.runnable import with_infinite_memory as with_infinite_memory
    from langchain_infinite_memory.search import HistoryRetriever as HistoryRetriever
    from langchain_infinite_memory.summarizing import as_summarizer as as_summarizer
    from langchain_infinite_memory.testing import EchoChatModel as EchoChatModel
    from langchain_infinite_memory.token_counters import as_token_counter as as_token_counter
    from langchain_infinite_memory.token_counters import message_counter as message_counter

try:
    _found = find_spec("langchain_core") is not None
except ModuleNotFoundError:  # what an import hook answers that hides a package
    _found = False
if not _found:
    raise MissingExtraError(
        "langchain-core is not installed: pip install 'infinite-memory[langchain]'", name="langchain_core"
    )

_HOMES = {
    "token_counters": ["as_token_counter", "message_counter"],
    "testing": ["EchoChatModel"],
    "embeddings": ["as_embedder"],
    "history": ["InfiniteChatMessageHistory", "SessionHistories", "session_factory"],
    "recalling": ["recall_tool"],
    "repair": ["repair_messages"],
    "search": ["HistoryRetriever"],
    "runnable": ["InfiniteMemoryRunnable", "MemoryFailedWarning", "with_infinite_memory"],
    "summarizing": ["as_summarizer"],
    "lists": ["prune_messages"],
    "messages": ["UnstorableWarning", "from_message", "to_message"],
    "middleware": ["InfiniteMemoryMiddleware"],
    "node": ["infinite_memory_node"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("langchain", "langgraph"):
            raise
        raise MissingExtraError(
            f"{name} needs {package}, which is not installed: pip install 'infinite-memory[langchain]'", name=package
        ) from error


def __dir__() -> list[str]:
    return [*globals(), *__all__]
