"""The documents of the project, read the way a reader meets them: pages, code blocks, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_fence = re.compile(r"^(?P<ticks>```+)(?P<language>\w*)\s*$")
_comment = re.compile(r"^<!-- (?P<words>.*) -->$")
_link = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_heading = re.compile(r"^#+ (?P<title>.+)$")


@dataclass(frozen=True)
class Block:
    """A fenced block, and the comment on the line above it, which says what is done with it."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Every document people are meant to read."""
    return sorted(
        [
            *ROOT.glob("*.md"),
            *(ROOT / "docs").rglob("*.md"),
            *ROOT.glob("examples/*/*.md"),
            *ROOT.glob("sdk/*/*.md"),
        ]
    )


def blocks(page: Path) -> Iterator[Block]:
    lines = iter(enumerate(page.read_text("utf-8").splitlines(), 1))
    mark = ""
    for number, line in lines:
        if opened := _fence.match(line):
            text: list[str] = []
            for _, inner in lines:
                if inner == opened["ticks"]:
                    break
                text.append(inner)
            yield Block(page, number, opened["language"], mark, "\n".join(text))
            mark = ""
        else:
            comment = _comment.match(line)
            mark = comment["words"] if comment else ""


def statements(page: Path) -> list[str]:
    """Every SQL statement of a page that is meant to be run, in order."""
    texts = [
        block.text
        for block in blocks(page)
        if block.language == "sql" and not block.mark.startswith("not run: ")
    ]
    # A statement ends where a line does; pages write it so.
    return [part.strip() for text in texts for part in text.split(";\n") if part.strip(" ;\n")]


def prose(page: Path) -> list[tuple[int, str]]:
    """The lines outside of fenced blocks, numbered."""
    kept: list[tuple[int, str]] = []
    closing = ""
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if closing:
            closing = "" if line == closing else closing
        elif opened := _fence.match(line):
            closing = opened["ticks"]
        else:
            kept.append((number, line))
    return kept


def links(page: Path) -> Iterator[tuple[int, str]]:
    for number, line in prose(page):
        for found in _link.finditer(line):
            yield number, found["target"]


def anchors(page: Path) -> set[str]:
    """The fragments a link into this page may have, as GitHub makes them from headings."""
    found = set()
    for _, line in prose(page):
        if heading := _heading.match(line):
            words = re.sub(r"[^\w\- ]", "", heading["title"].lower())
            found.add(words.replace(" ", "-"))
    return found
