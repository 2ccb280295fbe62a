"""The memory store: the reference every other store is compared with."""

from tidewheel.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
