"""A look at a store as it is: what it stands on, and what it finds wrong with itself. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidewheel.admin.reports.findings import said
from tidewheel.app import Tidewheel
from tidewheel.builtin.file_reconciliation import Reconciliation
from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores import Ground, look_at_ground
from tidewheel.verification.store_checks import Finding, Level, look_around, look_at_ailments


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found."""

    ground: Ground
    checked: bool
    """Whether the store's own check could be run."""
    findings: tuple[Finding, ...]
    files: Reconciliation | None = None
    """What came of comparing file jobs with the disk, where there are any to compare."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by name: of a file and its log."""

    @property
    def problems(self) -> list[str]:
        return [finding.text for finding in self.findings if finding.level is Level.PROBLEM]


async def examine(
    url: str, *, needed: bool = True, app: Tidewheel | None = None, files: bool = True
) -> Examination:
    """Look at the store that ``url`` names, which must be there. Tables are neither made nor changed.

    That there are none yet is a problem where they are ``needed``. With ``app`` its tasks are known, and
    unless told otherwise completed ``files`` of its jobs are compared with the disk. Raises
    ``StoreUnavailable`` where the store cannot be reached, of which nothing can be said.
    """
    ground = await look_at_ground(url)
    findings: list[Finding] = []
    checked, compared = False, None
    sizes: dict[str, int] = {}
    looking = Tidewheel(url, migrate=False)
    if app is not None:
        looking.registry = app.registry
    try:
        async with looking:
            if steps := await looking.store.missing_steps():
                findings.append(_behind(steps, needed=needed))
            else:
                sizes = _sizes(looking.describe().get("file"))
                try:
                    findings += [Finding(Level.PROBLEM, problem) for problem in await looking.check()]
                    checked = True
                    around, compared = await look_around(looking, files=files)
                    findings += around
                except StoreUnavailable:
                    raise
                except StoreError as error:  # damaged, or a role that may not see every job
                    findings += [Finding(Level.PROBLEM, str(error)), *await look_at_ailments(looking)]
    except StoreUnavailable:
        raise
    except StoreError as error:  # damaged beyond reading, or made by a newer Tidewheel
        findings.append(Finding(Level.PROBLEM, str(error)))
    # What a look around tells better is not told twice.
    told = {finding.kind for finding in findings}
    findings = [finding for finding in _doubts(ground) if finding.kind not in told] + findings
    return Examination(ground, checked, tuple(_worst_first(findings)), compared, sizes)


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


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    ranks = {level: rank for rank, level in enumerate(Level)}
    return sorted(findings, key=lambda finding: ranks[finding.level])


async def survey(url: str, *notes: Finding) -> Examination:
    """Look only at the ground, where there is no store yet."""
    ground = await look_at_ground(url)
    return Examination(ground, checked=False, findings=(*_doubts(ground), *notes))


def _doubts(ground: Ground) -> list[Finding]:
    """What is not as it should be for a queue that must lose nothing."""
    return [Finding(Level.DOUBT, said(doubt).sentence, doubt.kind) for doubt in ground.doubts]


def _behind(steps: list[str], *, needed: bool) -> Finding:
    if steps[0].startswith("0001"):
        return Finding(
            Level.PROBLEM if needed else Level.NOTE,
            "there are no tables of Tidewheel yet; `tidewheel migrate` or opening the app makes them",
            "schema",
        )
    return Finding(
        Level.PROBLEM,
        f"the tables are older than this Tidewheel, which would check what they do not have "
        f"({', '.join(steps)}); `tidewheel migrate` or opening the app brings them up to date",
        "schema",
    )
