"""``tidewheel limits``: listing, setting and removing them."""

from __future__ import annotations

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project
from tidewheel import Rate, Tidewheel, TopicLimits


def test_limits_are_set_listed_and_removed(run: Run, project: Project, within: Within) -> None:
    """With everything that can be said about them."""
    words = ("--concurrency", "20", "--rate", "50/s+10", "--key-rate", "5/2m", "--fair", "--weight", "acme=3")
    done = run("limits", "set", "mail", *words, "--url", project.url)
    text = "20 at once; 50 per 1 s, burst 10; 5 per 120 s of each key; fair between tenants (weights acme 3)"
    assert done.lines == [f"limited mail: {text}"]

    async def told(app: Tidewheel) -> dict[str, TopicLimits]:
        return await app.limits.list()

    assert within(told) == {
        "mail": TopicLimits(
            concurrency=20, rate=Rate(50, 1.0, 10), key_rate=Rate(5, 120), fair=True, weights={"acme": 3}
        )
    }
    listed = run("limits", "--url", project.url)
    assert listed.lines == ["TOPIC\tLIMITS\tSET BY", f"mail\t{text}\toperator"]
    assert run("limits", "list", "--url", project.url).out == listed.out
    [one] = run("limits", "--json", "--url", project.url).json
    assert (one["topic"], one["rate"], one["ordered"]) == (
        "mail",
        {"count": 50, "per": 1.0, "burst": 10},
        False,
    )
    assert run("limits", "remove", "mail", "other", "--url", project.url).lines == [
        "removed the limits of mail",
        "other has no limits",
    ]


def test_what_is_no_limit_is_refused(run: Run, project: Project) -> None:
    """With what would be right, and nothing is changed."""
    for words, said in (
        ((), "limit nothing"),
        (("--rate", "fast"), "give 50/s"),
        (("--rate", "50/y"), "is no period"),
        (("--concurrency", "0"), "between 1 and"),
        (("--fair", "--weight", "acme"), "TENANT=NUMBER"),
        (("--ordered", "--key-concurrency", "2"), "one at a time"),
    ):
        refused = run("limits", "set", "mail", *words, "--url", project.url)
        assert refused.code == 2
        assert said in refused.errors
    assert run("limits", "--url", project.url).code != 0  # nothing was set, not even a store made


def test_a_job_is_given_a_limit_key(run: Run, project: Project) -> None:
    """On the command line as elsewhere."""
    made = run("enqueue", "mail", "{}", "--limit-key", "customer-42", "--json", "--url", project.url).json
    shown = run("jobs", "show", made["id"], "--json", "--url", project.url).json
    assert shown["limit_key"] == "customer-42"
