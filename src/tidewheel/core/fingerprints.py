"""Which errors are the same error: messages without what varies from job to job. No I/O.

``timeout after 30.1 s`` and ``timeout after 29.8 s`` are one error, ``user 42 not found`` and ``user 7 not
found`` another. What is left out: quoted values, addresses and paths, ids, numbers and runs of hex digits.
Nobody has to register anything, so the rules are few and blunt; errors that differ in words stay different.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

PLACEHOLDER: Final = "…"
"""Stands where something was left out."""
PATTERN_LENGTH: Final = 120
"""A pattern is cut to this many characters. Summaries are cut, too, and of two that say the same the one with
the longer numbers ends earlier."""
FINGERPRINT_LENGTH: Final = 12
"""Hexadecimal digits of a fingerprint."""

# The first that matches wins: what is quoted may hold anything. A quote inside of a word is an apostrophe
# ("can't"). The lookahead names every first character, so that the rest of a message is passed over quickly.
_varying = re.compile(
    r"""(?=[-'"`«“:=/.+0-9A-Fa-f])(?:
      (?<!\w)'[^'\n]*'(?!\w) | "[^"\n]*" | `[^`\n]*` | «[^»\n]*» | “[^”\n]*”
    | (?<=\w)://[^\s'"<>)]+                           # URLs, after their scheme
    | (?<=\b[A-Za-z]):\\[^\s'"]+                      # paths of Windows, after their drive
    | (?<![\w.…])(?:\.{0,2}/[\w.@%+~-]+)+/?           # other paths
    | =\([^)\n]*\)                                    # what databases say: Key (email)=(somebody)
    | \b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b
    | \b0[xX][0-9A-Fa-f]+\b
    | \b(?=[A-Fa-f]*\d)(?=\d*[A-Fa-f])[0-9A-Fa-f]{4,}\b
    | [+-]?\d+(?:[.,:_-]\d+)*
    )""",
    re.VERBOSE,
)
# The names of workers hold hosts, processes and chance; this is what stores/terminal_errors.py says of them.
_worker = re.compile(r"(?<=\bworker )\S+")
_digits = str.maketrans("123456789", "000000000")
_gaps = re.compile(r"\s*[\x00-\x1f\x7f]\s*|\s{2,}")


def error_pattern(summary: str) -> str:
    """An error's ``code: message`` with what varies left out. The code stays as it is."""
    code, colon, message = summary.partition(": ")
    if not colon:
        code, message = "", summary
    if code == "worker_lost":
        message = _worker.sub(PLACEHOLDER, message)
    # Which digit it is does not matter below, and messages that differ in nothing else are looked at once.
    return f"{code}{colon}{_without_values(message.translate(_digits))}"[:PATTERN_LENGTH]


@lru_cache(4096)
def _without_values(message: str) -> str:
    return _gaps.sub(f" {PLACEHOLDER} ", _varying.sub(PLACEHOLDER, message))


def fingerprint(topic: str, task: str, pattern: str) -> str:
    """Return a short name of this error in this lane, the same in every process and store."""
    text = "\0".join((topic, task, pattern))
    return hashlib.blake2b(text.encode(), digest_size=FINGERPRINT_LENGTH // 2).hexdigest()


def job_fingerprint(topic: str, task: str, error_summary: str | None) -> str:
    """Return the fingerprint of a job's last error; a job without one has that of the empty error."""
    return fingerprint(topic, task, error_pattern(error_summary or ""))
