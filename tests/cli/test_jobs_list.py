"""``tidewheel jobs list``: every filter, every form."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Answer, Run, Within
from tests.cli.processes import Project, on_terminal
from tidewheel import Tidewheel


@pytest.fixture
def jobs(project: Project, within: Within, work_off: Callable[[], None]) -> dict[str, str]:
    """One job of each kind, by a name for it."""

    async def fill(app: Tidewheel) -> dict[str, str]:
        made = {
            "done": await app.enqueue("send_digest", {"user_id": "42"}, key="k1", tenant="acme"),
            "failed": await app.enqueue("send_digest", {"user_id": "nobody"}, correlation_id="c1"),
            "delayed": await app.enqueue("send_digest", {"user_id": "7"}, delay=3600),
            "foreign": await app.enqueue("mail", {"to": "needle"}),
        }
        return {name: str(job.id) for name, job in made.items()}

    made: dict[str, str] = within(fill)
    work_off()
    return made


@pytest.fixture
def listed(run: Run, project: Project) -> Run:
    def listed(*arguments: str) -> Answer:
        return run("jobs", "list", *arguments, "--url", project.url)

    return listed


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], ["foreign", "delayed", "failed", "done"]),
        (["--topic", "mail"], ["foreign"]),
        (["--task", ""], ["foreign", "delayed", "failed", "done"]),
        (["--task", "send_digest"], []),
        (["--state", "failed"], ["failed"]),
        (["--state", "DELAYED"], ["delayed"]),
        (["--state", "pending"], ["foreign", "delayed"]),
        (["--tenant", "acme"], ["done"]),
        (["--key", "k1"], ["done"]),
        (["--correlation-id", "c1"], ["failed"]),
        (["--created-after", "1h"], ["foreign", "delayed", "failed", "done"]),
        (["--created-before", "1h"], []),
        (["--created-after", "2100-01-01T00:00Z"], []),
        (["--text", "needle"], ["foreign"]),
        (["--text", "nobody lives"], ["failed"]),
        (["--topic", "send_digest", "--state", "completed"], ["done"]),
        (["state:failed OR topic:mail"], ["foreign", "failed"]),
        (["--where", "payload.user_id:42 tenant:acme"], ["done"]),
        (["payload.user_id:42", "OR", "to"], ["foreign", "done"]),
        (["--state", "pending", "NOT topic:mail"], ["delayed"]),
        (["error:nobody", "age<1h"], ["failed"]),
        (["--limit", "2"], ["foreign", "delayed"]),
        (["--limit", "1", "--offset", "2"], ["failed"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)  # fmt: skip
def test_filters_select(jobs: dict[str, str], listed: Run, filters: list[str], expected: list[str]) -> None:
    """Each condition alone and together with others, newest first."""
    answer = listed(*filters, "--quiet")
    assert answer.code == 0, answer.errors
    assert answer.lines == [jobs[name] for name in expected]


def test_a_filter_that_cannot_be_read_is_pointed_at(jobs: dict[str, str], listed: Run) -> None:
    """The reason on one line, then the text with carets under what is meant."""
    answer = listed("topic:mail state:faild")
    assert answer.code == 2
    reason, text, carets = answer.errors.splitlines()
    assert "did you mean failed?" in reason
    assert text[carets.index("^") :] == "faild"
    assert carets.count("^") == len("faild")
    assert "given twice" in listed("state:failed", "--where", "state:failed").errors


def test_pages_are_continued_by_cursor(jobs: dict[str, str], listed: Run) -> None:
    """A page says how the next one is asked for; the last one does not."""
    first = listed("--limit", "3", "--json").json
    assert (len(first["items"]), first["total"], first["total_exact"]) == (3, 4, True)
    rest = listed("--limit", "3", "--cursor", str(first["cursor"]), "--json").json
    assert [item["id"] for item in rest["items"]] == [jobs["done"]]
    assert rest["cursor"] is None
    plain = listed("--limit", "3")
    assert plain.errors == f"3 of 4; the next page: --cursor {first['cursor']}\n"


def test_json_has_every_field_and_no_bodies(jobs: dict[str, str], listed: Run) -> None:
    """The keys are a promise: they are only ever added to."""
    page = listed("--state", "failed", "--json").json
    assert set(page) == {
        "items", "total", "total_exact", "limit", "offset", "cursor", "partial", "searched_back_to",
    }  # fmt: skip
    (job,) = page["items"]
    assert set(job) == {
        "id", "number", "tenant", "topic", "task", "state", "shown_state", "priority", "attempt",
        "max_attempts", "timeout", "key", "correlation_id", "user_id", "service_id", "worker",
        "cancel_requested", "created_at", "run_at", "claimed_at", "started_at", "finished_at",
        "leased_until", "progress", "error_summary", "limit_key",
    }  # fmt: skip
    assert job["error_summary"] == "no_user: nobody lives here"


def test_a_pipe_gets_complete_tab_separated_lines(jobs: dict[str, str], listed: Run) -> None:
    """No colours, no boxes, nothing cut, times exact: for cut, awk and sort."""
    header, *lines = listed().lines
    assert header.split("\t") == ["ID", "STATE", "TASK", "TOPIC", "TRIES", "CREATED", "DETAIL"]
    cells = [line.split("\t") for line in lines]
    assert [line[:2] for line in cells] == [
        [jobs["foreign"], "pending"],
        [jobs["delayed"], "delayed"],
        [jobs["failed"], "failed"],
        [jobs["done"], "completed"],
    ]
    assert cells[2][6] == "no_user: nobody lives here"
    assert cells[1][6].startswith("due 20")
    assert "\x1b" not in listed().out
    assert all(line.endswith("+00:00") for line in (cells[0][5], cells[3][5]))


def test_no_match_is_an_empty_list_and_no_error(jobs: dict[str, str], listed: Run) -> None:
    """Nothing found is an answer."""
    assert listed("--topic", "nothing").lines == ["ID\tSTATE\tTASK\tTOPIC\tTRIES\tCREATED\tDETAIL"]
    assert listed("--topic", "nothing", "--json").json["items"] == []
    assert listed("--topic", "nothing").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--state", "broken"], "'broken' is not one of"),
        (["--limit", "0"], "0 is not in the range"),
        (["--created-after", "yesterday"], "or 2h for two hours ago"),
        (["--topic", "no such topic"], "topic is 'no such topic'"),
        (["--tenant", ""], "tenant is ''"),
    ],
)
def test_a_wrong_filter_is_a_usage_error(
    jobs: dict[str, str], listed: Run, arguments: list[str], words: str
) -> None:
    """Value and what would be right, exit code 2."""
    answer = listed(*arguments)
    assert answer.code == 2
    assert words in answer.errors


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("columns", [80, 140])
def test_a_terminal_gets_a_table_with_whole_ids(jobs: dict[str, str], project: Project, columns: int) -> None:
    """Ids stay copyable at any width, states have their colour, no line is wider than the terminal."""
    with on_terminal(project, "jobs", "list", "--url", project.url, columns=columns) as terminal:
        assert terminal.wait() == 0
        for job_id in jobs.values():
            assert job_id in terminal.text
        assert all(len(line) <= columns for line in terminal.text.splitlines())
        assert "\x1b[31mfailed" in terminal.raw
        assert ("nobody lives here" in terminal.text) == (columns == 140)


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_no_color_is_respected(jobs: dict[str, str], project: Project) -> None:
    """Those who want no colours get none."""
    with on_terminal(project, "jobs", "list", "--url", project.url, NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
        assert "\x1b[31m" not in terminal.raw


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_an_empty_list_says_so_on_a_terminal(jobs: dict[str, str], project: Project) -> None:
    """An empty screen would look like a fault."""
    with on_terminal(project, "jobs", "list", "--topic", "none", "--url", project.url) as terminal:
        assert terminal.wait() == 0
        assert terminal.text == "no jobs match\n"


def test_json_is_the_same_on_any_store(run: Run, project: Project) -> None:
    """An app's own URL works like --url."""
    run("enqueue", "send_digest", '{"user_id": "1"}', "--app", "jobs:app")
    found: Any = run("jobs", "list", "--app", "jobs:app", "--json").out
    assert json.loads(found) == run("jobs", "list", "--url", project.url, "--json").json
