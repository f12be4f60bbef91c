"""Settings of all tests: no network, and how many examples the property tests try; and the store of most of them."""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, settings

from tests.support.histories import CountingStore

os.environ["HF_HUB_OFFLINE"] = "1"

# No test depends on the clock: neither a slow example nor a slow strategy fails on a busy machine.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", patient, max_examples=120)
settings.register_profile("soak", patient, max_examples=2_000)
settings.load_profile("soak" if os.environ.get("SOAK") else "default")


@pytest.fixture
def store() -> Iterator[CountingStore]:
    """A database in memory."""
    with closing(CountingStore(":memory:")) as store:
        yield store
