"""Pictures of the demo can be taken: the README's are made that way."""

from __future__ import annotations

import struct
from pathlib import Path

from playwright.async_api import Browser

from tests.browser.screenshots import README, SIZES, demo, looking, take
from tests.docs.pages import ROOT


def size_of(picture: Path) -> tuple[int, int]:
    """As a PNG says in its head."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height


async def test_a_picture_is_taken_of_the_demo(browser: Browser, tmp_path: Path) -> None:
    """The real command is started, logged in to, and looked at: a job that runs, found in its API."""
    async with demo(browser) as (running, _), looking(browser, running, "dark", "phone") as page:
        await take(running, page, "job-running", tmp_path / "one.png")
        assert "/ui/jobs/" in page.url
    assert size_of(tmp_path / "one.png") == (2 * SIZES["phone"][0], 2 * SIZES["phone"][1])


def test_the_readme_shows_the_ui_in_both_themes() -> None:
    """With pictures that python -m tests.browser.screenshots --readme made."""
    text = (ROOT / "README.md").read_text("utf-8")
    for picture in README.values():
        assert str(picture.relative_to(ROOT).as_posix()) in text
        assert size_of(picture) == SIZES["desktop"]
