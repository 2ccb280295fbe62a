"""Somebody with a connection and a transaction of their own: the same few things to do in any library."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

TABLE = "business"
"""Of the caller's own, beside ours."""


@dataclass
class Caller:
    """What a test does with it. Everything may answer something to be awaited."""

    connection: Any
    """what is given to ``using``"""
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]

    async def begin(self) -> None:
        """Do something that needs a transaction, as the business of the caller would."""
        await done(self.execute(f"INSERT INTO {TABLE} VALUES (1)"))  # noqa: S608 - a name of ours


Opening = Callable[[str], AbstractAsyncContextManager[Caller]]


@dataclass(frozen=True)
class Kind:
    """One kind of connection."""

    name: str
    database: str
    open: Opening


KINDS: list[Kind] = []


def kind(name: str, database: str, **more: Any) -> Callable[[Callable[..., AsyncIterator[Caller]]], Any]:
    """Add a kind: a generator that opens it for a URL (or a path) and closes it in the end."""

    def add(function: Callable[..., AsyncIterator[Caller]]) -> Callable[..., AsyncIterator[Caller]]:
        opened = asynccontextmanager(function)
        KINDS.append(Kind(name, database, lambda where: opened(where, **more)))
        return function

    return add


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
