from __future__ import annotations

import pytest

from tidewheel import ConfigurationError, InvalidInput, Tidewheel
from tidewheel.core.model import Lane


@pytest.fixture
def app() -> Tidewheel:
    app = Tidewheel("memory://")

    @app.task
    def alone() -> None: ...

    @app.task(topic="mail", aliases=["old.send", "post"])
    def send() -> None: ...

    @app.task(topic="mail")
    def bounce() -> None: ...

    @app.task(name="billing.charge", topic="billing")
    def charge() -> None: ...

    return app


@pytest.mark.parametrize(
    ("topic", "task", "runs"),
    [
        ("alone", "alone", "alone"),
        ("alone", "", "alone"),
        ("mail", "send", "send"),
        ("mail", "old.send", "send"),
        ("elsewhere", "send", "send"),
        ("send", "", "send"),
        ("post", "post", "send"),
        ("billing", "", "billing.charge"),
        ("mail", "", None),
        ("mail", "unknown", None),
        ("nowhere", "", None),
    ],
)
def test_a_job_finds_its_task(app: Tidewheel, topic: str, task: str, runs: str | None) -> None:
    """By its task's name or alias; by a bare name the task of that name, else the only one on that topic."""
    found = app.registry.resolve(topic, task)
    assert (found.name if found else None) == runs


def test_two_tasks_cannot_share_a_name_or_alias(app: Tidewheel) -> None:
    """Both places are named, because one of them has to change."""

    def send() -> None: ...

    with pytest.raises(ConfigurationError) as refused:
        app.task(send)
    assert str(refused.value).count("test_registry") == 2
    with pytest.raises(ConfigurationError, match=r"'old.send' is given to two tasks"):
        app.task(name="fresh", aliases=["old.send"])(send)
    assert set(app.registry.tasks) == {"alone", "send", "bounce", "billing.charge"}


def test_lanes_cover_every_job_the_registry_resolves(app: Tidewheel) -> None:
    """A worker asks for what it can run, and for nothing else."""
    lanes = set(app.registry.lanes())
    assert lanes == {
        Lane("alone", "alone"),
        Lane("alone", ""),
        Lane("mail", "send"),
        Lane("mail", "old.send"),
        Lane("mail", "post"),
        Lane("mail", "bounce"),
        Lane("send", ""),
        Lane("send", "send"),
        Lane("post", ""),
        Lane("post", "post"),
        Lane("bounce", ""),
        Lane("bounce", "bounce"),
        Lane("billing", "billing.charge"),
        Lane("billing", ""),
    }
    for lane in lanes:
        assert app.registry.resolve(lane.topic, lane.task or "") is not None


def test_lanes_are_narrowed_by_topic(app: Tidewheel) -> None:
    """``--topics`` and ``--exclude-topics`` speak of topics."""
    assert {lane.topic for lane in app.registry.lanes(["mail"])} == {"mail"}
    assert {lane.topic for lane in app.registry.lanes(["mail", "alone"], ["mail"])} == {"alone"}
    assert {lane.topic for lane in app.registry.lanes(exclude=["mail", "send", "post"])} == {
        "alone",
        "bounce",
        "billing",
    }


def test_a_topic_without_residents_takes_routed_jobs_of_every_task(app: Tidewheel) -> None:
    """That is how ``options(topic="slow")`` finds a worker started with ``--topics slow``."""
    lanes = set(app.registry.lanes(["slow"]))
    assert {lane.task for lane in lanes} == {"alone", "send", "old.send", "post", "bounce", "billing.charge"}
    assert {lane.topic for lane in lanes} == {"slow"}


def test_impossible_topics_are_refused(app: Tidewheel) -> None:
    """A typo on the command line is an error, not a worker that waits for nothing."""
    with pytest.raises(InvalidInput, match="topic is 'a b'"):
        app.registry.lanes(["a b"])
