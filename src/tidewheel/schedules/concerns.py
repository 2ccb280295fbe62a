"""What needs attention about schedules: one finding for each kind of trouble, however many have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidewheel.answers import Finding, FindingKind, Severity
from tidewheel.schedules.schedule import Schedule
from tidewheel.wording import plural, some_of


def find_concerns(schedules: Sequence[Schedule]) -> Iterator[Finding]:
    """Of those that are not paused."""
    awake = [one for one in schedules if not one.paused]
    troubled = [one for one in awake if one.trouble is not None]
    undeclared = [one for one in awake if one.undeclared]
    overdue = [
        one
        for one in awake
        if one.overdue_since is not None and one not in troubled and one not in undeclared
    ]
    if troubled:
        yield Finding(
            kind=FindingKind.SCHEDULE_TROUBLED,
            severity=Severity.WARNING,
            title=f"{plural(len(troubled), 'schedule')} could not make a job",
            explanation=f"{_names(troubled)}: {troubled[0].trouble}",
            remedy="Correct it: tidewheel schedules create … --replace, or in the code that declares it",
            since=min((one.trouble_at for one in troubled if one.trouble_at), default=None),
        )
    if overdue:
        yield Finding(
            kind=FindingKind.SCHEDULE_OVERDUE,
            severity=Severity.WARNING,
            title=f"{plural(len(overdue), 'schedule is', 'schedules are')} overdue",
            explanation=f"{_names(overdue)}: their time has come, and no worker has made a job.",
            remedy="Start a worker of the app that has their tasks, tidewheel worker MODULE:APP, with the "
            "setting schedules on",
            since=min((one.overdue_since for one in overdue if one.overdue_since), default=None),
        )
    if undeclared:
        yield Finding(
            kind=FindingKind.SCHEDULE_UNDECLARED,
            severity=Severity.INFO,
            title=f"{plural(len(undeclared), 'schedule is', 'schedules are')} not in the code any more",
            explanation=f"{_names(undeclared)}: no worker has declared them for half an hour, and none lets "
            "them fire.",
            remedy="If they were taken out on purpose: tidewheel schedules delete NAME. Otherwise start a "
            "worker of the app that declares them",
        )


def _names(schedules: Sequence[Schedule]) -> str:
    return some_of([one.name for one in schedules])
