"""What a store has and answers whose database is another's, which has limits of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from tidewheel.model import Enqueued, NewJob
from tidewheel.outcome import Failed


@runtime_checkable
class InParts(Protocol):
    """A store whose ``enqueue`` may write a batch in parts, each of them whole."""

    async def enqueue_whole(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write all of these or none; ``LimitExceeded`` where there are too many for that."""


class Answers(list[bool]):
    """What ``settle`` answers. ``instead``: how jobs ended that were told to be complete, by their places."""

    def __init__(self, accepted: Iterable[bool] = (), instead: Mapping[int, Failed] | None = None) -> None:
        super().__init__(accepted)
        self.instead = dict(instead or {})
