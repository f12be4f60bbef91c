"""Fail on whatever blocks the event loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from blockbuster import BlockBuster, blockbuster_ctx


@contextmanager
def nothing_blocks(**options: Any) -> Iterator[BlockBuster]:
    """Raise BlockingError where a running loop waits, but for what the measuring of coverage waits for."""
    with blockbuster_ctx(**options) as blockbuster:
        blockbuster.functions["threading.Lock.acquire"].can_block_in("coverage/collector.py", {"lock_data"})
        yield blockbuster
