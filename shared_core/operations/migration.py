"""Which steps the schema of a store has taken, and which it has still to take; and taking them."""

from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared_core.errors import StoreError
from shared_core.stores import open_store, read_address, without_password
from shared_core.stores.addresses import split_arguments
from shared_core.stores.sqlite.database_file import connect_to_read, probe, steps_taken
from shared_core.stores.sqlite.schema import MIGRATIONS
from shared_core.stores.sqlite.unopened_copy import copy_database


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a schema.

    Attributes:
        version: its number, which is the version that it leads to.
        name: what it brings.
        applied_at: when it was taken, in ISO 8601. None: it has not been.
        oldest: the oldest version whose programs may go on with the result. None: a file has none, because a program of
            an older version refuses it.
    """

    version: int
    name: str
    applied_at: str | None = None
    oldest: int | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a store.

    Attributes:
        steps: all that are known here, or were taken by a newer version.
    """

    steps: tuple[Step, ...]

    @property
    def version(self) -> int:
        """The version that it has; 0 if the store is empty."""
        return sum(step.applied_at is not None for step in self.steps)

    @property
    def pending(self) -> tuple[Step, ...]:
        """The steps to be taken."""
        return self.steps[self.version :]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"version": self.version, "newest": len(self.steps), "steps": [asdict(step) for step in self.steps]}


def schema_of(store: str | Path) -> Schema:
    """Return the schema of a store, without changing it.

    Args:
        store: a path or an address.

    Raises:
        StoreError: it cannot be read, or belongs to another program or a newer version.
    """
    place = read_address(store)
    if isinstance(place, Path):
        probe(place)
        taken: dict[int, tuple[str, str]] = {}
        if place.exists() and place.stat().st_size:
            with closing(connect_to_read(place)) as connection:
                taken = steps_taken(connection)
        names = [step.name for step in MIGRATIONS]
        return Schema(tuple(Step(n, name, taken.get(n, ("", None))[1]) for n, name in enumerate(names, 1)))
    from shared_core.stores.postgres.migrations import read_steps
    from shared_core.stores.postgres.schema import SCHEMA

    address, arguments = split_arguments(place)
    return Schema(tuple(Step(*step) for step in read_steps(address, arguments.get("schema", SCHEMA))))


def migrate_store(store: str | Path, *, backup: str | Path | None = None) -> Schema:
    """Bring the schema of a store up to date, as opening it does; return what it was before.

    Args:
        store: a path or an address.
        backup: copy a file here first, as it is; the file must not exist.

    Raises:
        StoreError: the store or the backup cannot be written, or belongs to another program or a newer version.
        ValueError: a backup is asked for of a server.
    """
    before = schema_of(store)
    place = read_address(store)
    if backup is not None:
        if not isinstance(place, Path):
            raise ValueError("backup: a server has its own, such as pg_dump")
        if Path(backup).exists():
            raise StoreError(f"{str(backup)!r} exists already; give the path of a new file")
        copy_database(place, Path(backup))
    if before.pending:
        open_store(store).close()
    return before


def refuse_outdated(store: str | Path) -> None:
    """Raise StoreError if a store has steps to take, so that only looking at it does not change it."""
    pending = schema_of(store).pending
    if pending:
        raise StoreError(
            f"{without_password(store)!r} is of an older version; bring it up to date with infinite-memory migrate"
        )
