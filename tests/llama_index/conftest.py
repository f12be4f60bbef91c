"""Fixtures of the tests for LlamaIndex."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from llama_index_infinite_memory import InfiniteChatMemoryBuffer


@pytest.fixture
def made() -> Iterator[Callable[..., InfiniteChatMemoryBuffer]]:
    """Make buffers as `from_defaults` does; they are closed when the test ends."""
    with ExitStack() as buffers:

        def make(**arguments: Any) -> InfiniteChatMemoryBuffer:
            return buffers.enter_context(closing(InfiniteChatMemoryBuffer.from_defaults(**arguments)))

        yield make
