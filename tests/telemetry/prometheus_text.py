"""Prometheus's text, read back."""

from __future__ import annotations

import re

_LINE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>[-+.e0-9]+|NaN|[+-]Inf)")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')


def scrape(text: str) -> dict[tuple[str, ...], float]:
    """Name and values of the labels, in their order; an assertion where a line is none."""
    assert text == "" or text.endswith("\n")
    found: dict[tuple[str, ...], float] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("#"):
            word, name = line.split()[1:3]
            if word == "TYPE":
                assert name not in typed, f"{name} is told twice"
                typed.add(name)
            continue
        match = _LINE.fullmatch(line)
        assert match is not None, line
        labels = match["labels"] or ""
        values = _LABEL.findall(labels)
        assert "".join(f'{name}="{value}",' for name, value in values).rstrip(",") == labels, line
        key = (match["name"], *(value for _, value in values))
        assert key not in found, line
        assert re.sub("_(bucket|sum|count)$", "", match["name"]) in typed or match["name"] in typed, line
        found[key] = float(match["value"])
    return found
