"""A full disk does not keep what is to be forgotten."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared_core import InfiniteMemory, Message
from shared_core.errors import StoreError


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of 6 MB."""
    folder = Path("/tmp") / f"im-disk-{os.getpid()}"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder], capture_output=True, check=False)
    try:
        if made.returncode:
            pytest.skip(f"no small disk can be mounted: {made.stderr.decode().strip()}")
        yield folder
    finally:
        if not made.returncode:
            subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()


def test_forgetting_works_on_a_full_disk(disk: Path) -> None:
    path = disk / "chat.db"
    with InfiniteMemory(path) as memory:
        secret = memory.add(Message.user("My PIN is 7351."))[0]
        memory.index()
        with pytest.raises(OSError, match="space"):
            (disk / "rest").write_bytes(bytes(2**23))
    with InfiniteMemory(path) as memory:
        with pytest.raises(StoreError, match="disk"):
            memory.add(Message.user("One more."))
        assert memory.forget(ids=[str(secret.id)]).scrubbed
        assert b"PIN is 7351" not in path.read_bytes()
        assert Path(f"{path}-reserve").exists()
