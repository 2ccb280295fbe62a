"""``tidewheel jobs show``: one job in full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project
from tidewheel import Tidewheel

NOBODY = "0199a8f2-7c11-7abc-8def-0123456789ab"


@pytest.fixture
def made(run: Run, work_off: Callable[[], None]) -> Callable[..., str]:
    """A job of the project's app, run as far as it goes."""

    def made(user_id: str, *options: str) -> str:
        answer = run("enqueue", "send_digest", f'{{"user_id": "{user_id}"}}', "--app", "jobs:app", *options)
        work_off()
        return answer.out.strip()

    return made


def test_a_completed_job_shows_its_bodies(run: Run, made: Callable[..., str]) -> None:
    """Payload, result and checkpoint as indented JSON, the course of events in order."""
    job_id = made("42", "--key", "k1", "--correlation-id", "c1", "--user-id", "u1", "--service-id", "s1")
    answer = run("jobs", "show", job_id, "--app", "jobs:app")
    assert answer.code == 0
    assert answer.lines[0] == f"{job_id}  completed"
    assert '{\n  "user_id": "42"\n}' in answer.out
    assert '{\n  "sent_to": "42"\n}' in answer.out
    assert '{\n  "rendered": true\n}' in answer.out
    course = [line.split("  ")[-1] for line in answer.lines if line.startswith("20")]
    assert course[0] == "enqueued"
    assert course[-2:] == ["attempt 1 started", "completed"]
    for fact in ("task         send_digest", "attempts     1/5", "key          k1", "correlation  c1"):
        assert fact in answer.lines


def test_errors_of_every_attempt_are_shown(run: Run, made: Callable[..., str]) -> None:
    """Why it was tried again, and why it failed."""
    answer = run("jobs", "show", made("busy"), "--app", "jobs:app")
    assert any(line.endswith(": handler_error: the mailbox is busy") for line in answer.lines)
    failed = run("jobs", "show", made("nobody"), "--app", "jobs:app")
    assert any("no_user: nobody lives here" in line for line in failed.lines)
    assert failed.lines[0].endswith("failed")


def test_what_a_caller_wrote_gives_a_terminal_no_orders(run: Run, made: Callable[..., str]) -> None:
    """Neither in what is told of a job, nor in its payload or its errors."""
    wild = "a\x1b[2J\x9b2Jb"
    shown = run("jobs", "show", made(wild.replace("\x1b", "\\u001b"), "--key", wild), "--app", "jobs:app").out
    assert "key          a\\x1b[2J\\x9b2Jb" in shown
    assert '"user_id": "a\\u001b[2J\\u009b2Jb"' in shown
    assert not {"\x1b", "\x9b"} & set(shown)


def test_json_is_complete(run: Run, made: Callable[..., str]) -> None:
    """What a list has, and the bodies and attempts."""
    job = run("jobs", "show", made("nobody"), "--app", "jobs:app", "--json").json
    assert job["state"] == "failed"
    assert job["payload"] == {"user_id": "nobody"}
    assert job["format"] == "json"
    assert job["error"]["code"] == "no_user"
    assert job["error"]["retryable"] is False
    assert [attempt["attempt"] for attempt in job["attempts"]] == [1]
    done = run("jobs", "show", made("42"), "--app", "jobs:app", "--json").json
    assert (done["result"], done["checkpoint"]) == ({"sent_to": "42"}, {"rendered": True})
    assert done["progress"]["percent"] == 100 or done["progress"]["message"] == "rendering"


