"""The store whose database is another Tidewheel: its HTTP API."""

from tidewheel.stores.http.store import HttpStore

__all__ = ["HttpStore"]
