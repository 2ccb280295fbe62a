"""PostgreSQL: any number of machines on one queue."""

from tidewheel.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
