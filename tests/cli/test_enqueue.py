"""``tidewheel enqueue``: every option arrives at the job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cli.conftest import Answer, Run, Within
from tests.cli.processes import Project, on_terminal
from tidewheel import Tidewheel
from tidewheel.cli.enqueue import BATCH_SIZE


@pytest.fixture
def enqueue(run: Run, project: Project) -> Run:
    """Enqueues on the project's store, without an app."""

    def enqueue(*arguments: str, input: str | bytes | None = None) -> Answer:  # noqa: A002
        return run("enqueue", *arguments, "--url", project.url, input=input)

    return enqueue


@pytest.fixture
def shown(run: Run, project: Project) -> Callable[[Answer], dict[str, Any]]:
    """The job an answer names, as ``jobs show --json`` has it."""

    def shown(answer: Answer) -> dict[str, Any]:
        assert answer.code == 0, answer.errors
        found: dict[str, Any] = run(
            "jobs", "show", answer.lines[0].split()[0], "--json", "--url", project.url
        ).json
        return found

    return shown


Shown = Callable[[Answer], dict[str, Any]]


def test_it_prints_the_id(enqueue: Run, shown: Shown) -> None:
    """One line, one id: ready for a variable of a script."""
    answer = enqueue("mail", '{"to": "ada"}')
    assert len(answer.out) == 37
    job = shown(answer)
    assert (job["topic"], job["task"], job["payload"], job["state"]) == ("mail", "", {"to": "ada"}, "pending")


def test_a_payload_left_out_is_an_empty_object(enqueue: Run, shown: Shown) -> None:
    """As in Python."""
    assert shown(enqueue("mail"))["payload"] == {}


def test_the_payload_can_come_from_stdin(enqueue: Run, shown: Shown) -> None:
    """A dash reads what another program wrote."""
    assert shown(enqueue("mail", "-", input='{"to": "grace"}'))["payload"] == {"to": "grace"}


def test_every_option_arrives(enqueue: Run, shown: Shown) -> None:
    """Nothing given on the command line is dropped on the way."""
    answer = enqueue(
        "mail", "{}", "--priority", "-7", "--key", "k1", "--until", "finished", "--on-duplicate", "keep",
        "--max-attempts", "9", "--timeout", "90s", "--tenant", "acme", "--correlation-id", "c1",
        "--user-id", "u1", "--service-id", "s1", "--run-at", "2030-01-31T09:00+02:00", "--expires", "36500d",
    )  # fmt: skip
    job = shown(answer)
    assert {name: job[name] for name in ("priority", "key", "max_attempts", "timeout", "tenant")} == {
        "priority": -7, "key": "k1", "max_attempts": 9, "timeout": 90.0, "tenant": "acme",
    }  # fmt: skip
    assert (job["correlation_id"], job["user_id"], job["service_id"]) == ("c1", "u1", "s1")
    assert datetime.fromisoformat(job["run_at"]) == datetime(2030, 1, 31, 7, tzinfo=UTC)
    assert job["shown_state"] == "delayed"


def test_delay_is_counted_from_now(enqueue: Run, shown: Shown) -> None:
    """--delay 5m is due five minutes after the enqueue."""
    job = shown(enqueue("mail", "--delay", "5m"))
    waits = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["created_at"])
    assert waits.total_seconds() == 300


def test_none_means_no_limit(enqueue: Run, shown: Shown) -> None:
    """Unlimited attempts and no timeout can be said."""
    job = shown(enqueue("mail", "--max-attempts", "none", "--timeout", "none"))
    assert (job["max_attempts"], job["timeout"]) == (None, None)


def test_an_expired_job_is_cancelled(run: Run, project: Project, work_off: Callable[[], None]) -> None:
    """--expires drops what was not started in time."""
    answer = run("enqueue", "send_digest", '{"user_id": "42"}', "--expires", "1ms", "--app", "jobs:app")
    work_off()
    job = run("jobs", "show", answer.out.strip(), "--json", "--app", "jobs:app").json
    assert job["state"] == "cancelled"
    assert job["error_summary"].startswith("expired: not started in time")
    assert "reason       expired: not started" in run("jobs", "show", job["id"], "--app", "jobs:app").out


def test_a_duplicate_is_named_as_such(enqueue: Run) -> None:
    """The id of the job that was there, and the word."""
    first = enqueue("mail", "{}", "--key", "k1")
    second = enqueue("mail", "{}", "--key", "k1")
    assert second.code == 0
    assert second.out == f"{first.out.strip()} duplicate\n"


