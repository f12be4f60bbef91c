# ruff: noqa: F403
"""infinite-memory for LangChain: its messages, embeddings and models, for the engine `shared_core`.

A name is loaded when it is first used, so importing the package costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

from shared_core import __version__ as __version__
from shared_core.doors.interop.packages import public_name, require_framework

if TYPE_CHECKING:  # the public names of a module are its `__all__`
    from langchain_infinite_memory.chains.history import *
    from langchain_infinite_memory.chains.runnable import *
    from langchain_infinite_memory.graph import *
    from langchain_infinite_memory.lists import *
    from langchain_infinite_memory.messages import *
    from langchain_infinite_memory.middleware import *
    from langchain_infinite_memory.search import *
    from langchain_infinite_memory.sessions import *
    from langchain_infinite_memory.settings import *
    from langchain_infinite_memory.store import *
    from langchain_infinite_memory.testing import *

require_framework("langchain_core", distribution="langchain-core", extra="langchain")

_MODULES = {
    "graph": ["infinite_memory_node"],
    "chains.history": ["InfiniteChatMessageHistory", "SessionHistories", "session_factory"],
    "lists": ["prune_messages"],
    "messages": ["UnstorableWarning", "from_message", "to_message"],
    "middleware": ["InfiniteMemoryMiddleware"],
    "chains.runnable": ["InfiniteMemoryRunnable", "MemoryFailedWarning", "with_infinite_memory"],
    "search": ["HistoryRetriever", "recall_tool"],
    "sessions": ["SessionPool"],
    "settings": ["as_embedder", "as_summarizer", "as_token_counter"],
    "store": ["InfiniteStore", "remember_tool"],
    "testing": ["EchoChatModel"],
}

__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    return public_name(__name__, _MODULES, name, extra="langchain", optional=("langchain", "langgraph"))


def __dir__() -> list[str]:
    return [*globals(), *__all__]
