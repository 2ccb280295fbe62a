"""The checker sees what is wrong with a history, and nothing in one that is right."""

from __future__ import annotations

import pytest

from tests.verification.written_histories import LEASE, Story, job
from tidewheel.verification.history import Result
from tidewheel.verification.invariants import INVARIANTS, Invariant


def ordinary() -> Story:
    """One job, enqueued, run and completed."""
    return Story().enqueue(1).claim("a", (1, 1)).run("a", 1, 1).settle("a", 1, 1)


def handed_on() -> Story:
    """The first worker dies with the job; the lease runs out and the second has it."""
    story = Story().enqueue(1).claim("a", (1, 1)).run("a", 1, 1, well=None).dies("a")
    return story.later(LEASE + 0.2).claim("b", (1, 2), attempt=2).run("b", 1, 2)


GOOD = {
    "completed": lambda: ordinary().stored(1).counted(completed=1),
    "completed by the second worker": lambda: (
        handed_on().settle("b", 1, 2).stored(1, fence=2, attempt=2).counted(completed=1)
    ),
    "a lost answer to an ending that was accepted": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .run("a", 1, 1)
        .settle("a", 1, 1, result=Result.UNKNOWN)
        .settle("a", 1, 1, accepted=False)
        .stored(1)
    ),
    "a lost answer to an enqueue, written": lambda: (
        Story().enqueue(1, result=None).claim("a", (1, 1)).run("a", 1, 1).settle("a", 1, 1).stored(1)
    ),
    "a lost answer to an enqueue, not written": lambda: Story().enqueue(1, 2, result=Result.UNKNOWN),
    "an enqueue that failed": lambda: Story().enqueue(1, result=Result.FAILED),
    "a duplicate": lambda: (
        Story().enqueue(1, key="k").enqueue(2, key="k", duplicate_of=1).attempt("a", 1, 1).stored(1, key="k")
    ),
    "extended beyond its first end": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .later(5)
        .extend("a", 1, 1)
        .later(8)
        .run("a", 1, 1)
        .settle("a", 1, 1)
        .stored(1)
    ),
    "a late ending that was refused": lambda: (
        handed_on().settle("a", 1, 1, accepted=False).settle("b", 1, 2).stored(1, fence=2, attempt=2)
    ),
    "failed by time": lambda: (
        Story()
        .enqueue(1, max_attempts=1)
        .claim("a", (1, 1))
        .run("a", 1, 1, well=None)
        .dies("a")
        .later(LEASE)
        .stored(1, "failed", error="worker_lost", max_attempts=1)
    ),
    "retried too often": lambda: (
        Story()
        .enqueue(1, max_attempts=1)
        .claim("a", (1, 1))
        .run("a", 1, 1, well=False)
        .settle("a", 1, 1, "retry")
        .stored(1, "failed", max_attempts=1, error="boom")
    ),
    "cancelled while it waited": lambda: Story().enqueue(1).cancel(1).stored(1, "cancelled", 0, attempt=0),
    "retried and due again": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .run("a", 1, 1, well=False)
        .settle("a", 1, 1, "retry", delay=3.0)
        .later(3)
        .claim("b", (1, 2), attempt=2)
        .run("b", 1, 2)
        .settle("b", 1, 2)
        .stored(1, fence=2, attempt=2)
    ),
    "found as soon as it could be": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .dies("a")
        .later(LEASE + 0.5)
        .claim("b")
        .later(0.4)
        .claim("b", (1, 2), attempt=1)
        .run("b", 1, 2)
        .settle("b", 1, 2)
        .stored(1, fence=2)
    ),
    "an answer that came after that to a later claim": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1), takes=LEASE + 3)
        .later(LEASE + 1)
        .claim("b", (1, 2))
        .run("b", 1, 2, well=False)
        .settle("b", 1, 2, "retry", delay=4.0)
        .later(4.1)
        .settle("a", 1, 1, accepted=False)
        .claim("b", (1, 3), attempt=2)
        .run("b", 1, 3)
        .settle("b", 1, 3)
        .stored(1, fence=3, attempt=2)
    ),
    "an orphan granted to a claim nobody heard of": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .run("a", 1, 1, well=None)
        .dies("a")
        .later(LEASE + 0.2)
        .claim("c", result=Result.UNKNOWN)
        .later(2)
        .claim("b")
        .later(LEASE)
        .claim("b", (1, 3), attempt=3)
        .run("b", 1, 3)
        .settle("b", 1, 3)
        .stored(1, fence=3, attempt=3)
    ),
    "an extension that came into force after its worker's death": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .extend("a", 1, 1, result=None)
        .dies("a")
        .later(LEASE + 1.5)
        .claim("b")
        .later(2)
        .attempt("b", 1, 2)
        .stored(1, fence=2)
    ),
    "seen by its own tenant": lambda: (
        Story()
        .enqueue(1, tenant="acme")
        .listed("acme", 1)
        .claim("a", (1, 1), tenant="acme")
        .run("a", 1, 1)
        .settle("a", 1, 1)
        .stored(1, tenant="acme")
    ),
    "an ending sent again after the lease, whose first answer was lost": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .run("a", 1, 1)
        .settle("a", 1, 1, result=Result.UNKNOWN)
        .later(LEASE + 2)
        .settle("a", 1, 1)
        .stored(1)
    ),
    "a retry sent again, whose first answer was lost": lambda: (
        Story()
        .enqueue(1)
        .claim("a", (1, 1))
        .run("a", 1, 1, well=False)
        .settle("a", 1, 1, "retry", delay=3.0, result=Result.UNKNOWN)
        .later(2)
        .settle("a", 1, 1, "retry", delay=3.0)
        .later(1)
        .claim("b", (1, 2), attempt=2)
        .run("b", 1, 2)
        .settle("b", 1, 2)
        .stored(1, fence=2, attempt=2)
    ),
    "an extension refused because the ending was accepted": lambda: (
        ordinary().extend("a", 1, 1, kept=False).stored(1)
    ),
}