def test_a_waiting_duplicate_can_take_the_new_payload(enqueue: Run, shown: Shown) -> None:
    """--on-duplicate replace is a debounce."""
    enqueue("mail", '{"n": 1}', "--key", "k1")
    answer = enqueue("mail", '{"n": 2}', "--key", "k1", "--on-duplicate", "replace")
    assert answer.out.endswith(" duplicate, replaced\n")
    assert shown(answer)["payload"] == {"n": 2}


def test_the_payload_can_be_the_key(enqueue: Run) -> None:
    """--key-by-payload makes equal payloads one job, however they are written."""
    first = enqueue("mail", '{"a": 1, "b": 2}', "--key-by-payload")
    assert enqueue("mail", '{"b": 2, "a": 1}', "--key-by-payload").out.startswith(first.out.strip())
    assert "duplicate" not in enqueue("mail", '{"a": 2}', "--key-by-payload").out


def test_json_answers_programs(enqueue: Run) -> None:
    """An object with stable keys."""
    answer = enqueue("mail", "--key", "k1", "--json").json
    assert answer == {"id": answer["id"], "duplicate": False, "replaced": False}


@pytest.mark.parametrize("arguments", [("{}",), ("--many", "-")])
def test_a_task_that_is_not_durable_is_refused(
    run: Run, project: Project, arguments: tuple[str, ...]
) -> None:
    """Its job would live in this command, and end with it."""
    (project.directory / "lane.py").write_text(
        "from jobs import app\n\n@app.task(durable=False)\ndef mine() -> None: ...\n"
    )
    answer = run("enqueue", "mine", *arguments, "--app", "lane:app", input="{}\n")
    assert answer.code == 2
    assert "task 'mine' is not durable" in answer.errors


def test_topic_moves_the_job_of_a_known_task(run: Run, project: Project) -> None:
    """--topic needs to know the task: without it the name would be lost."""
    answer = run("enqueue", "send_digest", '{"user_id": "42"}', "--topic", "bulk", "--app", "jobs:app")
    job = run("jobs", "show", answer.out.strip(), "--json", "--app", "jobs:app").json
    assert (job["task"], job["topic"]) == ("send_digest", "bulk")
    refused = run("enqueue", "send_digest", "--topic", "bulk", "--url", "sqlite:///new.db")
    assert refused.code == 2
    assert "no task 'send_digest' is known here; give --app" in refused.errors
    assert not (project.directory / "new.db").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mail", "{'a': 1}"], "the payload is not JSON"),
        (["mail", "hello"], "text needs its own quotes"),
        (["mail", '{"a": 1, "a": 2}'], "an object has the member 'a' twice"),
        (["mail", "-"], "the payload is not JSON"),
        (["no such topic!"], "topic is 'no such topic!'"),
        (["mail", '{"n": 1e999}'], "not finite"),
        (["mail", "--delay", "soon"], "'soon' is no duration"),
        (["mail", "--run-at", "2030-01-01T00:00"], "has no time zone"),
        (["mail", "--run-at", "2030-01-01T00:00Z", "--delay", "5"], "run_at and delay are both given"),
        (["mail", "--max-attempts", "0"], "max_attempts is 0"),
        (["mail", "--key", "a", "--key-by-payload"], "a job has one key"),
        (["mail", "{}", "--many", "-"], "a payload and --many are both given"),
        (["mail", "--many", "-", "--wait", "5"], "--wait is for one job"),
        (["mail", "--many", "-", "--key", "a"], "use --key-by-payload"),
        (["mail", "--many", "nosuch.jsonl"], "nosuch.jsonl"),
        ([], "Missing argument 'NAME'"),
    ],
)  # fmt: skip
def test_bad_input_is_a_usage_error_and_writes_nothing(
    enqueue: Run, within: Within, arguments: list[str], words: str
) -> None:
    """Exit code 2, one clear line, no job."""
    answer = enqueue(*arguments)
    assert answer.code == 2
    assert answer.errors.startswith("error: ")
    assert words in answer.errors

    async def count(app: Tidewheel) -> int:
        return (await app.count()).total

    assert within(count) == 0


def test_a_payload_that_does_not_fit_the_task_is_refused(run: Run) -> None:
    """With --app the task's signature is the schema."""
    answer = run("enqueue", "send_digest", '{"user": "42"}', "--app", "jobs:app")
    assert answer.code == 2
    assert "send_digest" in answer.errors
    assert "user_id" in answer.errors


def test_a_job_in_memory_is_warned_about(run: Run) -> None:
    """memory:// ends with the command; better said than found out."""
    answer = run("enqueue", "mail", "--url", "memory://")
    assert answer.code == 0
    assert answer.errors.startswith("warning: memory:// lives in this process alone")


# -- waiting ----------------------------------------------------------------------------------------------


