"""A look at a store as it is: what it stands on, and what it finds wrong with itself. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windlass.app import Windlass
from windlass.errors import StoreError, StoreUnavailable
from windlass.remedies import said
from windlass.stores import Ground, look_at_ground


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"  # something is wrong, and somebody has to do something
    DOUBT = "doubt"  # it works, and promises less than it could
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, in a sentence."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found."""

    ground: Ground
    checked: bool
    """Whether the store's own check could be run."""
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        return [finding.text for finding in self.findings if finding.level is Level.PROBLEM]


async def examine(url: str, *, needed: bool = True) -> Examination:
    """Look at the store that ``url`` names, which must be there. Tables are neither made nor changed.

    That there are none yet is a problem where they are ``needed``. Raises ``StoreUnavailable`` where the
    store cannot be reached, of which nothing can be said.
    """
    ground = await look_at_ground(url)
    findings = _doubts(ground)
    checked = False
    try:
        async with Windlass(url, migrate=False) as app:
            if steps := await app.store.missing_steps():
                findings.append(_behind(steps, needed=needed))
            else:
                findings += [Finding(Level.PROBLEM, problem) for problem in await app.check()]
                checked = True
    except StoreUnavailable:
        raise
    except StoreError as error:  # damaged beyond reading, or made by a newer Windlass
        findings.append(Finding(Level.PROBLEM, str(error)))
    return Examination(ground, checked, tuple(findings))


async def survey(url: str, *notes: Finding) -> Examination:
    """Look only at the ground, where there is no store yet."""
    ground = await look_at_ground(url)
    return Examination(ground, checked=False, findings=(*_doubts(ground), *notes))


def _doubts(ground: Ground) -> list[Finding]:
    """What is not as it should be for a queue that must lose nothing."""
    return [Finding(Level.DOUBT, said(doubt).sentence) for doubt in ground.doubts]


def _behind(steps: list[str], *, needed: bool) -> Finding:
    if steps[0].startswith("0001"):
        return Finding(
            Level.PROBLEM if needed else Level.NOTE,
            "there are no tables of Windlass yet; `windlass migrate` or opening the app makes them",
        )
    return Finding(
        Level.PROBLEM,
        f"the tables are older than this Windlass, which would check what they do not have "
        f"({', '.join(steps)}); `windlass migrate` or opening the app brings them up to date",
    )
