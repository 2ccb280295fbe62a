"""``tidewheel why``: the six questions, answered for somebody who was woken up by them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable

import click.testing
import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, on_terminal
from tidewheel import Tidewheel, TopicLimits
from tidewheel.admin.reports import attention
from tidewheel.admin.reports.answers import Finding, FindingKind, Severity
from tidewheel.admin.reports.questions import QUESTION_TEXTS
from tidewheel.cli.why import QUESTION_NAMES
from tidewheel.cli.why_answers import print_finding
from tidewheel.core.model import ClaimRequest, Lane, WorkerRecord
from tidewheel.server.routes.report_routes import QUESTIONS

LONG = "state:failed topic:'it''s; odd' " + "and more " * 20
needs_terminal = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")


@pytest.fixture
def trouble(project: Project, within: Within, work_off: Callable[[], None]) -> None:
    """Three completed jobs, two failed ones, two that nobody knows and two that are alike."""

    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("send_digest", [{"user_id": str(number)} for number in range(3)])
        await app.enqueue_many("send_digest", [{"user_id": "nobody"}] * 2)

    async def more(app: Tidewheel) -> None:
        await app.enqueue_many("forgotten", [{"number": 1}] * 2)

    within(fill)
    work_off()
    within(more)


@pytest.mark.usefixtures("trouble")
def test_without_a_question_every_answer_is_a_sentence(run: Run, project: Project) -> None:
    """All six, and below them what needs attention and what to do about it."""
    answer = run("why", "--url", project.url)
    assert answer.code == 0
    for name in QUESTION_TEXTS:
        [line] = [line for line in answer.lines if line.startswith(f"{name:12}")]
        assert line.endswith(".")
    assert "2 jobs have failed, with “no_user: nobody lives here” in send_digest (2)" in answer.out
    assert "CRITICAL  No worker is running" in answer.out
    assert "do: Start one: tidewheel worker MODULE:APP" in answer.out
    assert f"tidewheel why stuck --url {project.url}" in answer.out


@pytest.mark.usefixtures("trouble")
def test_commands_that_are_proposed_do_what_they_say(run: Run, project: Project) -> None:
    """They can be copied as they stand: the store is named in them, the filter is quoted."""
    text = run("why", "failed", "--url", project.url).out
    proposed = [line.strip() for line in text.splitlines() if line.startswith("    tidewheel ")]
    shown, listed, requeued = (shlex.split(line)[1:] for line in proposed)
    assert "nobody lives here" in run(*shown).out
    assert len(run(*listed, "--json").json["items"]) == 2
    assert run(*requeued, "--yes", "--json").code == 0
    assert run("why", "failed", "--url", project.url).lines[1] == "No job has failed."


def test_jobs_that_wait_for_a_limit_are_told(
    run: Run, project: Project, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By why, among what is outstanding, and by the doctor: which topic, which limit, what to do."""
    monkeypatch.setattr(attention, "MIN_LIMIT_WAIT_SECONDS", 0.0)

    async def fill(app: Tidewheel) -> None:
        await app.limits.set("send_digest", TopicLimits(concurrency=1))
        await app.enqueue_many("send_digest", [{"user_id": "1"}] * 3)
        await app.store.claim(ClaimRequest("w", (Lane("send_digest"),), 10, 60.0))
        lanes = (Lane("send_digest"),)
        record = WorkerRecord(name="w", host="box", pid=1, version="0", started_at=1, lanes=lanes)
        await app.store.heartbeat(record)

    within(fill)
    sentence = "2 jobs of send_digest are due and wait for its limit of 1 at once (1 run)"
    assert "send_digest waits for its limit" in run("why", "--url", project.url).out
    outstanding = run("why", "outstanding", "--url", project.url).out
    assert sentence in outstanding
    assert "tidewheel limits remove send_digest" in outstanding
    examined = run("doctor", "--url", project.url)
    assert sentence in examined.out
    assert examined.code == 0


