"""The store whose database is another Windlass: its HTTP API."""

from windlass.stores.http.store import HttpStore

__all__ = ["HttpStore"]
