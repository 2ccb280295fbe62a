"""The reference is complete: whatever users can name is in it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tidewheel
from tests.docs.generated import PARTS, every_command, renewed
from tests.docs.pages import ROOT
from tidewheel import (
    BoundTask,
    Context,
    Job,
    JobPage,
    Retry,
    Task,
    Tidewheel,
    Transaction,
    WorkerInfo,
    errors,
    testing,
)
from tidewheel.access.access_control import Access
from tidewheel.admin.filters import JobFilters
from tidewheel.core.model import DerivedState, State
from tidewheel.settings import SETTINGS
from tidewheel.stores.postgres import location as postgres_location
from tidewheel.stores.sqlite import location as sqlite_location
from tidewheel.tasks.context import JobInfo
from tidewheel.tasks.options import EnqueueOptions, TaskOptions, WorkerOptions

REFERENCE = ROOT / "docs/reference"


def text(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def mentions(page: str, name: str) -> bool:
    """Whether a page shows the name as code, alone or at the start of a call."""
    return re.search(rf"`[^`\n]*(?<!\w){re.escape(name)}(?!\w)[^`\n]*`", page) is not None


def members(kind: type[Any]) -> Iterator[str]:
    """What a user can reach on an object of this type."""
    named = {
        name for base in kind.__mro__[:-1] for name in (*vars(base), *vars(base).get("__annotations__", {}))
    }
    yield from sorted(name for name in named if not name.startswith("_"))


@pytest.mark.parametrize("name", PARTS)
def test_generated_parts_are_up_to_date(name: str) -> None:
    """What the code says about itself is what the page says: run python -m tests.docs.generated."""
    found, expected = renewed(name)
    assert found == expected


def test_every_setting_is_documented() -> None:
    """No setting is a secret."""
    page = text("settings.md")
    missing = [name for name in SETTINGS if not mentions(page, name)]
    assert not missing


@pytest.mark.parametrize("location", [sqlite_location, postgres_location], ids=["sqlite", "postgres"])
def test_every_option_of_a_url_is_documented(location: Any) -> None:
    """Nor is an option of the URL."""
    page = text("settings.md")
    assert not [name for name in location._OPTIONS if not mentions(page, name)]


def test_every_command_has_help() -> None:
    """The command line explains itself, and so does its page."""
    for command, context in every_command():
        assert command.help, context.command_path
        assert f"`{context.command_path}`" in text("cli.md")


def test_every_exception_is_documented_with_its_code() -> None:
    """Whoever catches an error finds out what it means."""
    page = text("errors.md")
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    for kind in kinds:
        assert mentions(page, kind.__name__), kind.__name__
        if issubclass(kind, errors.TidewheelError) and kind is not errors.TidewheelError:
            line = next(line for line in page.splitlines() if line.startswith(f"| `{kind.__name__}`"))
            assert f"`{kind.code}`" in line, line


def test_the_tree_of_errors_is_the_one_in_the_code() -> None:
    """One drawing, in two places."""
    tree = (errors.__doc__ or "").partition("::\n\n")[2]
    assert inspect.cleandoc(tree) in text("errors.md")


def test_every_state_is_documented() -> None:
    """Stored and derived ones alike."""
    page = text("states.md")
    assert not [state for state in (*State, *DerivedState) if not mentions(page, state)]


@pytest.mark.parametrize("kind", [Job, JobPage], ids=lambda kind: kind.__name__)
def test_every_field_of_a_job_is_documented(kind: type[Any]) -> None:
    """What a handle tells, and what can be done with it."""
    page = text("jobs.md")
    assert not [name for name in members(kind) if not mentions(page, name)]


def test_every_retry_policy_is_documented() -> None:
    """Each way to build one."""
    page = text("retry.md")
    built = [name for name, _ in inspect.getmembers(Retry, inspect.ismethod) if name != "load"]
    assert not [name for name in built if not mentions(page, f"Retry.{name}")]


def test_every_public_name_is_documented() -> None:
    """What ``from tidewheel import …`` offers is explained somewhere in the reference."""
    whole = "\n".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    assert not [name for name in tidewheel.__all__ if not mentions(whole, name)]


INNER = {
    # For the worker and for each other; not for users.
    Tidewheel: {"portal", "external_transaction", "notify_on_commit", "remote"},
    Task: {"decode", "invoke", "encode_result", "decode_result", "template", "job_for_call", "signature"}
    | {"jobs_for_payloads", "is_async", "retry"},
    Context: {"save_report", "lease_lost", "wait_for", "checkpoint_limit"}
    | {"open_transaction", "transaction_for"},
    Transaction: {"enqueue", "get", "keep_report", "complete", "roll_back", "is_waited_for"},
}


@pytest.mark.parametrize(
    "kind",
    [Tidewheel, Access, Task, BoundTask, Context, Transaction, JobInfo, WorkerInfo],
    ids=lambda kind: kind.__name__,
)
def test_every_call_is_documented(kind: type[Any]) -> None:
    """Every method and property users may call."""
    page = text("python-api.md")
    names = [name for name in members(kind) if name not in INNER.get(kind, set())]
    assert not [name for name in names if not mentions(page, name)]


@pytest.mark.parametrize(
    "kind", [EnqueueOptions, TaskOptions, WorkerOptions, JobFilters], ids=lambda kind: kind.__name__
)
def test_every_option_is_documented(kind: type[Any]) -> None:
    """Options of tasks, jobs and workers, and filters."""
    page = text("python-api.md")
    assert not [name for name in kind.__annotations__ if not mentions(page, name)]


def test_every_testing_helper_is_documented() -> None:
    """What ``tidewheel.testing`` offers users is shown in use."""
    page = (ROOT / "docs/how-to/testing.md").read_text("utf-8")
    assert not [name for name in testing.__all__ if not mentions(page, name)]
