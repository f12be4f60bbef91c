"""What a whole store holds, as tables."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from shared_core.display import printable_name
from shared_core.doors.cli.options import CommonOptions
from shared_core.doors.cli.printing import table
from shared_core.operations.store_stats import StoreStats, store_stats
from shared_core.stores import open_store


def answer_store_stats(options: CommonOptions) -> None:
    """Answer with what the whole store holds."""
    options.require_store()
    with closing(open_store(options.store)) as store:
        found = store_stats(store)
    options.answer({"store": options.shown_store, **found.to_dict()}, _lines(found))


def _lines(found: StoreStats) -> Iterator[str]:
    names = ("sessions", "users", "messages", "forgotten", "without_vector", "bytes")
    yield from table({name.replace("_", " "): f"{getattr(found, name):,}" for name in names}).splitlines()
    kinds = [(_bytes(one.bytes), f"{one.rows:,}", one.kind) for one in found.kinds if one.rows]
    yield from _table(("BYTES", "ROWS", "KIND"), kinds)
    parts = [(f"{size:,}", name) for one in found.kinds if one.rows for name, size in one.partitions.items()]
    yield from _table(("BYTES", "PARTITION"), parts)
    spaces = [(f"{one.vectors:,}", f"{one.bytes:,}", printable_name(one.space)) for one in found.spaces]
    yield from _table(("VECTORS", "BYTES", "EMBEDDER"), spaces)
    largest = [
        (f"{one.messages:,}", printable_name(one.user or "-"), printable_name(one.session)) for one in found.largest
    ]
    yield from _table(("MESSAGES", "USER", "SESSION"), largest)


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size:,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield an empty line and a table, if it has rows; all columns but the last are aligned to the right."""
    if not rows:
        return
    yield ""
    wide = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield "  ".join([*(f"{cell:>{size}}" for cell, size in zip(row[:-1], wide, strict=False)), row[-1]])
