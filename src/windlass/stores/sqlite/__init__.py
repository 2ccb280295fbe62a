"""SQLite: one file, nothing to operate."""

from windlass.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