@pytest.mark.parametrize("story", GOOD.values(), ids=GOOD)
def test_what_can_happen_is_no_violation(story: type[Story]) -> None:
    """Deaths, lost answers and late writers are part of life; the checker finds nothing wrong with them."""
    assert story().quiet().check().violations == []


BAD = {
    "acknowledged and gone": ("acknowledged", lambda: Story().enqueue(1)),
    "failed and there": (
        "acknowledged",
        lambda: Story().enqueue(1, result=Result.FAILED).stored(1, "cancelled", 0).cancel(1),
    ),
    "never asked for": ("acknowledged", lambda: Story().cancel(1).stored(1, "cancelled", 0)),
    "stored twice": ("acknowledged", lambda: ordinary().stored(1).stored(1)),
    "two jobs with one key": (
        "acknowledged",
        lambda: (
            Story()
            .enqueue(1, key="k")
            .enqueue(2, key="k")
            .cancel(1)
            .cancel(2)
            .stored(1, "cancelled", 0, key="k")
            .stored(2, "cancelled", 0, key="k")
        ),
    ),
    "a duplicate of a stranger": (
        "acknowledged",
        lambda: Story().enqueue(1).enqueue(2, key="k", duplicate_of=1).cancel(1).stored(1, "cancelled", 0),
    ),
    "still running": ("ended", lambda: Story().enqueue(1).claim("a", (1, 1)).stored(1, "running")),
    "another end than the accepted one": ("ended", lambda: ordinary().stored(1, "failed")),
    "ended twice": (
        "ended",
        lambda: (
            ordinary().later(LEASE).claim("b", (1, 2)).run("b", 1, 2).settle("b", 1, 2).stored(1, fence=2)
        ),
    ),
    "completed by nobody": ("ended", lambda: Story().enqueue(1).claim("a", (1, 1)).run("a", 1, 1).stored(1)),
    "failed by nobody": ("ended", lambda: Story().enqueue(1).stored(1, "failed", 0, error="boom")),
    "cancelled by nobody": ("ended", lambda: Story().enqueue(1).stored(1, "cancelled", 0)),
    "one fence for two jobs": (
        "leases",
        lambda: (
            Story()
            .enqueue(1, 2)
            .claim("a", (1, 1))
            .claim("b", (2, 1))
            .run("a", 1, 1)
            .run("b", 2, 1)
            .settle("a", 1, 1)
            .settle("b", 2, 1)
            .stored(1)
            .stored(2)
        ),
    ),
    "fences that shrink": (
        "leases",
        lambda: (
            Story().enqueue(1).claim("a", (1, 2)).settle("a", 1, 2, "release").attempt("b", 1, 1).stored(1)
        ),
    ),
    "two holders at once": (
        "leases",
        lambda: Story().enqueue(1).claim("a", (1, 1)).later(5).attempt("b", 1, 2).stored(1, fence=2),
    ),
    "taken though it had been extended": (
        "leases",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .later(9)
            .extend("a", 1, 1)
            .later(2)
            .attempt("b", 1, 2)
            .stored(1, fence=2)
        ),
    ),
    "a late ending was accepted": (
        "fenced",
        lambda: handed_on().settle("a", 1, 1, "release").settle("b", 1, 2).stored(1, fence=2, attempt=2),
    ),
    "an ending after the end": (
        "fenced",
        lambda: (
            Story().enqueue(1).claim("a", (1, 1)).run("a", 1, 1).later(LEASE + 1).settle("a", 1, 1).stored(1)
        ),
    ),
    "an extension after the end": (
        "fenced",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .later(LEASE + 1)
            .extend("a", 1, 1)
            .run("a", 1, 1)
            .settle("a", 1, 1)
            .stored(1)
        ),
    ),
    "an extension under an older fence": (
        "fenced",
        lambda: handed_on().extend("a", 1, 1).settle("b", 1, 2).stored(1, fence=2, attempt=2),
    ),
    "completed without a run": (
        "fenced",
        lambda: Story().enqueue(1).claim("a", (1, 1)).settle("a", 1, 1).stored(1),
    ),
    "completed by a run that raised": (
        "fenced",
        lambda: Story().enqueue(1).claim("a", (1, 1)).run("a", 1, 1, well=False).settle("a", 1, 1).stored(1),
    ),
    "one attempt too many": (
        "attempts",
        lambda: (
            Story()
            .enqueue(1, max_attempts=1)
            .claim("a", (1, 1), attempt=2)
            .run("a", 1, 1)
            .settle("a", 1, 1)
            .stored(1, attempt=2, max_attempts=1)
        ),
    ),
    "started before it was due": (
        "attempts",
        lambda: Story().enqueue(1, delay=30.0).claim("a", (1, 1)).run("a", 1, 1).settle("a", 1, 1).stored(1),
    ),
    "tried again too soon": (
        "attempts",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .settle("a", 1, 1, "retry", delay=30.0)
            .claim("b", (1, 2), attempt=2)
            .run("b", 1, 2)
            .settle("b", 1, 2)
            .stored(1, fence=2, attempt=2)
        ),
    ),
    "granted after it was cancelled": (
        "attempts",
        lambda: Story().enqueue(1).cancel(1).later(1).claim("a", (1, 1)).stored(1, "cancelled"),
    ),
    "half of a call": (
        "whole",
        lambda: Story().enqueue(1, 2, result=None).cancel(1).stored(1, "cancelled", 0),
    ),
    "granted as another tenant's": (
        "whole",
        lambda: (
            Story()
            .enqueue(1, tenant="acme")
            .claim("a", (1, 1), tenant="root")
            .run("a", 1, 1)
            .settle("a", 1, 1)
            .stored(1, tenant="acme")
        ),
    ),
    "shown to another tenant": ("whole", lambda: ordinary().listed("acme", 1).stored(1)),
    "counted wrongly": ("whole", lambda: ordinary().stored(1).counted(completed=2)),
    "granted before its parent had ended": (
        "order",
        lambda: (
            Story()
            .enqueue(1)
            .enqueue(2, after=(job(1),))
            .claim("a", (1, 1))
            .claim("b", (2, 2))
            .later(1)
            .run("a", 1, 1)
            .settle("a", 1, 1)
            .stored(1)
            .run("b", 2, 2)
            .settle("b", 2, 2)
            .stored(2, fence=2)
        ),
    ),
    "granted though its parent had failed": (
        "order",
        lambda: (
            Story()
            .enqueue(1)
            .enqueue(2, after=(job(1),))
            .claim("a", (1, 1))
            .run("a", 1, 1)
            .settle("a", 1, 1, "fail")
            .stored(1, "failed")
            .later(1)
            .attempt("b", 2, 2)
            .stored(2, fence=2)
        ),
    ),
    "cancelled for a parent that completed": (
        "order",
        lambda: (
            ordinary()
            .stored(1)
            .enqueue(2, after=(job(1),))
            .stored(2, "cancelled", 0, attempt=0, error="parent_failed")
        ),
    ),
    "told that nothing waits": (
        "recovered",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .dies("a")
            .later(LEASE + 1.1)
            .claim("b")
            .later(5)
            .attempt("b", 1, 2)
            .stored(1, fence=2)
        ),
    ),
    "granted and gone": (
        "acknowledged",
        lambda: Story().enqueue(1, result=None).claim("a", (1, 1)).run("a", 1, 1).settle("a", 1, 1),
    ),
    "failed and granted": (
        "acknowledged",
        lambda: Story().enqueue(1, result=Result.FAILED).claim("a", (1, 1)),
    ),
    "granted though nobody asked": ("acknowledged", lambda: Story().claim("a", (1, 1))),
    "a duplicate of another tenant's job": (
        "acknowledged",
        lambda: (
            Story()
            .enqueue(1, key="k", tenant="acme")
            .enqueue(2, key="k", duplicate_of=1)
            .cancel(1)
            .stored(1, "cancelled", 0, key="k", tenant="acme")
        ),
    ),
    "a duplicate without a key": (
        "acknowledged",
        lambda: Story().enqueue(1).enqueue(2, duplicate_of=1).cancel(1).stored(1, "cancelled", 0),
    ),
    "stored on another topic": ("acknowledged", lambda: ordinary().stored(1, topic="post")),
    "granted again after its end": ("ended", lambda: ordinary().claim("b", (1, 2)).stored(1)),
    "cancelled, and completed": ("ended", lambda: ordinary().cancel(1).stored(1)),
    "cancelled by a request after its end": (
        "ended",
        lambda: Story().enqueue(1).stored(1, "cancelled", 0).later(5).cancel(1, "requested"),
    ),
    "given up while it was held": (
        "ended",
        lambda: (
            Story()
            .enqueue(1, max_attempts=1)
            .claim("a", (1, 1))
            .later(5)
            .stored(1, "failed", error="worker_lost", max_attempts=1)
        ),
    ),
    "an ending refused inside of its lease": (
        "honoured",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .run("a", 1, 1)
            .settle("a", 1, 1, accepted=False)
            .later(LEASE)
            .attempt("b", 1, 2)
            .stored(1, fence=2)
        ),
    ),
    "an extension refused inside of its lease": (
        "honoured",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .extend("a", 1, 1, kept=False)
            .later(1)
            .run("a", 1, 1)
            .settle("a", 1, 1)
            .stored(1)
        ),
    ),
    "an extension after its ending was accepted": (
        "fenced",
        lambda: ordinary().later(1).extend("a", 1, 1).stored(1),
    ),
    "more attempts accepted than there are": (
        "attempts",
        lambda: (
            Story()
            .enqueue(1, max_attempts=1)
            .claim("a", (1, 1))
            .settle("a", 1, 1, "retry")
            .attempt("b", 1, 2)
            .stored(1, fence=2, max_attempts=1)
        ),
    ),
    "granted again though its cancellation was requested": (
        "attempts",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .cancel(1, "requested")
            .settle("a", 1, 1, "release")
            .later(1)
            .attempt("b", 1, 2)
            .stored(1, fence=2)
        ),
    ),
    "told that nothing waits while a worker that lives has lost its job": (
        "recovered",
        lambda: (
            Story()
            .enqueue(1)
            .claim("a", (1, 1))
            .later(LEASE + 1.1)
            .claim("b")
            .later(5)
            .attempt("b", 1, 2)
            .stored(1, fence=2)
        ),
    ),
}


