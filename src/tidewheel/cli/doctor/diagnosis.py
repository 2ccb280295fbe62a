"""A diagnosis as data: the findings of a check and, with ``--verify``, of a sweep.

The text report and the JSON are made from the same diagnosis. Times in the JSON are in seconds.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from tidewheel.__about__ import __version__
from tidewheel.builtin.file_reconciliation import FileMismatch, Reconciliation
from tidewheel.verification.fault_run import RUN_RULE, RUN_RULE_PROMISE, FaultRunResult
from tidewheel.verification.inspection import Inspection
from tidewheel.verification.invariants import INVARIANTS, MAX_RECOVERY_SECONDS


class Verdict(StrEnum):
    """What is known of a promise after a sweep."""

    KEPT = "kept"
    BROKEN = "broken"
    UNTRIED = "untried"  # nothing happened that could have broken it


@dataclass(frozen=True, slots=True)
class PromiseResult:
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
    examination: Inspection
    outcome: FaultRunResult | None = None
    histories: Path | None = None
    """Where the histories of the sweep are, if they were kept."""

    @property
    def is_healthy(self) -> bool:
        return not self.examination.problems and (self.outcome is None or self.outcome.promises_kept)


def promise_results(outcome: FaultRunResult) -> list[PromiseResult]:
    """Every promise, in the order of the rules; what the sweep itself saw comes last."""
    rules = [(rule.name, rule.promise, rule.counted_as) for rule in INVARIANTS]
    return [_promise_result(outcome, *rule) for rule in [*rules, (RUN_RULE, RUN_RULE_PROMISE, None)]]


def _promise_result(outcome: FaultRunResult, name: str, text: str, examines: str | None) -> PromiseResult:
    report = outcome.report
    findings = tuple(violation.text for violation in report.violations if violation.rule == name)
    examined = report.counts.get(examines, 0) if examines is not None else 0
    if findings:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.KEPT if examined or examines is None else Verdict.UNTRIED
    return PromiseResult(name, text, verdict, examines, examined, findings, report.omitted.get(name, 0))


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Everything the report says."""
    examination, outcome = diagnosis.examination, diagnosis.outcome
    return {
        "well": diagnosis.is_healthy,
        "url": diagnosis.url,
        "date": diagnosis.date.isoformat(),
        "tidewheel": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "store": examination.ground.store,
        "settings": dict(examination.ground.settings),
        "checked": examination.checked,
        "sizes": dict(examination.sizes),
        "files": None if examination.files is None else _files_json(examination.files),
        "findings": [asdict(finding) for finding in examination.findings],
        "verified": None if outcome is None else _outcome_json(outcome, diagnosis),
    }


def _files_json(files: Reconciliation) -> dict[str, Any]:
    return {
        "jobs": files.jobs,
        "files": files.files,
        "busy": files.busy,
        "complete": files.complete,
        "disagreements": [_disagreement_json(found) for found in files.mismatches],
        "unknown": [_disagreement_json(found) for found in files.unknown],
        "leftovers": [
            {"job_id": str(found.job_id), "path": found.path, "bytes": found.size}
            for found in files.leftovers
        ],
    }


def _disagreement_json(found: FileMismatch) -> dict[str, str]:
    return {"job_id": str(found.job_id), "task": found.task, "text": found.text}


def _outcome_json(outcome: FaultRunResult, diagnosis: Diagnosis) -> dict[str, Any]:
    report, plan = outcome.report, outcome.plan
    return {
        "kept": outcome.promises_kept,
        "place": outcome.place,
        "seconds": plan.seconds,
        "seed": plan.seed,
        "lease": plan.lease,
        "workers": plan.workers,
        "producers": plan.producers,
        "took_seconds": round(outcome.seconds, 3),
        "faults": report.faults,
        "counts": report.counts,
        "promises": [
            {
                "name": promise.name,
                "promise": promise.text,
                "verdict": promise.verdict.value,
                "examines": promise.examines,
                "examined": promise.examined,
                "findings": list(promise.findings),
                "left_out": promise.left_out,
            }
            for promise in promise_results(outcome)
        ],
        "recovery": {
            "orphans": report.recovery.orphans,
            "timed": report.recovery.timed,
            "worst_seconds_after_lease": report.recovery.worst_after_lease,
            "promised_seconds_after_lease": MAX_RECOVERY_SECONDS,
        },
        "histories": None if diagnosis.histories is None else str(diagnosis.histories),
    }
