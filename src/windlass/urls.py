"""URLs as they may be shown to people and written to logs."""

from __future__ import annotations

import re

# User and password end at the last @ before the path: a password may hold an unescaped one.
_PASSWORD = re.compile(r"(?<=//)([^:/?#]*):[^/?#]*@")
_PASSWORD_OPTION = re.compile(r"(?<=[?&])(password)=[^&#]*")


def shown_url(url: str) -> str:
    """A URL without its password, also one that is no proper URL."""
    return _PASSWORD_OPTION.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))
