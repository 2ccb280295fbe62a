"""``tidewheel doctor``: check the store, and with ``--verify`` also the promises on it.

``--verify`` kills and freezes workers beside the store, for a minute unless ``--seconds`` says otherwise. A
progress bar on stderr shows how far the run is; without a terminal it is one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

import click
from click.core import ParameterSource

from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, formats
from tidewheel.cli.doctor.diagnosis import Diagnosis, diagnosis_json
from tidewheel.cli.doctor.text_report import print_report, report_lines
from tidewheel.cli.signals import cancel_on_signals
from tidewheel.cli.target_options import Target, missing_database_error, missing_file, target_options
from tidewheel.cli.terminal import console, examples, is_terminal, json_option, print_json
from tidewheel.core.urls import redact_url
from tidewheel.verification.fault_run import FaultRunPlan, verify
from tidewheel.verification.inspection import Inspection, inspect_environment, inspect_store
from tidewheel.verification.store_checks import DoctorFinding, FindingLevel


class DoctorProgress:
    """A bar on stderr, or one line where nobody watches."""

    def __init__(self, seconds: float) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._seconds = seconds
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            console=console(stderr=True),
            transient=True,
            disable=not is_terminal(sys.stderr),
        )
        self._row = self._bar.add_task("the store's own check", total=None)

    def __enter__(self) -> DoctorProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show_place(self, place: str) -> None:
        """Where it works, should anybody wonder what that is, or kill this process outright."""
        self._bar.update(self._row, description="starting workers and producers", total=1.0)
        click.echo(f"making trouble for {self._seconds:g} s in {place}, which goes at the end", err=True)

    def update(self, what: str, share: float) -> None:
        self._bar.update(self._row, description=what, completed=share)


MAX_SEED: Final = 1_000_000
"""Enough that two sweeps hardly ever are alike, and short enough to be typed."""
VERIFY_OPTIONS: Final = ("seconds", "seed", "keep")


@click.command(
    epilog=examples(
        "tidewheel doctor --app myproject.jobs:app",
        "tidewheel doctor --json | jq '.findings[]'",
        "tidewheel doctor --verify --output report.md",
        "tidewheel doctor --verify --seconds 10m --url postgresql://localhost/shop",
    )
)
@click.option(
    "--verify",
    "verifying",
    is_flag=True,
    help="Also try the promises: kill and freeze workers beside your store, then look at the books.",
)
@click.option(
    "--files/--no-files",
    default=True,
    show_default=True,
    help="With --app: compare completed create_file and delete_file jobs with the disk.",
)
@click.option(
    "--seconds",
    type=formats.DurationType(),
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="How long --verify makes trouble: seconds, or 90s, 10m. The longer, the more is tried.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Make the trouble of an earlier run of --verify again. Default: a new one each time.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Keep what every process of --verify wrote down there, also when no promise was broken.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the report to this new file, too.",
)
@json_option
@target_options
@click.pass_context
def doctor(
    ctx: click.Context,
    target: Target,
    verifying: bool,
    files: bool,
    seconds: float,
    seed: int | None,
    keep: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Check the store and what it stands on, and try the promises there.

    Runs the store's own check, looks at what it stands on and at who works there, and says what looks wrong.
    With --app also whether jobs wait for tasks that it does not have, and whether files are as its jobs left
    them. Nothing is repaired or changed. Exits 1 when something is wrong or the store cannot be reached; what
    is only in doubt does not count.

    With --verify it then lets workers and producers work in a place of its own for a minute, kills and
    freezes them, takes the store away from them, and checks from what they wrote down that no promise was
    broken. That place goes at the end, also after Ctrl-C: on SQLite a file beside yours, on PostgreSQL a
    schema of the same database. Your jobs are not touched, but for this minute they share disk, server and
    processors with it.
    """
    if not verifying:
        for name in VERIFY_OPTIONS:
            if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
                raise click.UsageError(f"--{name} is about --verify, which was not asked for", ctx)
    app = target.load()
    url = app.settings.url
    plan = FaultRunPlan(seconds, secrets.randbelow(MAX_SEED) if seed is None else seed) if verifying else None
    with _new_file(output) as file:
        try:
            diagnosis = asyncio.run(
                _diagnose(app if target.app is not None else None, url, plan, keep, files=files)
            )
        except asyncio.CancelledError:
            left = "nothing" if keep is None else f"nothing but the histories in {keep}"
            click.echo(f"stopped; {left} is left behind", err=True)
            raise click.Abort from None
        lines = report_lines(diagnosis)
        if file is not None:
            file.write("\n".join(lines) + "\n")
    if as_json:
        print_json(diagnosis_json(diagnosis))
    else:
        print_report(lines)
    ctx.exit(error_output.EXIT_OK if diagnosis.is_healthy else error_output.EXIT_FAILED)


@contextlib.contextmanager
def _new_file(path: Path | None) -> Iterator[TextIO | None]:
    """Opened before the work is done, so that no minute is spent on a report that cannot be written."""
    if path is None:
        yield None
        return
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise click.BadParameter(
            f"{path} is there already, and reports are kept; give another name", param_hint="--output"
        ) from None
    except OSError as error:
        raise click.BadParameter(
            f"{path} cannot be written: {error.strerror}", param_hint="--output"
        ) from None
    try:
        with file:
            yield file
    except BaseException:
        path.unlink()
        raise


async def _diagnose(
    app: Tidewheel | None, url: str, plan: FaultRunPlan | None, keep: Path | None, *, files: bool
) -> Diagnosis:
    with cancel_on_signals(), DoctorProgress(0.0 if plan is None else plan.seconds) as watch:
        date = datetime.now(UTC)
        examination = await _examine(url, app, needed=plan is None, files=files)
        diagnosis = Diagnosis(redact_url(url), date, examination)
        return diagnosis if plan is None else await _verify(diagnosis, url, plan, keep, watch)


async def _examine(url: str, app: Tidewheel | None, *, needed: bool, files: bool) -> Inspection:
    path = missing_file(url)
    if path is None:
        return await inspect_store(url, needed=needed, app=app, files=files)
    if needed:
        raise missing_database_error(path)
    # The promises can be tried before there is anything to lose.
    return await inspect_environment(
        url, DoctorFinding(FindingLevel.NOTE, f"there is no database {path} yet, so nothing to check")
    )


async def _verify(
    diagnosis: Diagnosis, url: str, plan: FaultRunPlan, keep: Path | None, progress: DoctorProgress
) -> Diagnosis:
    histories = keep or Path(tempfile.mkdtemp(prefix="tidewheel-verify-"))
    stay = keep is not None
    try:
        outcome = await verify(url, plan, begun=progress.show_place, watch=progress.update, keep=histories)
        stay = stay or not outcome.promises_kept  # nobody can make the same history twice
    finally:
        if not stay:
            shutil.rmtree(histories)
    return replace(diagnosis, outcome=outcome, histories=histories if stay else None)
