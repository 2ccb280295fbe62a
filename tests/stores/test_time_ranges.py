"""Times of creation as ranges of numbers: nothing is left out, and little is walked through."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from tidewheel.core.clock import MICROSECONDS
from tidewheel.stores.query_plan import (
    MAX_CLOCK_DISORDER,
    MAX_SCANNED_NUMBERS,
    SAMPLES_PER_ROUND,
    NumberRange,
    Sample,
    find_number_range,
)

HOUR = 3600 * MICROSECONDS


def _told(jobs: list[Sample], after: int | None, before: int | None) -> tuple[NumberRange, int]:
    """What it comes to for these jobs, and how many times it wanted to look."""
    numbers = [job.number for job in jobs]
    asking = find_number_range(after, before)
    looks = 0
    try:
        wanted = next(asking)
        while True:
            looks += 1
            if wanted is None:
                found = [jobs[0], jobs[-1]] if jobs else []
            else:
                first, last = wanted
                places = (
                    first + (last - first) * i // (SAMPLES_PER_ROUND - 1) for i in range(SAMPLES_PER_ROUND)
                )
                found = [jobs[bisect_left(numbers, place)] for place in places]
            wanted = asking.send(found)
    except StopIteration as told:
        return told.value, looks


def _jobs(disorder: int, *, seed: int) -> list[Sample]:
    """A week of jobs, with gaps where some were removed and hours in which many were made."""
    chance = random.Random(seed)
    jobs, number, moment = [], 0, 1000 * HOUR
    for _ in range(40_000):
        number += chance.choice([1, 1, 1, 1, 50])
        moment += chance.choice([0, 0, 1, 60]) * MICROSECONDS
        jobs.append(Sample(number, moment - chance.randrange(disorder + 1)))
    return jobs


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("disorder", [0, HOUR // 2, MAX_CLOCK_DISORDER])
def test_every_job_of_the_time_is_between_the_numbers(disorder: int, seed: int) -> None:
    """Also those whose clock was up to an hour behind."""
    jobs = _jobs(disorder, seed=seed)
    chance = random.Random(seed)
    for _ in range(10):
        after, before = sorted(chance.choice(jobs).created_at + chance.choice([-1, 0, 1]) for _ in range(2))
        for wanted in ((after, None), (None, before), (after, before)):
            (above, below), _ = _told(jobs, *wanted)
            for job in jobs:
                meant = (wanted[0] or 0) <= job.created_at < (wanted[1] or 2**63)
                inside = (above is None or job.number > above) and (below is None or job.number < below)
                assert inside or not meant, (wanted, job, above, below)


def test_little_is_walked_through_and_few_looks_are_needed() -> None:
    """Ten days of jobs: what an hour more on either side has, and a few thousand numbers."""
    jobs = [Sample(number, number * 3 * MICROSECONDS) for number in range(1, 300_000)]
    after, before = 200_000 * 3 * MICROSECONDS, 210_000 * 3 * MICROSECONDS
    (above, below), looks = _told(jobs, after, before)
    assert above is not None
    assert below is not None
    assert below - above <= 10_000 + 2 * (MAX_CLOCK_DISORDER // (3 * MICROSECONDS) + MAX_SCANNED_NUMBERS)
    assert looks <= 6
    assert _told(jobs, 10**18, None)[0] == NumberRange(299_999, None), "after all of them: none is left"
    assert _told(jobs, None, -MAX_CLOCK_DISORDER)[0] == NumberRange(None, 1)


def test_few_jobs_are_not_looked_at_twice() -> None:
    """Walking through them is as quick."""
    assert _told([], 0, 1) == (NumberRange(), 1)
    assert _told([Sample(1, 0), Sample(2, 0)], 10**18, 0) == (NumberRange(), 1)