def test_wait_prints_the_result(project: Project) -> None:
    """The id at once, the result when it is there."""
    with project.start("worker", "jobs:app") as worker:
        worker.wait_for("Ctrl-C stops")
        with project.start(
            "enqueue", "send_digest", '{"user_id": "42"}', "--wait", "30", "--url", project.url
        ) as process:
            assert process.wait() == 0
            job_id, *result = process.seen
            assert len(job_id) == 36
            assert json.loads("".join(result)) == {"sent_to": "42"}


def test_wait_for_a_job_that_fails_is_exit_code_1(project: Project) -> None:
    """The error of the job becomes the error of the command."""
    with project.start("worker", "jobs:app") as worker:
        worker.wait_for("Ctrl-C stops")
        with project.start(
            "enqueue", "send_digest", '{"user_id": "nobody"}', "--wait", "30", "--json", "--url", project.url
        ) as process:
            assert process.wait() == 1
            assert "failed: no_user: nobody lives here" in process.text


def test_wait_gives_up_in_time(enqueue: Run) -> None:
    """Nobody runs the job; the job goes on, the command does not."""
    answer = enqueue("mail", "--wait", "10ms")
    assert answer.code == 1
    assert len(answer.lines) == 1
    assert "did not finish within 0.01 s; it goes on" in answer.errors


# -- files ------------------------------------------------------------------------------------------------


def test_many_makes_a_job_of_each_line(enqueue: Run, project: Project, within: Within) -> None:
    """More lines than a batch, empty ones left out, in order."""
    lines = [json.dumps({"n": n}) for n in range(BATCH_SIZE + 10)]
    project.write("payloads.jsonl", "\n\n".join(lines) + "\n")
    answer = enqueue("mail", "--many", "payloads.jsonl", "--priority", "3")
    assert answer.out == f"enqueued {BATCH_SIZE + 10:,} jobs\n"

    async def newest(app: Tidewheel) -> Any:
        job = (await app.jobs(limit=1))[0]
        return (await job.refresh()).payload, job.priority

    assert within(newest) == ({"n": BATCH_SIZE + 9}, 3)


def test_many_reads_stdin_and_counts_duplicates(enqueue: Run) -> None:
    """The end of a pipeline; equal lines are one job with --key-by-payload."""
    answer = enqueue(
        "mail", "--many", "-", "--key-by-payload", "--json", input='{"n": 1}\n{"n": 2}\n{"n":1}\n'
    )
    assert (answer.json["enqueued"], answer.json["duplicates"]) == (2, 1)
    assert answer.json["ids"][0] == answer.json["ids"][2]
    again = enqueue("mail", "--many", "-", "--key-by-payload", input='{"n": 3}\n{"n": 2}\n')
    assert again.out == "enqueued 1 job, 1 duplicate\n"


def test_an_error_in_a_file_names_its_line(enqueue: Run, run: Run, project: Project) -> None:
    """The line, what is wrong with it, and what has been written before."""
    good = '{"n": 1}\n'
    first = enqueue("mail", "--many", "-", input=good + "\n{oops\n")
    assert first.code == 2
    assert "line 3 is not JSON" in first.errors
    assert "nothing was written" in first.errors
    twice = enqueue("mail", "--many", "-", input=good + '{"n": 1, "n": 2}\n')
    assert "line 2 cannot be accepted: an object has the member 'n' twice" in twice.errors
    later = enqueue("mail", "--many", "-", input=good * BATCH_SIZE + "\n" + good + '{"n": 1e999}\n')
    assert later.code == 2
    assert f"line {BATCH_SIZE + 3:,}: " in later.errors
    assert f"{BATCH_SIZE:,} jobs of earlier lines are written, the rest is not" in later.errors
    bytes_ = enqueue("mail", "--many", "-", input=b'{"n": "\xff"}\n')
    assert bytes_.code == 2
    assert "not UTF-8" in bytes_.errors


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_ctrl_c_ends_the_wait_for_a_line(project: Project) -> None:
    """A pipeline that never delivers can be left."""
    with on_terminal(project, "enqueue", "mail", "--many", "-", "--url", project.url) as terminal:
        terminal.wait_for("enqueue mail")
        assert terminal.interrupt() == 130
        assert "Traceback" not in terminal.text


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_file_shows_a_progress_bar_on_a_terminal(project: Project) -> None:
    """Long work is seen to move."""
    project.write("payloads.jsonl", '{"n": 1}\n' * 3000)
    with on_terminal(
        project, "enqueue", "mail", "--many", "payloads.jsonl", "--url", project.url, columns=100
    ) as terminal:
        assert terminal.wait() == 0
        assert "enqueue mail" in terminal.text
        assert "3000/3000" in terminal.text
        assert "enqueued 3,000 jobs" in terminal.text
