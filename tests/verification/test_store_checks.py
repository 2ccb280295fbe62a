"""What the doctor finds around a store: clocks, and what is worth a verdict."""

from __future__ import annotations

import pytest

from tests.servers.shared import fresh_url
from tidewheel import Tidewheel
from tidewheel.admin.reports.answers import Finding, FindingKind, Severity
from tidewheel.core.clock import SystemClock, seconds_to_microseconds
from tidewheel.verification.store_checks import (
    FindingLevel,
    attention_findings,
    check_open_store,
    clock_difference,
    clock_findings,
    newest_job_findings,
)


class Behind(SystemClock):
    """A machine whose clock is an hour late."""

    def now(self) -> int:
        return super().now() - seconds_to_microseconds(3600)


@pytest.mark.parametrize(
    ("ahead", "uncertain", "level"),
    [
        (0.2, 0.0, None),
        (-0.9, 0.0, None),
        (1.5, 0.0, FindingLevel.DOUBT),
        (-5.0, 0.5, FindingLevel.DOUBT),
        (5.0, 4.5, None),
        (90.0, 0.1, FindingLevel.PROBLEM),
        (-3600.0, 0.1, FindingLevel.PROBLEM),
    ],
)
def test_a_clock_is_told_of_beyond_what_the_way_explains(
    ahead: float, uncertain: float, level: FindingLevel | None
) -> None:
    """A second is in doubt, a minute is wrong; a slow answer proves nothing."""
    assert [finding.level for finding in clock_findings(ahead, uncertain)] == (
        [] if level is None else [level]
    )


async def test_the_clock_of_a_server_is_compared_with_ours() -> None:
    """By how much, and in which direction."""
    async with Tidewheel(fresh_url()) as app:
        ahead, uncertain = await clock_difference(app)
        assert abs(ahead) <= uncertain + 0.5
        app.clock = Behind()
        ahead, _ = await clock_difference(app)
        assert 3599 < ahead < 3601
        found, _ = await check_open_store(app)
        [clock] = [finding for finding in found if finding.kind == "clock"]
        assert clock.level is FindingLevel.PROBLEM
        assert "the store's clock is 1h ahead of this machine's" in clock.text


async def test_a_clock_that_was_set_back_is_told(tmp_path: object) -> None:
    """On one machine there is one clock, and jobs that were made later than now tell of it."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with Tidewheel(url) as app:
        await app.enqueue("mail")
        assert await newest_job_findings(app) == []
    async with Tidewheel(url, clock=Behind()) as app:
        [finding] = await newest_job_findings(app)
        assert finding.level is FindingLevel.DOUBT
        assert "the newest job was made 1h from now" in finding.text


def test_every_kind_of_trouble_with_the_ground_has_a_level() -> None:
    """What grows until it hurts is wrong when it hurts; tasks that fail are for tidewheel why."""
    not_the_doctors = {
        FindingKind.SLOW,
        FindingKind.FAILING_TASK,
        FindingKind.BACKLOG,
        FindingKind.WORKER_LAGGING,
    }
    for kind in FindingKind:
        levels = []
        for severity in (Severity.WARNING, Severity.CRITICAL):
            one = Finding(kind=kind, severity=severity, title="t", explanation="E is so.", remedy="Do it")
            levels += [finding.level for finding in attention_findings([one])]
        assert (not levels) == (kind in not_the_doctors), kind
    full = Finding(
        kind=FindingKind.LITTLE_SPACE,
        severity=Severity.CRITICAL,
        title="",
        explanation="It is full.",
        remedy="Go",
    )
    [finding] = attention_findings([full])
    assert (finding.level, finding.text) == (FindingLevel.PROBLEM, "it is full; go")
