"""A look at a store as it is: what it stands on, and what it finds wrong with itself. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidewheel.admin.reports.findings import describe_health_finding
from tidewheel.app import Tidewheel
from tidewheel.builtin.file_reconciliation import Reconciliation
from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores import DatabaseProfile, inspect_database
from tidewheel.verification.store_checks import DoctorFinding, FindingLevel, check_open_store, health_findings


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found."""

    ground: DatabaseProfile
    checked: bool
    """Whether the store's own check could be run."""
    findings: tuple[DoctorFinding, ...]
    files: Reconciliation | None = None
    """What came of comparing file jobs with the disk, where there are any to compare."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by name: of a file and its log."""

    @property
    def problems(self) -> list[str]:
        return [finding.text for finding in self.findings if finding.level is FindingLevel.PROBLEM]


async def inspect_store(
    url: str, *, needed: bool = True, app: Tidewheel | None = None, files: bool = True
) -> Inspection:
    """Look at the store that ``url`` names, which must be there. Tables are neither made nor changed.

    That there are none yet is a problem where they are ``needed``. With ``app`` its tasks are known, and
    unless told otherwise completed ``files`` of its jobs are compared with the disk. Raises
    ``StoreUnavailable`` where the store cannot be reached, of which nothing can be said.
    """
    ground = await inspect_database(url)
    findings: list[DoctorFinding] = []
    checked, compared = False, None
    sizes: dict[str, int] = {}
    looking = Tidewheel(url, migrate=False)
    if app is not None:
        looking.registry = app.registry
    try:
        async with looking:
            if steps := await looking.store.pending_migrations():
                findings.append(_old_schema_finding(steps, needed=needed))
            else:
                sizes = _sizes(looking.describe().get("file"))
                try:
                    findings += [
                        DoctorFinding(FindingLevel.PROBLEM, problem) for problem in await looking.check()
                    ]
                    checked = True
                    around, compared = await check_open_store(looking, files=files)
                    findings += around
                except StoreUnavailable:
                    raise
                except StoreError as error:  # damaged, or a role that may not see every job
                    findings += [
                        DoctorFinding(FindingLevel.PROBLEM, str(error)),
                        *await health_findings(looking),
                    ]
    except StoreUnavailable:
        raise
    except StoreError as error:  # damaged beyond reading, or made by a newer Tidewheel
        findings.append(DoctorFinding(FindingLevel.PROBLEM, str(error)))
    # What a look around tells better is not told twice.
    told = {finding.kind for finding in findings}
    findings = [finding for finding in _environment_findings(ground) if finding.kind not in told] + findings
    return Inspection(ground, checked, tuple(_worst_first(findings)), compared, sizes)


def _sizes(path: str | None) -> dict[str, int]:
    """Of an SQLite file. A log that was never written to is not there."""
    if path is None:
        return {}
    sizes = {}
    for name, file in (("file", path), ("write-ahead log", f"{path}-wal")):
        try:
            sizes[name] = os.stat(file).st_size
        except OSError:
            sizes[name] = 0
    return sizes


def _worst_first(findings: Sequence[DoctorFinding]) -> list[DoctorFinding]:
    ranks = {level: rank for rank, level in enumerate(FindingLevel)}
    return sorted(findings, key=lambda finding: ranks[finding.level])


async def inspect_environment(url: str, *notes: DoctorFinding) -> Inspection:
    """Look only at the ground, where there is no store yet."""
    ground = await inspect_database(url)
    return Inspection(ground, checked=False, findings=(*_environment_findings(ground), *notes))


def _environment_findings(ground: DatabaseProfile) -> list[DoctorFinding]:
    """What is not as it should be for a queue that must lose nothing."""
    return [
        DoctorFinding(FindingLevel.DOUBT, describe_health_finding(doubt).sentence, doubt.kind)
        for doubt in ground.health_findings
    ]


def _old_schema_finding(steps: list[str], *, needed: bool) -> DoctorFinding:
    if steps[0].startswith("0001"):
        return DoctorFinding(
            FindingLevel.PROBLEM if needed else FindingLevel.NOTE,
            "there are no tables of Tidewheel yet; `tidewheel migrate` or opening the app makes them",
            "schema",
        )
    return DoctorFinding(
        FindingLevel.PROBLEM,
        f"the tables are older than this Tidewheel, which would check what they do not have "
        f"({', '.join(steps)}); `tidewheel migrate` or opening the app brings them up to date",
        "schema",
    )