def test_commands_of_remedies_are_whole_and_name_the_store(
    run: Run, project: Project, within: Within
) -> None:
    """On a line of their own, whatever the width: half a command that is pasted does something else."""

    async def pause(app: Tidewheel) -> None:
        await app.enqueue("mail", {})
        await app.pause("mail")

    within(pause)
    for question in ((), ("attention",), ("stuck",)):
        text = run("why", *question, "--url", project.url, "--tenant", "root").out
        [command] = {line for line in text.splitlines() if "tidewheel topics resume" in line}
        assert command == f"      do: tidewheel topics resume mail --url {project.url}"
    assert run(*shlex.split(command)[2:]).code == 0
    finding = Finding(
        kind=FindingKind.FAILING_TASK, severity=Severity.WARNING, title="It fails", explanation="It does.",
        remedy=f"See them: tidewheel jobs list --where {shlex.quote(LONG)}; put it right. Or do not",
    )  # fmt: skip
    with click.testing.CliRunner().isolation() as streams:
        print_finding(finding, options=" --url x --tenant t", brief=True)
        lines = streams[0].getvalue().decode().splitlines()
    assert lines[1:] == [
        "      do: See them:",
        f"    tidewheel jobs list --where {shlex.quote(LONG)} --url x --tenant t",
    ]


def test_a_command_of_two_words_is_shown_whole() -> None:
    """What is pasted must run: a hyphen does not end the name of a command."""
    finding = Finding(
        kind=FindingKind.HOLDER_LOST, severity=Severity.WARNING, title="Held", explanation="It is.",
        remedy="Free them now: tidewheel jobs take-back --lost; otherwise wait",
    )  # fmt: skip
    with click.testing.CliRunner().isolation() as streams:
        print_finding(finding, options=" --url x", brief=True)
        lines = streams[0].getvalue().decode().splitlines()
    assert "tidewheel jobs take-back --lost --url x" in "\n".join(lines)


@pytest.mark.usefixtures("trouble")
@pytest.mark.parametrize("name", QUESTION_NAMES)
def test_each_question_can_be_asked_alone(run: Run, project: Project, name: str) -> None:
    """For people a sentence first, for programs the same fields under the same name."""
    told = run("why", name, "--json", "--url", project.url).json
    assert list(told) == [name]
    lines = run("why", name.replace("_", "-"), "--url", project.url).lines
    assert lines[0] == QUESTION_TEXTS.get(name, "What needs attention?")
    # Milliseconds have passed in between.
    timeless = re.compile(r"\d+ ms")
    assert timeless.sub("", lines[1]) == timeless.sub("", told[name]["answer"])


@pytest.mark.usefixtures("trouble")
def test_json_has_every_answer_by_its_name(run: Run, project: Project) -> None:
    """The names are those of the Python and the HTTP API; ids and times are text."""
    told = run("why", "--json", "--url", project.url).json
    assert list(told) == [*QUESTION_TEXTS, "attention"] == [*(asked.name for asked in QUESTIONS), "attention"]
    [group] = told["failed"]["groups"]
    assert (group["jobs"], group["topic"], len(group["newest"])) == (2, "send_digest", 36)
    assert group["last_failed_at"].endswith("+00:00")
    assert told["duplicates"]["same_payload"][0]["jobs"] == 2
    assert told["stuck"]["things"][0]["kind"] == "no_worker"
    assert told["last_hour"]["series"][0]["minute"].endswith(":00+00:00")
    assert run("why", "all", "--json", "--url", project.url).json.keys() == told.keys()


@pytest.mark.usefixtures("trouble")
def test_with_an_app_tasks_nobody_knows_are_told(run: Run) -> None:
    """Without one a store cannot tell a forgotten task from a worker that is still to be started."""
    text = run("why", "stuck", "--app", "jobs:app").out
    assert "unknown_task\t2" in text
    assert "do: Deploy code that registers it" in text
    assert "see: tidewheel jobs list --where 'state:pending topic:forgotten" in text
    assert "--app jobs:app" in text


