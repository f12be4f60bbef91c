"""infinite-memory for LlamaIndex: a chat memory buffer that forgets nothing, and what goes with it.

Names are loaded when they are first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from shared_core.errors import MissingExtraError

if TYPE_CHECKING:
    from llama_index_infinite_memory.block import InfiniteMemoryBlock as InfiniteMemoryBlock
    from llama_index_infinite_memory.buffer import InfiniteChatMemoryBuffer as InfiniteChatMemoryBuffer
    from llama_index_infinite_memory.embeddings import EngineEmbedding as EngineEmbedding
    from llama_index_infinite_memory.embeddings import as_embedder as as_embedder
    from llama_index_infinite_memory.messages import UnstorableWarning as UnstorableWarning
    from llama_index_infinite_memory.messages import from_message as from_message
    from llama_index_infinite_memory.messages import to_message as to_message
    from llama_index_infinite_memory.strippers import DEFAULT_STRIPPERS as DEFAULT_STRIPPERS
    from llama_index_infinite_memory.strippers import Stripper as Stripper
    from llama_index_infinite_memory.strippers import set_apart as set_apart
    from llama_index_infinite_memory.summarizing import as_summarizer as as_summarizer
    from llama_index_infinite_memory.testing import EchoLLM as EchoLLM
    from llama_index_infinite_memory.verbs import FoundMessage as FoundMessage

try:
    _found = find_spec("llama_index.core") is not None
except ModuleNotFoundError:  # the namespace alone, or nothing of it, is there
    _found = False
if not _found:
    raise MissingExtraError(
        "llama-index-core is not installed: pip install 'infinite-memory[llama-index]'", name="llama_index"
    )

_HOMES = {
    "block": ["InfiniteMemoryBlock"],
    "buffer": ["InfiniteChatMemoryBuffer"],
    "testing": ["EchoLLM"],
    "embeddings": ["EngineEmbedding", "as_embedder"],
    "messages": ["UnstorableWarning", "from_message", "to_message"],
    "strippers": ["DEFAULT_STRIPPERS", "Stripper", "set_apart"],
    "summarizing": ["as_summarizer"],
    "verbs": ["FoundMessage"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
