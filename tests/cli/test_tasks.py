"""``tidewheel tasks``: what an app can do."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_in_a_pipe_it_is_a_line_for_each(run: Run) -> None:
    """Tab-separated, under a header; what may be left out of a payload has a question mark."""
    lines = [line.split("\t") for line in run("tasks", "jobs:app").lines]
    assert lines == [
        ["NAME", "TOPIC", "ATTEMPTS", "TIMEOUT", "TAKES", "ALIASES"],
        ["send_digest", "send_digest", "5", "300.0", "user_id", ""],
        ["stepwise", "stepwise", "3", "300.0", "", ""],
        ["wait", "slow", "2", "300.0", "seconds", ""],
    ]


def test_json_has_the_schemas(run: Run) -> None:
    """One object for each task."""
    digest, *_ = run("tasks", "jobs:app", "--json").json
    assert (digest["name"], digest["max_attempts"], digest["durable"]) == ("send_digest", 5, True)
    assert digest["payload_schema"]["required"] == ["user_id"]
    assert digest["result_schema"] == {"type": "object", "additionalProperties": {"type": "string"}}


def test_openapi_has_a_schema_of_all_tasks(run: Run) -> None:
    """What a server answers at /api/jobs/tasks/openapi.json, without a server."""
    document = run("tasks", "jobs:app", "--openapi").json
    tasks = document["components"]["schemas"]["Tasks"]
    assert tasks["required"] == ["send_digest", "stepwise", "wait"]
    assert tasks["properties"]["wait"]["properties"]["payload"]["required"] == ["seconds"]
