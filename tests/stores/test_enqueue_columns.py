"""Jobs turned on their side."""

from __future__ import annotations

from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.stores.enqueue import column_in_microseconds, expand, jobs_to_columns


def test_a_value_all_jobs_share_is_kept_once() -> None:
    """What is the same a thousand times is sent and bound once."""
    jobs = [NewJob(id=new_id(), topic="mail", priority=n) for n in range(3)]
    columns = jobs_to_columns(jobs)
    assert list(columns) == list(NewJob.__struct_fields__)
    assert columns["id"] == tuple(job.id for job in jobs)
    assert columns["priority"] == (0, 1, 2)
    assert columns["topic"] == ("mail",)
    assert columns["key"] == (None,)


def test_one_job_has_one_value_in_every_column() -> None:
    """Its own, whatever it is."""
    job = NewJob(id=new_id(), topic="mail", key="k", timeout=1.5)
    assert jobs_to_columns([job]) == {name: (getattr(job, name),) for name in NewJob.__struct_fields__}


def test_seconds_become_whole_microseconds_and_none_stays_none() -> None:
    """Of a shared value as of many."""
    assert column_in_microseconds((1.5, None, 0.0)) == [1_500_000, None, 0]


def test_a_shared_value_can_be_spread_over_the_jobs_again() -> None:
    """For those who count rows."""
    assert expand(("mail",), 3) == ["mail"] * 3
    assert expand((1, 2, 3), 3) == (1, 2, 3)
