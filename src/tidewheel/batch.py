"""Batches: one call of a handler for several jobs of its task, and what that call knows of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, overload

from tidewheel.context import Context
from tidewheel.errors import InvalidInput
from tidewheel.names import shorten
from tidewheel.options import check_integer, check_seconds

MAX_BATCH_SIZE: Final = 1000
"""Jobs of one call: as many as a store claims and settles at a time."""
LONGEST_WAIT: Final = 60.0
"""Seconds a batch may wait for more jobs: the first of them waits as long, and holds a slot."""


@dataclass(frozen=True, slots=True, init=False)
class Batch:
    """Up to ``size`` jobs for one call; one that is not full waits at most ``wait`` seconds for more."""

    size: int
    wait: float

    def __init__(self, size: int, wait: float | timedelta = 0.0) -> None:
        seconds = check_seconds("batch wait", wait, 0)
        if seconds > LONGEST_WAIT:
            raise InvalidInput(f"batch wait is {seconds:g} s; the limit is {LONGEST_WAIT:g} s")
        object.__setattr__(self, "size", check_integer("batch size", size, 1, MAX_BATCH_SIZE))
        object.__setattr__(self, "wait", seconds)


def check_batch(given: Any) -> Batch | None:
    """What a task was given for ``batch``."""
    if given is None or isinstance(given, Batch):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidInput(f"batch is {shorten(given)}; give a number of jobs, or Batch(size=…, wait=…)")
    return Batch(given)


class BatchContext(Sequence[Context]):
    """The run of a batch: the context of each of its jobs, in the order of the items."""

    __slots__ = ("_contexts",)

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._contexts = tuple(contexts)

    @overload
    def __getitem__(self, index: int) -> Context: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Context, ...]: ...
    def __getitem__(self, index: int | slice) -> Context | tuple[Context, ...]:
        return self._contexts[index]

    def __len__(self) -> int:
        return len(self._contexts)

    def __iter__(self) -> Iterator[Context]:
        return iter(self._contexts)

    @property
    def task(self) -> str:
        """The name of the task, as its first job has it."""
        return self._contexts[0].job.task

    @property
    def tenant(self) -> str:
        """Whose jobs these are: all of one tenant."""
        return self._contexts[0].tenant

    @property
    def worker(self) -> str:
        """The name of the worker that runs them."""
        return self._contexts[0].worker

    @property
    def cancelled(self) -> bool:
        """True once every one of them should stop. Which ones should, each context says."""
        return all(context.cancelled for context in self._contexts)

    @property
    def shutting_down(self) -> bool:
        """True once the worker has been told to stop."""
        return self._contexts[0].shutting_down

    def __repr__(self) -> str:
        return f"<BatchContext of {len(self)} jobs>"