@pytest.mark.parametrize(("rule", "story"), BAD.values(), ids=BAD)
def test_what_must_not_be_is_found(rule: str, story: type[Story]) -> None:
    """Each rule is broken once, on purpose, by a history that is otherwise as it should be."""
    assert rule in story().quiet().broken_rules()


def test_a_job_that_kills_for_ever_is_found() -> None:
    """Crashes count as attempts, or a job could take down one worker after another."""
    story = Story().enqueue(1, max_attempts=2)
    for number in range(1, 7):
        by = f"worker-{number}"
        story.claim(by, (1, number)).run(by, 1, number, well=None).dies(by).later(LEASE + 0.1)
    story.stored(1, "failed", 6, attempt=2, max_attempts=2, error="worker_lost")
    assert story.quiet().broken_rules() == ["attempts"]


def test_the_report_says_what_was_looked_at() -> None:
    """No violation in an empty history means nothing; the figures show that something was checked."""
    report = handed_on().settle("b", 1, 2).stored(1, fence=2, attempt=2).quiet().check()
    assert report.counts["jobs"] == 1
    assert report.counts["grants"] == 2
    assert report.counts["runs"] == 2
    assert report.counts["processes gone"] == 1
    assert report.counts["endings"] == report.counts["endings accepted"] == 1
    assert report.counts["orphans"] == report.recovery.orphans == 1
    assert report.recovery.worst_after_lease == pytest.approx(0.2, abs=0.05)


def test_thousands_of_findings_are_told_as_a_few_and_a_number() -> None:
    """A store that is broken breaks a rule thousands of times, and nobody reads them all."""
    story = Story()
    for number in range(1, 101):
        story.enqueue(number)
    report = story.quiet().check()
    assert len(report.violations) == 20
    assert report.omitted == {"acknowledged": 80}


@pytest.mark.parametrize("rule", INVARIANTS, ids=lambda rule: rule.name)
def test_of_every_rule_it_is_known_whether_it_was_tried(rule: Invariant) -> None:
    """A history in which everything occurs has some of what each rule is about, an empty one has none."""
    whole = handed_on().settle("b", 1, 2).stored(1, fence=2, attempt=2)
    assert whole.check().counts[rule.counted_as] > 0
    assert not Story().check().counts.get(rule.counted_as, 0)
