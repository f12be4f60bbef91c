"""The store for many workers, on PostgreSQL; needs the extra `postgres`."""

from shared_core.errors import require

require("psycopg", 'pip install "infinite-memory[postgres]"')

from shared_core.stores.postgres.postgres_store import PostgresStore  # noqa: E402

__all__ = ["PostgresStore"]
