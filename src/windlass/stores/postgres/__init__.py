"""PostgreSQL: any number of machines on one queue."""

from windlass.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
