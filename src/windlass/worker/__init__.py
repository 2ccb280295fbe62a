"""The worker: claims jobs, runs their handlers, settles what came of it."""

from windlass.worker.worker import Worker

__all__ = ["Worker"]
