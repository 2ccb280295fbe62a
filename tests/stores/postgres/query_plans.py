"""The plans PostgreSQL used for what a store did, those inside its functions included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from tidewheel.stores.postgres import PostgresStore

_SETTINGS = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_format = json;
SET client_min_messages = log;
"""
_END = "SELECT 'all that came before has been told'"


@dataclass(frozen=True, slots=True)
class Step:
    """A node of a plan that reads a table."""

    kind: str
    table: str | None
    index: str | None
    looked_up: bool  # by a condition on the index, not from one end of it to the other


class Plans:
    """Every statement a store runs, and how; on one connection, one statement after another."""

    def __init__(self, store: PostgresStore) -> None:
        self._database = store._database
        self._lock = asyncio.Lock()
        self._connection: Any = None
        self._statements: list[tuple[str, tuple[Step, ...]]] = []

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[Plans]:
        self._connection = await self._database.connect()
        await self._connection.execute(_SETTINGS)
        self._connection.add_log_listener(self._heard)
        usual, self._database.connection = self._database.connection, self._only  # type: ignore[method-assign]
        try:
            yield self
        finally:
            self._database.connection = usual  # type: ignore[method-assign]
            self._connection.remove_log_listener(self._heard)
            await self._connection.close()

    async def taken(self) -> list[tuple[str, tuple[Step, ...]]]:
        """The statements since the last time, with the steps of their plans."""
        async with self._only() as connection:
            await connection.execute(_END)
        while not self._statements or self._statements[-1][0] != _END:
            await asyncio.sleep(0)  # listeners are called by the loop
        *taken, _ = self._statements
        self._statements.clear()
        return taken

    @asynccontextmanager
    async def _only(self) -> AsyncIterator[Any]:
        async with self._lock:
            yield self._connection

    def _heard(self, _: Any, message: Any) -> None:
        _, found, plan = message.message.partition("plan:\n")
        if found:
            logged = msgspec.json.decode(plan)
            self._statements.append((logged["Query Text"], tuple(_steps(logged["Plan"]))))


def _steps(node: dict[str, Any]) -> Iterator[Step]:
    if "Relation Name" in node or "Index Name" in node:
        yield Step(node["Node Type"], node.get("Relation Name"), node.get("Index Name"), "Index Cond" in node)
    for inner in node.get("Plans", ()):
        yield from _steps(inner)
