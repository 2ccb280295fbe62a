"""The tools of these tests: troubles that nobody announced, and a Chromium where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.browser.troubles import Troubles


def test_troubles_fail_a_test_unless_they_were_announced() -> None:
    """And what was announced has to come."""
    troubles = Troubles()
    troubles.check()
    troubles.heard.append("answer: 401 POST http://…")
    with pytest.raises(AssertionError, match="401 POST"):
        troubles.check()
    troubles.expect("401")
    troubles.check()
    troubles.expect("policy")
    with pytest.raises(AssertionError, match="announced and not heard"):
        troubles.check()


class TestWithoutChromium:
    """On a machine that has none."""

    @pytest.fixture(autouse=True)
    def ran(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
        """The commands that were run; none of them does anything."""
        ran: list[str] = []

        def run(*command: str, at: Path | None = None) -> None:
            ran.append(" ".join(command[:2]))
            if len(ran) == 1:
                raise subprocess.CalledProcessError(100, command, stderr="Unable to locate package chromium")

        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(chromium, "NAMES", ())
        monkeypatch.setattr(chromium, "PLACES", ())
        monkeypatch.setattr(chromium, "_run", run)
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
        monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
        return ran

    def test_root_installs_it_with_new_lists(self, ran: list[str]) -> None:
        """Then npm is asked, and when that brings nothing either the tests fail, with what to do."""
        with pytest.raises(chromium.NoChromium, match="apt-get install chromium"):
            chromium.chromium()
        assert ran == [
            "apt-get install",
            "apt-get update",
            "apt-get install",
            "npm install",
            "node --input-type=module",
        ]

    def test_nobody_else_installs_packages(self, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """Whoever is not root gets npm's."""
        monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
        with pytest.raises(chromium.NoChromium, match=r"only root.*Unable to locate"):
            chromium.chromium()
        assert ran == ["npm install"]
