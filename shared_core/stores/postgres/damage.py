"""What is said about rows of PostgreSQL that cannot be read."""

from shared_core.stores.row_values import DamagedRow

ADVICE = "a row was changed or lost outside of this package: restore the database from a backup"
"""What to do about damage."""


def damaged(what: str, why: str) -> DamagedRow:
    """Return the error that says what is damaged, and what to do."""
    return DamagedRow(what, why, ADVICE)
