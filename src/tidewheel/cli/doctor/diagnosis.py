"""What came of an examination and, where one was made, of a sweep: as data, for text and JSON alike."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from tidewheel.verification.examination import Examination
from tidewheel.verification.rules import RULES
from tidewheel.verification.sweep import SOUND, SOUND_PROMISE, Outcome


class Verdict(StrEnum):
    """What is known of a promise after a sweep."""

    KEPT = "kept"
    BROKEN = "broken"
    UNTRIED = "untried"  # nothing happened that could have broken it


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise, and what became of it."""

    name: str
    text: str
    verdict: Verdict
    examines: str | None
    """What it is about, and how many of those there were."""
    examined: int
    findings: tuple[str, ...]
    left_out: int
    """Findings that are not told one by one."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything a report says."""

    url: str
    """Without its password."""
    date: datetime
    examination: Examination
    outcome: Outcome | None = None
    histories: Path | None = None
    """Where the histories of the sweep are, if they were kept."""

    @property
    def well(self) -> bool:
        return not self.examination.problems and (self.outcome is None or self.outcome.kept)


def promises(outcome: Outcome) -> list[Promise]:
    """Every promise, in the order of the rules; what the sweep itself saw comes last."""
    rules = [(rule.name, rule.promise, rule.examines) for rule in RULES]
    return [_promise(outcome, *rule) for rule in [*rules, (SOUND, SOUND_PROMISE, None)]]


def _promise(outcome: Outcome, name: str, text: str, examines: str | None) -> Promise:
    report = outcome.report
    findings = tuple(violation.text for violation in report.violations if violation.rule == name)
    examined = report.counts.get(examines, 0) if examines is not None else 0
    if findings:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.KEPT if examined or examines is None else Verdict.UNTRIED
    return Promise(name, text, verdict, examines, examined, findings, report.left_out.get(name, 0))
