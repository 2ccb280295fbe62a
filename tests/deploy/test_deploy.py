"""The files in ``deploy/``: as far as they can be tried without a container engine or a running systemd."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.cli.processes import Process, wait_until
from tests.patience import PATIENCE
from tidewheel.cli.command_group import tidewheel

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def understood(arguments: Sequence[str]) -> click.Context:
    """What the command line makes of these arguments, without doing it; an error if it makes nothing."""
    name, *rest = arguments
    context = click.Context(tidewheel)
    command = tidewheel.get_command(context, name)
    assert command is not None, f"there is no command {name}"
    return command.make_context(name, rest, parent=context)


# -- the Dockerfile -----------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its arguments, continued lines joined."""
    text = "\n".join(line for line in (DEPLOY / "Dockerfile").read_text().splitlines() if line[:1] != "#")
    joined = text.replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def test_the_image_is_made_of_official_ones_and_runs_as_nobody() -> None:
    """Plain names of images, no root at the end, a program that gets the signals itself."""
    found = instructions()
    assert {name for name, _ in found} <= {
        "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    images = [rest.split()[0] for name, rest in found if name == "FROM"]
    assert all(re.fullmatch(r"[a-z]+:[\w.-]+", image) for image in images), images
    last = [rest for name, rest in found if name == "USER"][-1]
    assert int(last) > 0
    assert [name for name, _ in found].index("USER") > [name for name, _ in found].index("RUN")
    assert json.loads(dict(found)["ENTRYPOINT"]) == ["tidewheel"]
    assert json.loads(dict(found)["CMD"]) == ["--help"]


def test_shell_lines_of_the_dockerfile_are_well_formed() -> None:
    """As far as a shell can tell without running them."""
    for name, rest in instructions():
        if name == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True, timeout=PATIENCE)


def test_what_the_dockerfile_copies_makes_a_whole_wheel(tmp_path: Path) -> None:
    """Nothing that the build needs is left outside: the UI and the SQL are in the wheel."""
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    source.mkdir()
    let_in = {
        line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            *files, _ = rest.split()
            for file in files:
                assert file in let_in, f"{file} is kept from the build by Dockerfile.dockerignore"
                if (ROOT / file).is_dir():
                    shutil.copytree(ROOT / file, source / file, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / file, source / file)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(wheels), "."],
        cwd=source, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = wheels.glob("tidewheel-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for needed in (
        *("server/ui/assets/index.html", "stores/postgres/migrations/0001_schema/01_tables.sql"),
        *("stores/postgres/sql/functions.sql", "py.typed"),
    ):
        assert f"tidewheel/{needed}" in names
    statements = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.sql")}
    assert statements - names == set()


# -- the compose file ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    composed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return composed


def test_the_compose_file_has_a_database_a_server_and_two_workers(composed: dict[str, Any]) -> None:
    """Each with a health check, waiting for what it needs, and with time to finish its jobs."""
    services = composed["services"]
    assert set(services) == {"postgres", "migrate", "serve", "worker-1", "worker-2"}
    for name, service in services.items():
        assert re.fullmatch(r"[a-z]+(:[\w.-]+)?", service["image"]), "the plain name of an image"
        assert name == "migrate" or service["healthcheck"]["test"][0] == "CMD"
        for other, wish in service.get("depends_on", {}).items():
            assert other in services
            healthy = "healthcheck" in services[other]
            assert wish["condition"] == ("service_healthy" if healthy else "service_completed_successfully")
        if service["image"] == "tidewheel":
            assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
            assert service["read_only"]
            assert service["cap_drop"] == ["ALL"]
            assert int(service["stop_grace_period"].removesuffix("s")) > 30
            assert "POSTGRES_PASSWORD" not in service["environment"]["TIDEWHEEL_URL"], "it may have a / in it"
    secrets = re.findall(r"'(\w*PASSWORD)': '([^']*)'", str(services))
    assert {name for name, _ in secrets} == {"PGPASSWORD", "POSTGRES_PASSWORD"}
    assert {value for _, value in secrets} == {"${POSTGRES_PASSWORD:?choose a password}"}
    # The server that makes the database answers on its socket alone, and is stopped again.
    assert "--host" in services["postgres"]["healthcheck"]["test"]


