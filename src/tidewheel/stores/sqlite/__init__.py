"""SQLite: one file, nothing to operate."""

from tidewheel.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
