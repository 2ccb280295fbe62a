"""The single statements of a script: some drivers take only one at a time."""

from __future__ import annotations

import re
from typing import Final

# What may hold a semicolon that ends nothing, and the one that does, with what else is on its line.
_TOKENS: Final = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "[^"]*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | (?P<end>;[ \t]*(?:--[^\n]*)?)""",
    re.DOTALL | re.VERBOSE,
)


def split(script: str) -> list[str]:
    """Without their semicolons, each with the comments above it. Comments behind a semicolon are left out."""
    statements, start = [], 0
    for token in _TOKENS.finditer(script):
        if token["end"] is not None:
            statements.append(script[start : token.start()].strip())
            start = token.end()
    return statements