def test_every_command_of_the_compose_file_is_one_of_ours(composed: dict[str, Any]) -> None:
    """Parsed by the real command line, with every option; ports are those that are asked."""
    ports = {}
    for name, service in composed["services"].items():
        if service["image"] != "tidewheel":
            continue
        context = understood(service["command"])
        ports[name] = context.params.get("port") or context.params.get("health_listen")
        if "healthcheck" in service:
            assert f":{ports[name]}/readyz" in service["healthcheck"]["test"][-1]
            compile(service["healthcheck"]["test"][-1], name, "exec")
    assert ports == {"migrate": None, "serve": 8080, "worker-1": "9090", "worker-2": "9090"}


@pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")
def test_server_and_worker_of_the_compose_file_work_and_are_healthy(
    composed: dict[str, Any], tmp_path: Path
) -> None:
    """The same commands and the same questions, with the app that comes along, outside of containers."""
    environment = {**os.environ, "TIDEWHEEL_URL": f"sqlite:///{(tmp_path / 'jobs.db').as_posix()}"}
    shutil.copy(DEPLOY / "app/jobs.py", tmp_path)
    free = {"serve": _free_port(), "worker-1": _free_port()}
    running: list[Process] = []
    try:
        for name, port in free.items():
            service = composed["services"][name]
            command = [str(port) if part in {"8080", "9090"} else part for part in service["command"]]
            command = ["127.0.0.1" if part == "0.0.0.0" else part for part in command]  # noqa: S104
            running.append(
                Process.start([sys.executable, "-m", "tidewheel.cli", *command], tmp_path, environment)
            )
        for name, port in free.items():
            _, *question = composed["services"][name]["healthcheck"]["test"]
            asked = [
                sys.executable,
                *(re.sub(r":\d+/readyz", f":{port}/readyz", part) for part in question[1:]),
            ]
            wait_until(lambda asked=asked: _succeeds(asked))  # type: ignore[misc]
        for process in running:
            process.popen.terminate()
            assert process.wait() == 0
            assert all(json.loads(line)["level"] for line in process.seen if line.startswith("{"))
    finally:
        for process in running:
            process.kill()


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# -- units of systemd ---------------------------------------------------------------------------------------


def settings(unit: Path) -> Iterator[tuple[str, str]]:
    for line in unit.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            yield name, value


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_unit_starts_a_command_of_ours(unit: Path) -> None:
    """Parsed by the real command line, and given the time to stop that the command takes."""
    found = dict(settings(unit))
    program, *arguments = shlex.split(found["ExecStart"].replace("${APP}", "jobs:app"))
    assert program == "/srv/%i/.venv/bin/tidewheel"
    context = understood(arguments)
    assert context.info_name == unit.stem.removeprefix("tidewheel-").removesuffix("@")
    if context.info_name == "worker":
        assert int(found["TimeoutStopSec"]) > 30 + 5  # shutdown_grace and the last writes
        assert found["KillMode"] == "mixed"
    assert found["User"] == "tidewheel"
    assert found["Restart"] == "always"
    assert found["StartLimitIntervalSec"] == "0", "five quick ends would be the last"
    assert found["StateDirectoryMode"] == "0750", "payloads are nobody else's business"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_every_line_of_a_unit(unit: Path, tmp_path: Path) -> None:
    """With a program where there is one; it complains of whatever it would ignore."""
    program = shutil.which("true")
    assert program is not None
    copy = tmp_path / unit.name.replace("@", "@shop")
    copy.write_text(unit.read_text().replace("/srv/%i/.venv/bin/tidewheel", program))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if unit.stem.rstrip("@") in line]
    assert complaints == []
