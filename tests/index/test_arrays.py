"""Arrays that NumPy does not have."""

import numpy as np

from shared_core.index.arrays import GrowingArray
from shared_core.index.vectors import to_single_precision


def test_half_precision_is_widened_to_the_last_bit() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)].reshape(-1, 2)
    wide = to_single_precision(finite)
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide.view(np.uint32), finite.astype(np.float32).view(np.uint32))
    np.testing.assert_array_equal(finite, every[np.isfinite(every)].reshape(-1, 2))


def test_an_array_that_begins_with_another_leaves_it_alone() -> None:
    first = np.frombuffer(np.arange(4, dtype=np.int32).tobytes(), dtype=np.int32)
    one, two = GrowingArray.of(first), GrowingArray.of(first[:2])
    assert one.values.base is not None
    for growing in (one, two):
        growing.extend([7])
        growing.extend(np.arange(20))
    assert first.tolist() == [0, 1, 2, 3]
    assert one.values.tolist() == [0, 1, 2, 3, 7, *range(20)]
    assert two.values.tolist() == [0, 1, 7, *range(20)]
