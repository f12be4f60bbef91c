# ruff: noqa: F403
"""infinite-memory for LangChain: its messages, embeddings and models, for the engine `shared_core`.

A name is loaded when it is first used, so importing the package costs next to nothing.
"""

from typing import TYPE_CHECKING

import lazy_loader

from shared_core import __version__ as __version__
from shared_core.errors import require

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

require("langchain_core", 'pip install "infinite-memory[langchain]"')

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

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_MODULES)
