"""Tasks that come into an app together, with their configuration."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tidewheel
from tidewheel import ConfigurationError, Tidewheel


def greetings(app: Tidewheel, *, word: str, fail: bool = False) -> list[str]:
    """What a module of a user's has."""

    @app.task(topic="greetings")
    def greet(name: str) -> str:
        return f"{word}, {name}"

    if fail:
        app.task(greet.fn)  # the name is taken
    return ["greet"]


async def test_a_source_registers_its_tasks_with_the_configuration_it_is_given() -> None:
    """Anything with a function ``register`` is one; what that answers is what the app answers."""
    app = Tidewheel("memory://")
    assert app.include(SimpleNamespace(register=greetings), word="Ahoy") == ["greet"]
    async with app:
        job = await app.enqueue("greet", {"name": "Rope"})
        await app.run_until_idle()
        assert await job.result(0) == "Ahoy, Rope"


def test_a_source_that_fails_in_the_middle_leaves_no_task_behind() -> None:
    """All of its tasks or none, and what was there before stays."""
    app = Tidewheel("memory://")

    @app.task(topic="greetings", on_success=lambda: None)
    def wave() -> None: ...

    with pytest.raises(ConfigurationError, match="the name 'greet' is given to two tasks"):
        app.include(SimpleNamespace(register=greetings), word="Ahoy", fail=True)
    assert list(app.registry.tasks) == ["wave"]
    assert app.registry.tasks_on_topic("greetings") == (wave,)
    assert app.registry.find("greet") is None
    assert app.registry.has_callbacks
    app.include(SimpleNamespace(register=greetings), word="Ahoy")
    assert list(app.registry.tasks) == ["wave", "greet"]


@pytest.mark.parametrize(
    "source", [pytest, SimpleNamespace(register=1), None], ids=["module", "number", "none"]
)
def test_what_cannot_register_is_refused(source: Any) -> None:
    """The error says what to write."""
    with pytest.raises(ConfigurationError, match=r"has no function register\(app, …\)"):
        Tidewheel("memory://").include(source)


def test_the_tasks_of_tidewheel_are_there_without_an_import_of_their_own() -> None:
    """``import tidewheel`` is enough for ``app.include(tidewheel.builtin, …)``."""
    app = Tidewheel("memory://")
    tasks = app.include(tidewheel.builtin, roots=".")
    assert tasks["create_file"] is app.registry.find("create_file")
