"""The hosted workflow and the pre-commit hooks agree with pyproject.toml and the tree."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.docs.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]


def commands(job: dict[str, Any]) -> list[str]:
    """Return the shell commands of a job, in order."""
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_suite_runs_on_every_python_version_of_the_classifiers() -> None:
    """A version that pyproject.toml claims is a version that is tested."""
    claimed = [
        version[1]
        for classifier in PROJECT["classifiers"]
        if (version := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", classifier))
    ]
    assert JOBS["suite"]["strategy"]["matrix"]["python"] == claimed


def test_the_suite_is_the_script_that_contributors_run() -> None:
    """What passes on a contributor's machine passes in the workflow, and the reverse."""
    assert ".ci/run" in commands(JOBS["suite"])
    assert (ROOT / ".ci/run").is_file()


def test_the_smoke_test_names_files_that_exist() -> None:
    """A test file that was moved would fail only on macOS and Windows, where no contributor may look."""
    named = re.findall(r"tests/[\w/]+\.py", "\n".join(commands(JOBS["smoke"])))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("name", JOBS)
def test_a_job_may_only_read_and_ends(name: str) -> None:
    """A pull request runs code of a stranger: it gets no right to write and no time without a limit."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert "permissions" not in JOBS[name]
    assert JOBS[name]["timeout-minutes"] <= 60
    for step in JOBS[name]["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_pre_commit_runs_a_ruff_that_pyproject_accepts() -> None:
    """A hook of an older ruff would format what the check of the workflow refuses."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    [revision] = [
        repository["rev"] for repository in hooks if repository["repo"].endswith("/ruff-pre-commit")
    ]
    requirements = map(Requirement, PROJECT["optional-dependencies"]["test"])
    [ruff] = [requirement for requirement in requirements if requirement.name == "ruff"]
    assert ruff.specifier.contains(revision.removeprefix("v")), f"{revision} does not satisfy {ruff}"
