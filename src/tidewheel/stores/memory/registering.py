"""The workers of a ``Book``."""

from __future__ import annotations

from tidewheel.clock import seconds_to_microseconds
from tidewheel.model import WorkerRecord
from tidewheel.stores.memory.book import Book
from tidewheel.stores.protocol import MAX_WORKERS, WORKERS_KEPT_SECONDS


def leave(book: Book, name: str, started_at: int) -> None:
    worker = book.workers.get(name)
    if worker is not None and worker.started_at == started_at:
        del book.workers[name]


def listed(book: Book) -> list[WorkerRecord]:
    newest = sorted(book.workers.values(), key=lambda worker: (-worker.seen_at, worker.name))
    return sorted(newest[:MAX_WORKERS], key=lambda worker: worker.name)


def forget(book: Book, now: int) -> None:
    """Drop those that vanished too long ago to be news."""
    oldest = now - seconds_to_microseconds(WORKERS_KEPT_SECONDS)
    book.workers = {name: worker for name, worker in book.workers.items() if worker.seen_at > oldest}
