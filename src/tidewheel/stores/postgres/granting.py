"""The rights of a role that enqueues in transactions of its own, by ``grants.sql``."""

from __future__ import annotations

from typing import Final

from tidewheel.errors import ConfigurationError
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.queries import Queries

_grants = Queries("tidewheel.stores.postgres", "grants.sql")
_REPLACING: Final = """

-- For on_duplicate="replace", which changes jobs that wait. Whoever does not use it does not need these two.
"""
_AWAITING: Final = """

-- For after=[…], jobs that run after others. Whoever does not use it does not need these.
"""
MOST_BYTES: Final = 63
"""Of a name in PostgreSQL; it cuts longer ones off, and the rights would be somebody else's."""


def write_grants(url: str, role: str, *, rls: bool) -> str:
    """The statements as a text. ``rls``: where there is row-level security."""
    if not 1 <= len(role.encode()) <= MOST_BYTES or "\x00" in role:
        raise ConfigurationError(f"the role is {role!r}; its name has 1 to {MOST_BYTES} bytes and no NUL")
    if role == "public":
        raise ConfigurationError("the role is 'public', which is everybody; name the role that enqueues")
    quoted = '"' + role.replace('"', '""') + '"'
    statements = _grants["members"] if rls else _grants["callers"]
    if not rls:
        statements += _REPLACING + _grants["replacing"] + _AWAITING + _grants["awaiting"]
    return statements.replace("{schema}", f'"{parse_url(url).schema}"').replace("{role}", quoted) + "\n"
