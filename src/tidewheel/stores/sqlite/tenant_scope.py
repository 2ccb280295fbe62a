"""Whose jobs a statement finds: the only place where a tenant becomes a condition.

The ``.sql`` files say where a condition stands, and this module which one:

``{tenant}``  jobs or counters of the tenant in question, or of all of them (None)
``{key}``     the row of one key; tenants share none, because the tenant is part of its name
``{line}``    the jobs or the meter of one limit key, which no two tenants share either

A test takes each of these marks away in turn and sees the tests of two tenants fail.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Sequence
from typing import Final

from tidewheel.core.model import ROOT_TENANT

Key = tuple[str, str, str]
"""Tenant, task (or topic of a job without one), key: what ``{key}`` takes."""

_ALL: Final = "true"
_ROOT: Final = "tenant = ?"
# As the index of tenants has it: jobs of the root tenant, often all there are, are not in it.
_OTHER: Final = f"tenant = ? AND tenant <> '{ROOT_TENANT}'"
_KEY_CONDITION: Final = "tenant = ? AND scope = ? AND key = ?"
_LIMIT_KEY_CONDITION: Final = "tenant = ? AND limit_key = ?"


def execute_for_tenant(
    connection: sqlite3.Connection,
    statement: str,
    tenant: str | None,
    values: Sequence[object] = (),
    **parts: str,
) -> sqlite3.Cursor:
    """Run a statement that finds jobs, for one tenant or for all (None).

    ``{tenant}`` comes before every other parameter; ``parts`` are the texts of its other marks.
    """
    if "{tenant}" not in statement:
        raise ValueError(f"this statement would find jobs of all tenants: {statement}")
    if tenant is None:
        return connection.execute(statement.format(tenant=_ALL, **parts), values)
    owned = _ROOT if tenant == ROOT_TENANT else _OTHER
    return connection.execute(statement.format(tenant=owned, **parts), (tenant, *values))


@functools.lru_cache(16)
def with_key_condition(statement: str) -> str:
    """A statement about one key. The parameters of ``{key}`` are those of a :data:`Key`."""
    if "{key}" not in statement:
        raise ValueError(f"this statement would find keys of all tenants: {statement}")
    return statement.format(key=_KEY_CONDITION)


@functools.lru_cache(16)
def with_limit_key_condition(statement: str) -> str:
    """A statement about one limit key. The parameters of ``{line}`` are a tenant and the key."""
    if "{line}" not in statement:
        raise ValueError(f"this statement would find limit keys of all tenants: {statement}")
    return statement.format(line=_LIMIT_KEY_CONDITION)
