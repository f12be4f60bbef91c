"""Arrays come back from a snapshot as they were, or not at all."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from shared_core.index.snapshot import DIGEST_SIZE, MAGIC, pack, unpack

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


def test_arrays_may_be_views_in_any_order() -> None:
    grid = np.arange(24, dtype=np.int32).reshape(4, 6)
    views = {"transposed": grid.T, "stepped": grid[::2, ::-3], "column": grid[:, 1]}
    unpacked = unpack(pack({}, views))
    assert unpacked is not None
    for name, values in views.items():
        np.testing.assert_array_equal(unpacked[1][name], values)


def test_equal_content_is_equal_bytes() -> None:
    assert pack({"a": 1}, {"x": np.arange(3)}) == pack({"a": 1}, {"x": np.arange(6)[::2] // 2})


@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_anywhere_is_noticed(bit: int) -> None:
    assert unpack(SAMPLE) is not None
    for place in range(len(SAMPLE)):
        damaged = bytearray(SAMPLE)
        damaged[place] ^= 1 << bit
        assert unpack(bytes(damaged)) is None


def test_cut_or_lengthened_bytes_are_noticed() -> None:
    for size in range(len(SAMPLE)):
        assert unpack(SAMPLE[:size]) is None
    assert unpack(SAMPLE + b"\0") is None
    assert unpack(SAMPLE + SAMPLE) is None
    assert unpack(SAMPLE[1:]) is None


@pytest.mark.parametrize(
    "foreign", [b"", b"\0" * 100, MAGIC, MAGIC + b"\0" * DIGEST_SIZE, b"\x80\x04]\x94.", b"PK\x03"]
)
def test_other_bytes_are_no_snapshot(foreign: bytes) -> None:
    assert unpack(foreign) is None


def test_a_snapshot_of_another_version_is_no_snapshot() -> None:
    assert unpack(b"IMSNAP00" + SAMPLE[len(MAGIC) :]) is None
