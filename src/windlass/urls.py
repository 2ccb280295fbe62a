"""URLs as they may be shown to people and written to logs, and whether they name another Windlass."""

from __future__ import annotations

import re

# Up to the last @ of all: a password may hold any character, whether or not it should have been escaped.
# Rather hide too much (the port of a URL with an @ in its options) than too little.
_PASSWORD = re.compile(r"(?<=//)([^:/?#@]*):.*@")
_PASSWORD_OPTION = re.compile(r"(?<=[?&])((?:ssl)?password)=[^&#]*")


def shown_url(url: str) -> str:
    """A URL without its password, also one that is no proper URL."""
    return _PASSWORD_OPTION.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def over_http(url: str) -> bool:
    """Whether a URL names a server, which has the database: what only that can do is not asked there."""
    return url.partition(":")[0].lower() in {"http", "https"}
