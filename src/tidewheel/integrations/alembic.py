"""Alembic: autogenerate leaves the tables of Tidewheel alone.

The tables themselves come with ``tidewheel migrate --export alembic``, or by Tidewheel itself. No model of
the application describes them, so autogenerate would take them for tables that are to be dropped.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

IncludeName = Callable[[str | None, str, MutableMapping[str, Any]], bool]
"""What Alembic calls ``include_name``: by name, by kind, and what that is in."""


def without_tidewheel(include_name: IncludeName | None = None, *, schema: str = "tidewheel") -> IncludeName:
    """An ``include_name`` for ``context.configure`` that leaves out what is Tidewheel's own.

    That is ``schema``, as in the app's URL, and every table named ``tidewheel_…``, because on SQLite there
    are no schemas. Everything else is asked of ``include_name``, if there is one already.
    """
    if schema == "public":
        raise ValueError("schema is 'public', where tables are yours as well; give Tidewheel one of its own")

    def include(name: str | None, kind: str, parents: MutableMapping[str, Any]) -> bool:
        if schema in (name if kind == "schema" else None, parents.get("schema_name")):
            return False
        if kind == "table" and name is not None and name.startswith("tidewheel_"):
            return False
        return include_name is None or include_name(name, kind, parents)

    return include
