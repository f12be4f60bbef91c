"""Take messages out of the arrays of an index; pure. What is left is what an index built anew from the rest has."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shared_core.index.lexical import LINE_END, MAX_FREQUENCY

Arrays = dict[str, npt.NDArray[Any]]
Numbers = npt.NDArray[np.int64]


def renumbered(count: int, gone: npt.NDArray[np.integer[Any]]) -> Numbers:
    """Return the new number of each of `count` rows without those that are gone; -1 for these."""
    kept = np.ones(count, dtype=np.bool_)
    kept[gone] = False
    return np.where(kept, np.cumsum(kept) - 1, -1)


def postings_without(postings: Mapping[str, npt.NDArray[Any]], numbers: Numbers) -> Arrays:
    """Return the arrays of `Postings` with other row numbers, without the rows and the terms that are gone."""
    packed, sizes, text = postings["postings"], postings["sizes"], postings["vocabulary"]
    rows = numbers[packed >> 8]
    kept = rows >= 0
    ends = np.append(0, np.cumsum(sizes, dtype=np.int64))
    left = np.diff(np.append(0, np.cumsum(kept, dtype=np.int64))[ends])
    lines = np.diff(np.flatnonzero(text == LINE_END), prepend=-1)
    return {
        "vocabulary": text[np.repeat(left > 0, lines)],
        "sizes": left[left > 0].astype(np.int32),
        "postings": (rows[kept] << 8 | packed[kept] & MAX_FREQUENCY).astype(np.uint32),
    }


def in_order_of_use(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the distinct codes that are not negative, in the order in which they occur first."""
    found, first = np.unique(codes, return_index=True)
    used: npt.NDArray[Any] = found[np.argsort(first, kind="stable")]
    return used[used >= 0]


def recoded(codes: npt.NDArray[Any], used: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the rank of each code among those used, -1 for others."""
    most = max(int(codes.max(initial=-1)), int(used.max(initial=-1)))
    ranks = np.full(most + 2, -1, dtype=codes.dtype)  # the last one is that of code -1
    ranks[used] = np.arange(len(used))
    found: npt.NDArray[Any] = ranks[codes]
    return found


def names_without(names: Sequence[str], codes: npt.NDArray[Any]) -> list[str]:
    """Return the names whose codes are used, in the order of their first use."""
    return [names[code] for code in in_order_of_use(codes).tolist()]
