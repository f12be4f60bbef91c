"""Arrays are restored from a snapshot exactly, or not at all."""

from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from shared_core.index.arrays import (
    CHUNK,
    DIGEST_SIZE,
    MAGIC,
    _checksum,
    pack,
    read_snapshot,
    unpack,
)
from shared_core.records import Snapshot
from shared_core.stores import SQLiteStore

DTYPES = ("<i4", "<i8", "<f2", "<f4", "<f8", "?", "|u1", ">u4", "|i1")

arrays = nps.arrays(
    dtype=st.sampled_from(DTYPES), shape=nps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
)
about = st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=3), st.lists(st.text())))

SAMPLE = pack(
    {"names": ["Ann", "\ud800"], "epoch": 3},
    {"rows": np.arange(5, dtype=np.int32), "none": np.empty((0, 4), dtype=np.float16), "last": np.array([1.5])},
)


@given(about, st.dictionaries(st.text(max_size=3), arrays, max_size=4))
def test_everything_comes_back(about: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
    unpacked = unpack(pack(about, arrays))
    assert unpacked is not None
    assert unpacked[0] == about
    assert list(unpacked[1]) == list(arrays)
    for name, values in arrays.items():
        found = unpacked[1][name]
        assert (found.dtype, found.shape, found.tobytes()) == (values.dtype, values.shape, values.tobytes())


def test_large_content_is_checked_in_order() -> None:
    values = np.random.default_rng(7).integers(0, 256, 3 * CHUNK, dtype=np.uint8)
    data = pack({}, {"x": values})
    assert unpack(data) is not None
    start = data.index(values[:CHUNK].tobytes())
    swapped = bytearray(data)
    swapped[start : start + CHUNK], swapped[start + CHUNK : start + 2 * CHUNK] = (
        data[start + CHUNK : start + 2 * CHUNK], data[start : start + CHUNK],
    )  # fmt: skip
    assert unpack(bytes(swapped)) is None
    for offset in range(0, len(data), 10_007):
        assert unpack(data[:offset] + bytes([data[offset] ^ 16]) + data[offset + 1 :]) is None


@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_anywhere_is_noticed(bit: int) -> None:
    assert unpack(SAMPLE) is not None
    for offset in range(len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[offset] ^= 1 << bit
        assert unpack(bytes(damaged)) is None


@given(st.data())
def test_no_bytes_make_it_raise(data: st.DataObject) -> None:
    damaged = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(at, len(damaged)))
        damaged[at : data.draw(st.sampled_from([at, at + 1, end]))] = data.draw(st.binary(max_size=5))
    unpacked = unpack(bytes(damaged))
    assert (unpacked is None) == (damaged != SAMPLE)


def test_a_store_s_snapshot_is_there_absent_of_another_version_or_damaged() -> None:
    with closing(SQLiteStore(":memory:")) as store:
        session = store.create_session(None, "s")

        def kept(data: bytes) -> tuple[bool, bool]:
            store.keep(session, Snapshot("rows", data), 0)
            found = read_snapshot(store, session, "rows")
            return found.about is not None, found.damaged

        assert not read_snapshot(store, session, "rows").damaged
        assert kept(SAMPLE) == (True, False)
        older, body = b"IMSNAP00", SAMPLE[len(MAGIC) + DIGEST_SIZE :]
        assert kept(older + _checksum(older, body) + body) == (False, False)
        for damaged in (older + SAMPLE[len(MAGIC) :], SAMPLE[:-1], b"", b"?"):
            assert kept(damaged) == (False, True)