def test_a_quiet_queue_is_said_to_be_quiet(run: Run, project: Project, within: Within) -> None:
    """Nothing is no reason for tables without rows."""

    async def nothing(app: Tidewheel) -> None:
        pass

    within(nothing)
    text = run("why", "--url", project.url).out
    assert "Nothing is outstanding." in text
    assert "No job has failed." in text
    assert run("why", "failed", "--url", project.url).lines == ["What failed, and why?", "No job has failed."]


def test_a_question_that_does_not_exist_is_an_error(run: Run) -> None:
    """With the nearest one, before any store is opened."""
    answer = run("why", "faild")
    assert (answer.code, "there is no question 'faild' (did you mean failed?)" in answer.errors) == (2, True)
    assert "the questions are outstanding, failed, stuck" in run("why", "42").errors


def test_a_file_that_is_not_there_is_an_error(run: Run, project: Project) -> None:
    """And is not made by asking about it."""
    answer = run("why")
    assert (answer.code, "there is no database" in answer.errors) == (1, True)
    assert not (project.directory / "tidewheel.db").exists()


def test_a_tenant_is_answered_about_its_own_jobs(run: Run, project: Project, within: Within) -> None:
    """And commands that are proposed are about that tenant."""

    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("one", [{"same": 1}] * 2, tenant="acme")
        await app.enqueue_many("two", [{"same": 1}] * 3)

    within(fill)
    told = run("why", "--json", "--tenant", "acme", "--url", project.url).json
    assert told["outstanding"]["pending"] == 2
    text = run("why", "outstanding", "duplicates", "--tenant", "acme", "--url", project.url).out
    assert "two" not in text
    assert "--tenant acme" in run("why", "--tenant", "acme", "--url", project.url).out


def test_what_an_error_says_is_not_obeyed_by_the_terminal(run: Run, project: Project) -> None:
    """An error may hold anything, also what clears a screen or paints a prompt."""
    project.write(
        "evil.py",
        "from tidewheel import Fail, Tidewheel\n"
        'app = Tidewheel("sqlite:///jobs.db")\n'
        "@app.task(max_attempts=1)\n"
        "async def evil() -> None:\n"
        '    raise Fail("\\x1b[2J\\x1b]0;owned\\x07 gone")\n',
    )
    from tidewheel.cli.app_loader import load_app

    app = load_app("evil:app")
    app.sync.open()
    app.sync.enqueue("evil")
    app.sync.run_until_idle()
    app.sync.close()
    for arguments in (("why",), ("why", "all"), ("jobs", "list")):
        text = run(*arguments, "--app", "evil:app").out
        assert "gone" in text
        assert "\x1b" not in text
        assert "\x07" not in text


@needs_terminal
@pytest.mark.usefixtures("trouble")
def test_a_terminal_of_80_columns_shows_what_matters(project: Project) -> None:
    """Numbers are whole, the error is what is shortened, and prose breaks between words."""
    with on_terminal(project, "why", "failed", "stuck", "--app", "jobs:app") as terminal:
        terminal.wait_for("What to do next")
        assert terminal.wait() == 0
    lines = terminal.text.splitlines()
    assert any(line.startswith("jobs  last  last hour") for line in lines)
    [row] = [line for line in lines if line.startswith("   2 ")]
    assert "no_user: nobody lives here" in row
    assert all(len(line) <= 80 for line in lines if "tidewheel jobs" not in line)


@needs_terminal
@pytest.mark.usefixtures("trouble")
def test_the_six_answers_fit_on_one_screen(project: Project) -> None:
    """Whoever looks at them at night need not scroll."""
    with on_terminal(project, "why", "--app", "jobs:app") as terminal:
        assert terminal.wait() == 0
    assert len(terminal.text.splitlines()) < 24
