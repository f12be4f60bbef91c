"""What keeps a store in order: copies, checks and counts of everything it holds."""

from shared_core.operations.store_check import StoreCheck, check_store, recover_store
from shared_core.operations.store_comparison import differences
from shared_core.operations.store_copy import CopyResult, copy_store
from shared_core.operations.store_stats import StoreStats, store_stats

__all__ = [
    "CopyResult",
    "StoreCheck",
    "StoreStats",
    "check_store",
    "copy_store",
    "differences",
    "recover_store",
    "store_stats",
]
