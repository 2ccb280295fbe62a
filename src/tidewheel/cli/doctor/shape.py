"""A diagnosis as JSON, for programs. Times are in seconds."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Any

from tidewheel.__about__ import __version__
from tidewheel.cli.doctor.diagnosis import Diagnosis, promises
from tidewheel.reconciliation import Disagreement, Reconciliation
from tidewheel.verification.rules import NOTICE_SECONDS
from tidewheel.verification.sweep import Outcome


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Everything the report says."""
    examination, outcome = diagnosis.examination, diagnosis.outcome
    return {
        "well": diagnosis.well,
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
        "disagreements": [_disagreement_json(found) for found in files.disagreements],
        "unknown": [_disagreement_json(found) for found in files.unknown],
        "leftovers": [
            {"job_id": str(found.job_id), "path": found.path, "bytes": found.size}
            for found in files.leftovers
        ],
    }


def _disagreement_json(found: Disagreement) -> dict[str, str]:
    return {"job_id": str(found.job_id), "task": found.task, "text": found.text}


def _outcome_json(outcome: Outcome, diagnosis: Diagnosis) -> dict[str, Any]:
    report, plan = outcome.report, outcome.plan
    return {
        "kept": outcome.kept,
        "place": outcome.place,
        "seconds": plan.seconds,
        "seed": plan.seed,
        "lease": plan.lease,
        "workers": plan.workers,
        "producers": plan.producers,
        "took_seconds": round(outcome.seconds, 3),
        "faults": report.troubles,
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
            for promise in promises(outcome)
        ],
        "recovery": {
            "orphans": report.recovery.orphans,
            "timed": report.recovery.timed,
            "worst_seconds_after_lease": report.recovery.worst_after_lease,
            "promised_seconds_after_lease": NOTICE_SECONDS,
        },
        "histories": None if diagnosis.histories is None else str(diagnosis.histories),
    }
