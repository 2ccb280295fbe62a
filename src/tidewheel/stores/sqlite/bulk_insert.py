"""Many rows of a table with few statements.

After each step of ``executemany`` a thread would have to fight the event loop for the interpreter; a
statement with a hundred rows is one step. What rows have in common is bound once, and a NULL that all have
not at all. Parameters have no numbers: Python 3.14 does not take those in a sequence any more.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from tidewheel.stores.enqueue import Column

MAX_ROWS_PER_STATEMENT: Final = 128
"""Of one statement. Fewer go in powers of two, so that few statements have to be prepared."""

to_blob: Final = bytearray
"""Bytes as the driver binds them quickest: for ``bytes``, as for None, it first looks for an adapter, which
takes five times as long."""


def write_rows(
    connection: sqlite3.Connection, table: str, number: int, columns: Mapping[str, Column], conflict: str = ""
) -> None:
    """Insert so many rows, in their order. A column has one value a row, or a single one that all share.
    ``conflict`` is the clause that says what becomes of a row that is there already.
    """
    common: dict[str, Any] = {}
    own: dict[str, Column] = {}
    for name, column in columns.items():
        if len(column) > 1:
            own[name] = column
        elif column[0] is not None:
            common[name] = column[0]
    start = 0
    while start < number:
        size = min(MAX_ROWS_PER_STATEMENT, 1 << (number - start).bit_length() - 1)
        part = [column[start : start + size] for column in own.values()]
        values = (*common.values(), *chain.from_iterable(zip(*part, strict=True)))
        connection.execute(_statement(table, tuple(common), tuple(own), size, conflict), values)
        start += size


@functools.lru_cache(256)
def _statement(table: str, common: tuple[str, ...], own: tuple[str, ...], size: int, conflict: str) -> str:
    """Its parameters: the common values, then those of one row after the other."""
    into = f"INSERT INTO {table} ({_list([*common, *own])})"
    if not own:
        return f"{into} VALUES ({_list('?' for _ in common)}) {conflict}"
    row = f"({_list('?' for _ in own)})"
    rows = _list(row for _ in range(size))
    if not common:
        return f"{into} VALUES {rows} {conflict}"
    return (
        f"WITH common AS (SELECT {_list('?' for _ in common)}) "  # noqa: S608 - names of our own, no values
        f"{into} SELECT common.*, own.* FROM (VALUES {rows}) AS own CROSS JOIN common "
        f"WHERE true {conflict}"  # without a condition ON would belong to the join
    )


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)
