from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from bench.environments import NotMeasured, find_python, prepare
from bench.systems import System

NEWER = (3, sys.version_info[1] + 1)


def test_our_own_python_is_used_when_it_is_new_enough() -> None:
    assert find_python((3, 11)) == sys.executable


def test_a_newer_python_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = f"python3.{NEWER[1]}"
    monkeypatch.setattr(shutil, "which", lambda name: f"/somewhere/{name}" if name == wanted else None)
    assert find_python(NEWER) == f"/somewhere/{wanted}"


def test_a_python_that_is_too_old_is_a_reason_for_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(NotMeasured, match=f"needs Python 3.{NEWER[1]}"):
        find_python(NEWER)


def test_what_cannot_be_installed_is_a_reason_for_the_table(tmp_path: Path) -> None:
    """Here the place for it is taken; without a network, pip's last line would be the reason."""
    taken = tmp_path / "cache"
    taken.write_text("not a directory")
    system = System("peer", "run_huey.py", "sqlite", 1000, ("huey==3.5.4",))
    with pytest.raises(NotMeasured, match="could not be installed"):
        prepare(system, taken)
