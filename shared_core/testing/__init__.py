"""Contract tests to subclass, a fake embedder and a store that counts, for people who write a store or tests.

The store contract needs pytest and hypothesis; they are imported when it is.
"""

from typing import TYPE_CHECKING, Any

from shared_core.testing.counted_store import CountedStore
from shared_core.testing.hashing_embedder import HashingEmbedder

if TYPE_CHECKING:
    from shared_core.testing.store_contract import StoreContract

__all__ = ["CountedStore", "HashingEmbedder", "StoreContract"]


def __getattr__(name: str) -> Any:
    if name != "StoreContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shared_core.testing.store_contract import StoreContract

    return StoreContract
