"""What is committed is what the source builds, is small, and is what a package carries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.docs.pages import ROOT
from tidewheel.server.ui import ENTRY_FILES, built_files

SOURCE = ROOT / "ui"
ASSETS = ROOT / "src/tidewheel/server/ui/assets"
MOST_BYTES = 100_000
IMPORTED = re.compile(r"""(?:from|import)\s*["'`]\./([\w.-]+\.js)""")
LOADED_LATER = re.compile(r"""import\(\s*["'`]\./([\w.-]+\.js)""")
UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH)\b")


def node_is_missing() -> str:
    """Why the UI cannot be built here; nothing when it can."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "there is no Node"
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    major, minor, _ = map(int, told.removeprefix("v").split(".", 2))
    fits = (major, minor) >= (22, 12) or (major == 20 and minor >= 19)
    return "" if fits else f"Node {told} is there; the build needs 20.19 or 22.12"


def run(*command: str, at: Path) -> None:
    done = subprocess.run(
        command, cwd=at, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"the packages of the build cannot be fetched: {done.stderr[:300]}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_committed_files_are_what_the_source_builds(tmp_path: Path) -> None:
    """Byte by byte, from a fresh copy: cd ui && npm ci && npm run build, and commit what changed."""
    if reason := node_is_missing():
        pytest.skip(reason)
    copy = tmp_path / "ui"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules", "schema.d.ts"))
    run("npm", "ci", "--no-audit", "--no-fund", "--prefer-offline", at=copy)
    run("npm", "run", "build", at=copy)
    built = tmp_path / ASSETS.relative_to(ROOT)
    names = {path.name for path in ASSETS.iterdir()}
    assert {path.name for path in built.iterdir()} == names
    for name in names:
        assert (built / name).read_bytes() == (ASSETS / name).read_bytes(), f"{name} is out of date"


def loaded_with(name: str, loaded: set[str]) -> set[str]:
    """A script and all it needs before it runs."""
    if name not in loaded:
        loaded.add(name)
        for other in IMPORTED.findall(built_files()[name].content.decode()):
            loaded_with(other, loaded)
    return loaded


def test_no_visit_loads_much() -> None:
    """Whatever page one comes to: less than 100 kB over the wire, for somebody who looks from a phone."""
    files = built_files()
    assert {path.name for path in ASSETS.iterdir()} == set(files)
    later = {
        name
        for file in files.values()
        if file.media_type.startswith(b"text/javascript")
        for name in LOADED_LATER.findall(file.content.decode())
    }
    named = {path.stem for path in (SOURCE / "src/pages").glob("*.svelte")}
    pages = {name for name in later if name.partition("-")[0] in named}
    assert {name.partition("-")[0] for name in pages} == named, "each page is a file of its own"
    (palette,) = [name for name in later if name.startswith("Palette-")]  # loaded soon after any page
    for page in pages:
        needed = loaded_with(palette, loaded_with(page, loaded_with("app.js", set()))) | set(ENTRY_FILES)
        size = sum(len(files[name].compressed) for name in needed)
        assert size < MOST_BYTES, f"{page} comes with {size:,} bytes"


def test_the_page_has_one_base_and_nothing_inline() -> None:
    """The server writes the base, and the policy forbids the rest."""
    page = built_files()["index.html"].content.decode()
    assert page.count("<base ") == 1
    assert page.index("<base ") < min(page.index("href=", page.index("<link")), page.index("src="))
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|https?://", page)


def test_the_lock_file_names_no_registry() -> None:
    """Whoever builds fetches from the registry they have."""
    assert "omit-lockfile-registry-resolved=true" in (SOURCE / ".npmrc").read_text("utf-8").split()
    packages = json.loads((SOURCE / "package-lock.json").read_text("utf-8"))["packages"]
    assert len(packages) > 10
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert not [name for name, package in packages.items() if name and "integrity" not in package]


def test_packages_carry_the_ui() -> None:
    """The wheel has what is served, the source package what it is built from; neither has Node's modules."""
    wheel = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {f"tidewheel/server/ui/assets/{name}" for name in built_files()} <= wheel
    source = {file.relative_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert {"ui/package.json", "ui/package-lock.json", "ui/.npmrc", "ui/src/main.ts"} <= source
    assert not [path for path in wheel | source if "node_modules" in path]
