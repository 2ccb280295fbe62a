"""The SDK for TypeScript: it compiles, its types are those of the API, and it works against a real server.

Its own tests are in ``sdk/js/test``, in JavaScript; they need a server, and get it here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.remote import mixed
from hatchling.builders.sdist import SdistBuilder
from playwright.sync_api import sync_playwright

from tests.browser.chromium import ARGUMENTS, chromium
from tests.cli.processes import Project
from tests.docs.pages import ROOT, Block, blocks
from tidewheel.__about__ import __version__

SDK = ROOT / "sdk/js"
SUITES = sorted(f"test/{path.name}" for path in (SDK / "test").glob("*.test.js"))
PATIENCE_SECONDS = 120


def run(*command: str, at: Path = SDK, code: int = 0, environment: Mapping[str, str] = {}) -> str:
    """What a program of Node's says; it has to end with this code."""
    if shutil.which(command[0]) is None:
        pytest.fail(f"{command[0]} is not there: the SDK needs Node 20 or newer (apt-get install nodejs npm)")
    done = subprocess.run(
        command,
        cwd=at,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == code, f"{' '.join(command)} in {at}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tools() -> Path:
    """Where the compiler and its friends are; installed when they are not, or when the lock file is newer."""
    installed = SDK / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (SDK / "package-lock.json").stat().st_mtime:
        run("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
    return SDK / "node_modules"


@pytest.fixture(scope="module")
def built(tools: Path) -> Path:
    """The package, compiled; the strictest compiler there is finds nothing wrong with it."""
    shutil.rmtree(SDK / "dist", ignore_errors=True)  # what was renamed since must not help
    run("node", str(tools / "typescript/bin/tsc"), "--project", "tsconfig.json")
    return SDK / "dist"


@dataclass(frozen=True)
class Server:
    """A running ``tidewheel serve``, and a key for it."""

    url: str
    key: str


@contextmanager
def serving(
    directory: Path, *arguments: str, store: Sequence[str] = (), environment: Mapping[str, str] = {}
) -> Iterator[Server]:
    """A server on a port that is free, and a key of a superuser's."""
    project = Project(directory)
    with project.start("keys", "create", "--superuser", "--json", *store, **environment) as making:
        assert making.wait() == 0, making.text
        [key] = re.findall(r'"key": "(.+?)"', making.text)
    with project.start("serve", "--port", "0", *arguments, **environment) as process:
        yield Server(process.wait_for(r" on (http://[\d.:]+)")[1], key)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all, with a worker for the tasks in Python."""
    directory = tmp_path_factory.mktemp("server")
    shutil.copy(Path(__file__).parent / "jobs.py", directory)
    with serving(directory, "jobs:app", "--with-worker", store=("--app", "jobs:app")) as server:
        yield server


def block(page: Path, mark: str) -> Block:
    [found] = [block for block in blocks(page) if block.mark == mark]
    return found


def test_types_are_those_of_the_api(tools: Path) -> None:
    """After a route changed: python -m tests.docs.generated, then npm run types in sdk/js."""
    run("node", "scripts/types.js", "--check")


def test_its_own_tests_pass(built: Path, server: Server) -> None:
    """Against a real server on SQLite, with a door in front that can be shut; all files at once."""
    where = {"TIDEWHEEL_TEST_SERVER": server.url, "TIDEWHEEL_TEST_KEY": server.key}
    said = run(
        "node",
        "--test",
        "--test-reporter=tap",
        f"--test-concurrency={len(SUITES)}",
        *SUITES,
        environment=where,
    )
    counts = dict(re.findall(r"^# (\w+) (\d+)$", said, re.MULTILINE))
    written = sum(
        len(re.findall(r"^test\(", (SDK / suite).read_text("utf-8"), re.MULTILINE)) for suite in SUITES
    )
    skipped = 1 if sys.platform == "win32" else 0  # signals
    assert (int(counts["pass"]), int(counts["skipped"])) == (written - skipped, skipped), said


def test_the_compiler_knows_what_tasks_take(built: Path, tools: Path, tmp_path: Path) -> None:
    """Types are made as the README says; what is wrong is an error of the compiler, in these words, and the
    rest compiles. After a change that is meant: the new words go into sdk/js/test/types/bad.txt.
    """
    shutil.copytree(SDK / "test/types", tmp_path, dirs_exist_ok=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/tidewheel").symlink_to(SDK, target_is_directory=True)  # as if it were installed
    (tmp_path / "package.json").write_text('{"type": "module"}')
    written, made = block(SDK / "README.md", "types").text.splitlines()
    command, output = written.split(" > ")
    assert command.startswith("tidewheel tasks myproject.jobs:app ")
    arguments = command.replace("myproject.jobs", "tests.sdk.jobs").split()[1:]
    (tmp_path / output).write_text(run(sys.executable, "-m", "tidewheel.cli", *arguments, at=ROOT))
    maker = str(tools / "openapi-typescript/bin/cli.js")
    assert made.startswith("npx openapi-typescript@7 ")
    run("node", maker, *made.split()[2:], at=tmp_path)
    compiler = ("node", str(tools / "typescript/bin/tsc"), "--project", ".", "--pretty", "false")
    assert run(*compiler, at=tmp_path, code=2) == (SDK / "test/types/bad.txt").read_text("utf-8")


def test_the_package_holds_what_is_built_and_nothing_else(built: Path) -> None:
    """Whoever installs it gets no tests, no sources and no dependencies."""
    [packed] = json.loads(run("npm", "pack", "--dry-run", "--json", "--ignore-scripts"))
    modules = {path.relative_to(SDK / "src").with_suffix("") for path in (SDK / "src").rglob("*.ts")}
    compiled = {f"dist/{module.as_posix()}{end}" for module in modules for end in (".js", ".d.ts")}
    assert {file["path"] for file in packed["files"]} == {"package.json", "README.md", "LICENSE", *compiled}
    described = json.loads((SDK / "package.json").read_text("utf-8"))
    # Compilers that do not read "exports" (moduleResolution node10) look at the first.
    assert described["types"] == described["exports"]["."]["types"] == "./dist/index.d.ts"
    assert (packed["name"], packed["version"]) == ("tidewheel", __version__)
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & described.keys()
    assert f'VERSION = "{__version__}"' in (SDK / "src/version.ts").read_text("utf-8")
    assert (SDK / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_nothing_of_node_is_needed_where_there_is_none() -> None:
    """The sources import each other and nothing else: what they use is in browsers, too."""
    for path in (SDK / "src").rglob("*.ts"):
        imported = re.findall(r"""(?:from|import\()\s*["']([^"']+)["']""", path.read_text("utf-8"))
        assert [name for name in imported if not name.startswith(".")] == [], path


def test_the_lock_file_names_no_registry() -> None:
    """Whoever builds fetches from the registry they have."""
    assert "omit-lockfile-registry-resolved=true" in (SDK / ".npmrc").read_text("utf-8").split()
    packages = json.loads((SDK / "package-lock.json").read_text("utf-8"))["packages"]
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert not [name for name, package in packages.items() if name and "integrity" not in package]


def test_the_source_package_has_its_sources() -> None:
    """And neither what is built nor Node's modules."""
    source = {file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {"sdk/js/package.json", "sdk/js/src/index.ts", "sdk/js/test/client.test.js"} <= source
    assert not [path for path in source if path.startswith(("sdk/js/node_modules", "sdk/js/dist"))]


def test_the_example_does_what_the_readme_says(built: Path, tmp_path: Path) -> None:
    """A server without any Python tasks, started as the page has it, and a program of Node's."""
    page = SDK / "README.md"
    exported, key, started = block(page, "server").text.splitlines()
    assert "tidewheel keys create --superuser --json" in key
    assert started == "tidewheel serve --port 8080 &"
    environment = dict(pair.split("=", 1) for pair in exported.removeprefix("export ").split())
    assert block(page, "example").text + "\n" == (SDK / "examples/digest.js").read_text("utf-8")
    with serving(tmp_path, environment=environment) as server:
        where = {"TIDEWHEEL_SERVER": server.url, "TIDEWHEEL_KEY": server.key}
        build, start = block(page, "run").text.splitlines()
        assert build == "npm ci && npm run build"  # as ``built`` has done
        said = run(*start.split(), environment=where)
    assert said.strip() == block(page, "output").text


def test_a_browser_can_use_it(built: Path, server: Server) -> None:
    """The same files, in a page of the server's own origin: a job, its events, a worker, and errors."""
    program = """async ({ url, token }) => {
        const { Client, NotFound, Worker } = await import(`${url}/sdk/index.js`);
        const client = new Client({ url, token });
        const worker = new Worker(client, { handlers: { browser: ({ n }) => n * 2 } });
        const working = worker.run();
        const job = await client.enqueue("browser", { n: 21 });
        const result = await client.result(job, { timeout: 20 });
        const heard = [];
        for await (const { event } of client.events({ job: job.id })) heard.push(event);
        const missing = await client.get(crypto.randomUUID()).catch((error) => error instanceof NotFound);
        await worker.stop();
        await working;
        return { result, heard, missing, completed: (await client.stats()).completed > 0 };
    }"""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        page = browser.new_page()
        page.route(
            f"{server.url}/sdk/**",
            lambda route: route.fulfill(path=built / route.request.url.partition("/sdk/")[2]),
        )
        page.route(
            f"{server.url}/sdk/",
            lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"),
        )
        page.goto(f"{server.url}/sdk/")
        told = page.evaluate(program, {"url": server.url, "token": server.key})
        browser.close()
    assert told == {"result": 42, "heard": ["job", "end"], "missing": True, "completed": True}


async def test_three_kinds_of_workers_share_a_topic_and_are_killed(built: Path, tmp_path: Path) -> None:
    """One beside the store, one over HTTP in Python, one in Node: every job is completed, by a run that came
    to its end under the fence that counts. ``python -m bench.remote`` does it with ten thousand jobs.
    """
    store = f"sqlite:///{tmp_path / 'jobs.db'}"
    where = {"TIDEWHEEL_URL": store, "TIDEWHEEL_ALLOWED_TOPICS": "count"}
    with serving(tmp_path, environment=where) as server:
        told = await mixed.run(
            store, server.url, server.key, tmp_path / "runs", jobs=1200, kills=1, freezes=0, seconds=0.1
        )
    assert told.wrong == []
    assert told.states == {"completed": 1200}
    assert set(told.completed_by) == set(mixed.KINDS)
