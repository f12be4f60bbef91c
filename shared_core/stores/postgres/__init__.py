"""The store for many workers, on PostgreSQL; needs the extra `postgres`."""

from shared_core.stores.postgres.postgres_store import PostgresStore

__all__ = ["PostgresStore"]
