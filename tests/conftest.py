"""Settings of all tests: no network, no disk, examples per property, little work for the collector; a store."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # as many tests as processors run at once; it is read when numpy is imported

from tests.support import lock_order

lock_order.watch()  # before the locks are made that exist as long as their modules

from shared_core.plugins import calls  # noqa: E402
from shared_core.recall import backlog  # noqa: E402
from tests.support.histories import CountingStore  # noqa: E402

calls.SECONDS = backlog.PATIENCE = 3_600.0  # no test depends on the clock: questions wait for plug-ins

MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**30:
    tempfile.tempdir = MEMORY  # a test may end a process but not the power: to wait for a disk would prove nothing

os.environ["HF_HUB_OFFLINE"] = "1"
# No test needs a certificate, and each HTTP client would load all those of the machine, which takes 20 ms.
os.environ["SSL_CERT_DIR"] = os.devnull
os.environ.pop("SSL_CERT_FILE", None)
os.environ["INFINITE_MEMORY_EMBEDDER"] = "static"  # no test depends on the weights that are on the machine

SOAK = "SOAK" in os.environ
collect_ignore = [
    *([] if "SERVERS" in os.environ else ["stores/test_installed_servers.py"]),
    *([] if SOAK else ["stores/test_mutant_stores.py"]),
]
"""Files that are not collected: what needs installed servers (`make servers`), and what proves the contract (soak)."""

# No test depends on the clock: neither a slow example nor a slow strategy fails on a busy machine.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", patient, max_examples=25)
settings.register_profile("soak", patient, max_examples=2_000)
settings.load_profile("soak" if SOAK else "default")


@pytest.fixture(autouse=True)
def _locks_in_order(request: pytest.FixtureRequest) -> Iterator[None]:
    """No thread acquires fork-safe locks in an order that could deadlock with a fork."""
    yield
    found = list(lock_order.wrong)
    lock_order.wrong.clear()
    assert not found or request.node.get_closest_marker("interleaved")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long versions to `make soak`."""
    long = [] if SOAK else [item for item in items if item.get_closest_marker("soak")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in set(long)]


@pytest.fixture
def store() -> Iterator[CountingStore]:
    """A database in memory."""
    with closing(CountingStore(":memory:")) as store:
        yield store


def pytest_collection_finish() -> None:
    """Let a collection look at what the tests make only: the frameworks' modules alone are 600,000 objects."""
    gc.collect()
    gc.freeze()
