"""Check and prepare new jobs, the same way in every store.

Topic limits and the rules for parents (``after=``) are checked here, so all stores refuse the same calls.

Stores that write many jobs with one statement receive them as columns. Jobs of one call have most values in
common, and encoding or binding those per job costs more than the rest of the write. A column therefore holds
one value per job, or a single value that all jobs share.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any
from uuid import UUID

from msgspec.structs import astuple

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import NewJob
from tidewheel.core.names import shorten
from tidewheel.errors import KeyInUse, LimitExceeded, ParentNotFound
from tidewheel.stores.bounds import MAX_PARENTS, MAX_PARENTS_PER_CALL, StoreLimits


def count_new_jobs_by_topic(jobs: Iterable[NewJob], taken: Set[tuple[Any, ...]]) -> Counter[str]:
    """How many jobs a call adds to each topic; a duplicate, of one ``taken`` or of its own, adds nothing."""
    added: Counter[str] = Counter()
    seen = set(taken)
    for job in jobs:
        key = (job.tenant, job.task or job.topic, job.key)
        if job.key is not None:
            if key in seen:
                continue
            seen.add(key)
        added[job.topic] += 1
    return added


def check_store_limits(
    limits: StoreLimits,
    added: Mapping[str, int],
    *,
    topics: Callable[[], Set[str]],
    active: Callable[[str], int],
) -> LimitExceeded | None:
    """Whether ``added`` new jobs by topic would pass a limit.

    ``topics`` tells which topics have jobs, ``active`` how many pending and running ones a topic has; each is
    only asked when its limit is set. What they answer is of all tenants, so it is not repeated to the caller.
    """
    if limits.max_topics:
        known = topics()
        number = len(known | added.keys())
        if number > max(limits.max_topics, len(known)):
            new = ", ".join(shorten(topic) for topic in sorted(added.keys() - known)[:3])
            return LimitExceeded(
                f"there is no room for new topics ({new}); the limit is {limits.max_topics:,} (max_topics); "
                "use an existing topic or raise it"
            )
    if limits.max_jobs_per_topic:
        for topic, more in added.items():
            if active(topic) + more > limits.max_jobs_per_topic:
                return LimitExceeded(
                    f"topic {topic!r} has no room for {more:,} more; the limit is "
                    f"{limits.max_jobs_per_topic:,} pending and running jobs (max_jobs_per_topic); "
                    "wait for workers or raise it"
                )
    return None


def check_parents(jobs: Sequence[NewJob]) -> bool:
    """Whether any of these is to run after another; raises for what cannot be written.

    A job of the same call is there only for those that stand behind it, so nobody can wait in a circle.
    """
    edges = sum([len(job.after) for job in jobs if job.after])
    if not edges:
        return False
    if edges > MAX_PARENTS_PER_CALL:
        raise LimitExceeded(
            f"{edges:,} jobs to run after are named in one call; the limit is {MAX_PARENTS_PER_CALL:,}, send "
            "them in "
            "several"
        )
    places = {job.id: place for place, job in enumerate(jobs)}
    for place, job in enumerate(jobs):
        if len(job.after) > MAX_PARENTS:
            raise LimitExceeded(
                f"a job is to run after {len(job.after):,} others; the limit is {MAX_PARENTS:,}, put a job "
                "between that runs after some of them"
            )
        for parent in job.after:
            if places.get(parent, -1) >= place:
                raise parent_not_found_error(parent)
    return True


def key_in_use_error(key: str | None) -> KeyInUse:
    """Refuse a job whose key is held by a job that its maker may not see, without a word about that job."""
    return KeyInUse(
        f"key {shorten(key)} is held by a job that this caller may not see; nothing was enqueued. Use "
        "another key, or ask the operator for a manage_rule that shows it"
    )


def parent_not_found_error(parent: UUID | str) -> ParentNotFound:
    """The same words for one that was never there, is gone, is hidden, or is another tenant's."""
    return ParentNotFound(
        f"there is no job {parent} to run after; nothing was enqueued. Enqueue it first, in the same tenant"
    )


Column = Sequence[Any]

_field_names = NewJob.__struct_fields__


def jobs_to_columns(jobs: Sequence[NewJob]) -> dict[str, Column]:
    """The fields of these jobs, at least one, by name."""
    if len(jobs) == 1:
        return dict(zip(_field_names, zip(astuple(jobs[0]), strict=True), strict=True))
    ids, *others = zip(*map(astuple, jobs), strict=True)  # ids never have anything in common
    return dict(zip(_field_names, [ids, *map(collapse_equal, others)], strict=True))


def collapse_equal(column: Column) -> Column:
    """The column with a single value, if that is the value of every job."""
    return column[:1] if column.count(column[0]) == len(column) else column


def column_in_microseconds(seconds: Column) -> Column:
    """A column of seconds as whole microseconds."""
    return [*map(_microseconds, seconds)]


def expand(column: Column, number: int) -> Column:
    """A value for each of so many jobs."""
    return list(column) * number if len(column) == 1 else column


@functools.lru_cache(1000)
def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else seconds_to_microseconds(seconds)
