# ruff: noqa: F403
"""infinite-memory for LlamaIndex: a chat memory buffer and a memory block that keep every message.

A name is loaded when it is first used, so importing the package costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

from shared_core import __version__ as __version__
from shared_core.doors.interop.packages import public_name, require_framework

if TYPE_CHECKING:  # the public names of a module are its `__all__`
    from llama_index_infinite_memory.block import *
    from llama_index_infinite_memory.buffer import *
    from llama_index_infinite_memory.chat_store import *
    from llama_index_infinite_memory.embeddings import *
    from llama_index_infinite_memory.messages import *
    from llama_index_infinite_memory.serialization import *
    from llama_index_infinite_memory.settings import *
    from llama_index_infinite_memory.strippers import *
    from llama_index_infinite_memory.testing import *

require_framework("llama_index.core", distribution="llama-index-core", extra="llama-index")

_MODULES = {
    "block": ["InfiniteMemoryBlock"],
    "buffer": ["InfiniteChatMemoryBuffer"],
    "chat_store": ["InfiniteChatStore"],
    "embeddings": ["as_embedder"],
    "messages": ["UnstorableWarning", "from_message", "to_message"],
    "serialization": ["RestoreWarning"],
    "settings": ["as_summarizer"],
    "strippers": ["DEFAULT_STRIPPERS", "Stripper", "set_apart"],
    "testing": ["EchoLLM"],
}

__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    return public_name(__name__, _MODULES, name, extra="llama-index")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