def test_steps_are_shown_in_their_order(run: Run, work_off: Callable[[], None]) -> None:
    """How long each took, in which attempt, and what came of it; a long output is cut, but not in JSON."""
    job_id = run("enqueue", "stepwise", "--app", "jobs:app").out.strip()
    work_off()
    lines = run("jobs", "show", job_id, "--app", "jobs:app").lines
    at = lines.index("steps")
    first, long, last = (line.split("attempt 1  ") for line in lines[at + 1 : at + 4])
    assert (first[0].split()[:2], first[1]) == (["fetch", "all"], "[0, 1, 2]")
    assert (long[0].split()[0], long[1][:12], long[1][-20:]) == (
        "long",
        "[0, 1, 2, 3,",
        "… (2,390 characters)",
    )
    assert (last[0].split()[0], last[1]) == ("total", "3")
    steps = run("jobs", "show", job_id, "--app", "jobs:app", "--json").json["steps"]
    assert [(step["name"], step["attempt"]) for step in steps] == [
        ("fetch all", 1),
        ("long", 1),
        ("total", 1),
    ]
    assert steps[1]["output"] == list(range(500))
    assert steps[0]["started_at"] <= steps[0]["finished_at"]
    assert steps[0]["seconds"] >= 0


def test_a_delayed_job_says_when_it_is_due(run: Run, made: Callable[..., str]) -> None:
    """The future belongs to the course of events, too."""
    answer = run("jobs", "show", made("42", "--delay", "1h"), "--app", "jobs:app")
    assert answer.lines[0].endswith("delayed")
    assert any(line.endswith("in 59m  due") for line in answer.lines)


def test_a_payload_of_bytes_is_base64(run: Run, project: Project, within: Within) -> None:
    """Raw bytes do not belong on a terminal."""

    async def fill(app: Tidewheel) -> str:
        return str((await app.enqueue("mail", b"\x00\xff")).id)

    job_id = within(fill)
    answer = run("jobs", "show", job_id, "--url", project.url)
    assert answer.lines[-2:] == ["payload (bytes, base64)", "AP8="]
    shown = run("jobs", "show", job_id, "--url", project.url, "--json").json
    assert (shown["format"], shown["payload"]) == ("bytes", "AP8=")


def test_a_job_that_is_not_there_is_exit_code_1(run: Run) -> None:
    """Not found is a failure, not a usage error."""
    run("migrate", "--app", "jobs:app")
    answer = run("jobs", "show", NOBODY, "--app", "jobs:app")
    assert answer.code == 1
    assert answer.errors.startswith(f"error: there is no job {NOBODY}")


def test_an_id_that_is_none_is_a_usage_error(run: Run) -> None:
    """Something that cannot be an id is refused before the store is asked."""
    answer = run("jobs", "show", "42", "--app", "jobs:app")
    assert answer.code == 2
    assert "'42' is not a valid UUID" in answer.errors


def test_jobs_it_runs_after_and_those_after_it_are_shown(run: Run, project: Project) -> None:
    """By id and state, in both directions, and as JSON."""
    first, second = [run("enqueue", "mail", "{}", "--url", project.url).out.strip() for _ in range(2)]
    options = ("--after", first, "--after", second, "--after-any")
    child = run("enqueue", "mail", "{}", *options, "--url", project.url).out.strip()
    answer = run("jobs", "show", child, "--url", project.url)
    assert answer.lines[0] == f"{child}  blocked"
    assert "blocked by   2 jobs" in answer.lines
    place = answer.lines.index("after, however they end")
    assert [line.split() for line in answer.lines[place + 1 : place + 3]] == [
        [first, "pending", "waited", "for"],
        [second, "pending", "waited", "for"],
    ]
    assert f"{child}  pending     waited for" in run("jobs", "show", first, "--url", project.url).lines
    told = run("jobs", "show", child, "--json", "--url", project.url).json
    assert told["after"][0] == {"id": first, "state": "pending", "waits": True}
    assert (told["after_any"], told["dependents"]["total"]) == (True, 0)
    told = run("jobs", "show", first, "--json", "--url", project.url).json
    assert told["dependents"] == {
        "items": [{"id": child, "state": "pending", "waits": True}],
        "total": 1,
        "total_exact": True,
    }


def test_a_job_cannot_be_enqueued_after_one_that_is_not_there(run: Run, project: Project) -> None:
    """The error names it; and --after-any alone says nothing."""
    answer = run("enqueue", "mail", "--after", NOBODY, "--url", project.url)
    assert answer.code != 0
    assert f"there is no job {NOBODY} to run after" in answer.errors
    assert run("enqueue", "mail", "--after-any", "--url", project.url).code == 2
