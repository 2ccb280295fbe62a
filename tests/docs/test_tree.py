"""The documents hang together, and nothing in the tree belongs to one machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, links, pages, prose

PAGE_IDS = [str(page.relative_to(ROOT)) for page in pages()]
OUTSIDE = {".git", "__pycache__", "build", "dist", "node_modules"}
CACHES = {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
# In pieces, so that this file names none of them.
HOSTS = [
    ".".join(parts)
    for parts in (("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("deb", "debian", "org"))
]
MACHINE_PATH = re.compile(r"(?<![\w.~/])/(?:" + "|".join(("work", "farm", "root", "home")) + r")/[\w.]+")


def tree() -> Iterator[Path]:
    """Every file that belongs to the project."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if any(
            part in OUTSIDE | CACHES or part.startswith(".venv") or part.endswith(".egg-info")
            for part in parts
        ):
            continue
        if path.is_file() and path.suffix not in {".png", ".ico", ".woff2", ".jpg", ".db", ".pyc"}:
            yield path


@pytest.mark.parametrize("page", pages(), ids=PAGE_IDS)
def test_internal_links_resolve(page: Path) -> None:
    """A link leads to a page that exists and, where it names one, to a heading that exists."""
    for number, target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name}:{number} links to {target}"
        assert ROOT in linked.parents, f"{page.name}:{number} leads out of the project"
        if fragment and linked.suffix == ".md":
            assert fragment in anchors(linked), f"{page.name}:{number} links to {target}"


def test_the_index_links_every_page() -> None:
    """No page of the docs can only be found by those who know of it."""
    index = ROOT / "docs/index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for _, target in links(index)}
    unlinked = [page for page in (ROOT / "docs").rglob("*.md") if page != index and page not in linked]
    assert not unlinked


def test_decisions_are_numbered_without_gaps() -> None:
    """Decisions are cited by number."""
    numbers = sorted(int(page.name[:4]) for page in (ROOT / "docs/decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", pages(), ids=PAGE_IDS)
def test_prose_is_one_sentence_per_line(page: Path) -> None:
    """A changed sentence is one changed line."""
    for number, line in prose(page):
        words = re.sub(r"`[^`]*`", "code", line)
        if words.startswith(("|", "#", "- ", "<", "  ")) or re.match(r"\d+\. ", words):
            continue
        assert not re.search(r"[a-z)][.!?] [A-Z]", words), f"{page.name}:{number}: {line}"


def test_every_module_says_what_it_is_for() -> None:
    """The code map is made of the first sentences of docstrings."""
    silent = []
    for path in (ROOT / "src/tidewheel").rglob("*.py"):
        text = path.read_text("utf-8")
        if text and not ast.get_docstring(ast.parse(text)):
            silent.append(str(path.relative_to(ROOT)))
    assert not silent


def test_nothing_names_a_registry_or_a_path_of_one_machine() -> None:
    """The tree works wherever it is put."""
    found = []
    for path in tree():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if any(host in line for host in HOSTS) or MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert not found
