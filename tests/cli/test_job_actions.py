"""``tidewheel jobs requeue|cancel|delete``: by id and in bulk."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, on_terminal, wait_until
from tidewheel import Tidewheel
from tidewheel.core.model import ClaimRequest, Lane, WorkerRecord

NOBODY = "0199a8f2-7c11-7abc-8def-0123456789ab"


@pytest.fixture
def failed(project: Project, within: Within, work_off: Callable[[], None]) -> list[str]:
    """Three failed jobs, and a pending one of another topic that nobody runs."""

    async def fill(app: Tidewheel) -> list[str]:
        jobs = await app.enqueue_many("send_digest", [{"user_id": "nobody"}] * 3)
        await app.enqueue("mail", {})
        return [str(job.id) for job in jobs]

    ids: list[str] = within(fill)
    work_off()
    return ids


@pytest.fixture
def states(within: Within) -> Callable[[], dict[str, int]]:
    """How many jobs there are of each state."""

    async def look(app: Tidewheel) -> dict[str, int]:
        stats = await app.stats()
        return {
            name: number
            for name in ("pending", "running", "completed", "failed", "cancelled")
            if (number := getattr(stats, name))
        }

    return lambda: within(look)


States = Callable[[], dict[str, int]]


def test_ids_are_changed_one_by_one(run: Run, project: Project, failed: list[str], states: States) -> None:
    """Each verb does what it says and names each job."""
    answer = run("jobs", "requeue", *failed[:2], "--url", project.url)
    assert answer.lines == [f"requeued {job_id}" for job_id in failed[:2]]
    assert states() == {"pending": 3, "failed": 1}
    assert run("jobs", "cancel", failed[0], "--url", project.url).out == f"cancelled {failed[0]}\n"
    assert run("jobs", "delete", failed[0], failed[2], "--url", project.url).code == 0
    assert states() == {"pending": 2}


def test_bulk_actions_take_the_filter_language(
    run: Run, project: Project, failed: list[str], states: States
) -> None:
    """What matches is counted, asked about and changed, whatever its states are."""
    url = ("--url", project.url)
    answer = run("jobs", "requeue", "--where", "error:nobody -topic:mail", "--yes", *url)
    assert answer.out == "requeued 3 jobs\n"
    assert (
        run("jobs", "cancel", "--where", "topic:mail state:failed", "--yes", *url).out == "cancelled 0 jobs\n"
    )
    assert run("jobs", "delete", "--where", "payload.user_id:nobody", *url).code == 2, "nobody was asked"
    assert states() == {"pending": 4}


def test_one_that_cannot_be_changed_does_not_spoil_the_others(
    run: Run, project: Project, failed: list[str], states: States
) -> None:
    """Every id is tried, each refusal is a line, and the exit code tells."""
    run("jobs", "requeue", failed[0], "--url", project.url)
    answer = run("jobs", "requeue", NOBODY, failed[0], failed[1], "--url", project.url)
    assert answer.code == 1
    assert answer.lines == [f"requeued {failed[1]}"]
    missing, wrong = answer.errors.splitlines()
    assert missing.startswith(f"error: there is no job {NOBODY}")
    assert wrong.startswith(f"error: job {failed[0]} is pending and cannot be requeued")
    assert states() == {"pending": 3, "failed": 1}


def test_json_answers_for_each_id(run: Run, project: Project, failed: list[str]) -> None:
    """Programs learn what became of each."""
    answer = run("jobs", "delete", failed[0], NOBODY, "--json", "--url", project.url)
    assert answer.code == 1
    good, bad = answer.json
    assert good == {"id": failed[0], "done": True}
    assert (bad["id"], bad["done"], bad["code"]) == (NOBODY, False, "job_not_found")


def test_a_running_job_is_asked_to_stop(project: Project, run: Run) -> None:
    """Cancelling what runs is a request, and is called one."""
    job_id = run("enqueue", "wait", '{"seconds": 60}', "--app", "jobs:app").out.strip()
    with project.start("worker", "jobs:app") as worker:
        worker.wait_for("Ctrl-C stops")
        wait_until(
            lambda: run("jobs", "show", job_id, "--json", "--app", "jobs:app").json["state"] == "running"
        )
        answer = run("jobs", "cancel", job_id, "--app", "jobs:app")
        assert answer.out == f"asked to stop {job_id}\n"
        wait_until(
            lambda: run("jobs", "show", job_id, "--json", "--app", "jobs:app").json["state"] == "cancelled"
        )


def test_bulk_acts_on_everything_that_matches(
    run: Run, project: Project, failed: list[str], states: States
) -> None:
    """The same filters as for listing; jobs in other states are left alone."""
    answer = run("jobs", "requeue", "--topic", "send_digest", "--yes", "--url", project.url)
    assert (answer.code, answer.out) == (0, "requeued 3 jobs\n")
    assert states() == {"pending": 4}
    cancelled = run("jobs", "cancel", "--topic", "send_digest", "-y", "--json", "--url", project.url)
    assert cancelled.json == {"cancelled": 3, "left_alone": {}}
    deleted = run("jobs", "delete", "--state", "cancelled", "--yes", "--url", project.url)
    assert deleted.out == "deleted 3 jobs\n"
    assert states() == {"pending": 1}


def test_running_jobs_that_are_left_alone_are_told_with_the_remedy(
    run: Run, project: Project, within: Within
) -> None:
    """Deleting what runs deletes nothing, and says why and what to do; programs are told how many."""

    async def hold(app: Tidewheel) -> str:
        job = await app.queue.put("mail", b"1")
        await app.store.claim(ClaimRequest("hand", (Lane("mail"),), 1, 3600))
        return str(job.id)

    job_id = within(hold)
    url = ("--url", project.url, "--yes")
    answer = run("jobs", "delete", "--where", "state:running", *url)
    assert answer.out == "deleted 0 jobs\n"
    assert answer.errors == (
        "1 running job is left alone: only pending, completed, failed or cancelled jobs can be deleted; "
        "cancel a running job, or take it back, before you delete it\n"
    )
    answer = run("jobs", "delete", "--topic", "mail", "--json", *url)
    assert answer.json == {"deleted": 0, "left_alone": {"running": 1}}
    assert run("jobs", "take-back", job_id, "--url", project.url).out == f"taken back {job_id}\n"
    assert run("jobs", "delete", "--topic", "mail", *url).out == "deleted 1 job\n"


def test_jobs_of_lost_holders_are_taken_back(run: Run, project: Project, within: Within) -> None:
    """--lost frees what a silent worker holds and nothing else; it needs no other filter."""

    async def hold(app: Tidewheel) -> None:
        await app.enqueue_many("mail", [{}] * 3)
        for name, number in (("gone", 2), ("alive", 1)):
            await app.store.claim(ClaimRequest(name, (Lane("mail"),), number, 3600))
            await app.store.heartbeat(WorkerRecord(name=name, host="box", pid=1, version="0", started_at=1))

    within(hold)
    with closing(sqlite3.connect(project.directory / "jobs.db")) as database, database:
        database.execute("UPDATE tidewheel_workers SET seen_at = seen_at - 60000000 WHERE name = 'gone'")
    url = ("--url", project.url)
    answer = run("jobs", "take-back", "--lost", *url)
    assert answer.code == 2
    assert "this would take back 2 jobs" in answer.errors
    assert run("jobs", "take-back", "--lost", "--yes", *url).out == "taken back 2 jobs\n"
    nothing = run("jobs", "take-back", "--lost", *url)
    assert nothing.out == "taken back 0 jobs\n"
    assert "no running job that matches is held by a worker that has been silent for 20 s" in nothing.errors


def test_bulk_without_a_match_changes_nothing(run: Run, project: Project, failed: list[str]) -> None:
    """Nothing to do needs no confirmation."""
    answer = run("jobs", "requeue", "--topic", "nothing", "--url", project.url)
    assert (answer.code, answer.out) == (0, "requeued 0 jobs\n")


def test_bulk_without_a_terminal_needs_yes(
    run: Run, project: Project, failed: list[str], states: States
) -> None:
    """A script that forgot --yes is told how many it would have changed, and changes none."""
    answer = run("jobs", "delete", "--state", "failed", "--url", project.url)
    assert answer.code == 2
    assert "this would delete 3 jobs, and there is no terminal to ask on; add --yes" in answer.errors
    assert states() == {"pending": 1, "failed": 3}


def test_before_a_bulk_action_the_times_that_are_meant_are_spelled_out(
    run: Run, project: Project, failed: list[str], states: States
) -> None:
    """On which side of which moment jobs are that would be deleted."""
    answer = run("jobs", "delete", "--where", "state:failed finished<1h", "--url", project.url)
    assert answer.code == 2
    assert re.search(r"^finished<1h: finished after [\d :-]+ UTC \(less than 1h ago\)\n", answer.errors)
    assert "this would delete 3 jobs" in answer.errors
    answer = run("jobs", "delete", "--where", "state:failed finished>1h", "--url", project.url)
    assert (answer.code, answer.out) == (0, "deleted 0 jobs\n")
    assert states() == {"pending": 1, "failed": 3}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["requeue"], "nothing says which jobs to requeue"),
        (["delete", NOBODY, "--state", "failed"], "ids and filters are both given"),
        (
            ["requeue", "--state", "completed", "--yes"],
            "--state completed matches no job that can be requeued",
        ),
        (["cancel", "--state", "failed", "--yes"], "possible for pending, running, delayed"),
        (["delete", "--state", "running", "--yes"], "--state running matches no job that can be deleted"),
        (["cancel", "42"], "'42' is not a valid UUID"),
    ],
)
def test_unclear_wishes_are_refused(run: Run, project: Project, arguments: list[str], words: str) -> None:
    """Bulk actions leave nothing to guess."""
    answer = run("jobs", *arguments, "--url", project.url)
    assert answer.code == 2
    assert words in answer.errors


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("typed", "code", "after"), [("y\n", 0, 0), ("n\n", 1, 3), ("\n", 1, 3)])
def test_bulk_on_a_terminal_asks_with_the_count(
    project: Project, failed: list[str], states: States, typed: str, code: int, after: int
) -> None:
    """The number is the preview; anything but yes changes nothing."""
    with on_terminal(project, "jobs", "delete", "--state", "failed", "--url", project.url) as terminal:
        terminal.wait_for(r"delete 3 jobs\? \[y/N\]")
        terminal.type(typed)
        assert terminal.wait() == code
        assert ("deleted 3 jobs" if code == 0 else "nothing was changed") in terminal.text
    assert states().get("failed", 0) == after


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_ctrl_c_at_the_question_changes_nothing(project: Project, failed: list[str], states: States) -> None:
    """Walking away is a no."""
    with on_terminal(project, "jobs", "delete", "--state", "failed", "--url", project.url) as terminal:
        terminal.wait_for(r"delete 3 jobs\?")
        assert terminal.interrupt() == 130
    assert states()["failed"] == 3


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_bulk_shows_a_progress_bar(project: Project, within: Within) -> None:
    """Thousands of jobs take a moment, and that moment is seen to pass."""

    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("mail", [{}] * 5000)

    within(fill)
    with on_terminal(
        project, "jobs", "cancel", "--topic", "mail", "--yes", "--url", project.url, columns=100
    ) as terminal:
        assert terminal.wait() == 0
        assert "cancel jobs" in terminal.text
        assert "/5000" in terminal.text
        assert "cancelled 5,000 jobs" in terminal.text
