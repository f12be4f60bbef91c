# ruff: noqa: F403
"""infinite-memory for LlamaIndex: a chat memory buffer and a memory block that keep every message.

A name is loaded when it is first used, so importing the package costs next to nothing.
"""

from typing import TYPE_CHECKING

import lazy_loader

from shared_core import __version__ as __version__
from shared_core.errors import require

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

require("llama_index.core", 'pip install "infinite-memory[llama-index]"')

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

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_MODULES)
