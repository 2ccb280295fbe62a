"""A connection that belongs to somebody else, and how work gets done on it: blocking, or awaiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

from tidewheel.errors import StoreError
from tidewheel.stores.external_transaction import PgStatement, SqliteCall, TransactionSteps

T = TypeVar("T")

_UNDEFINED_SQLSTATES = frozenset({"3F000", "42883", "42P01"})
"""How PostgreSQL says that it has no such schema, function or table."""


class ExternalConnection(ABC):
    """A connection whose calls block."""

    @property
    @abstractmethod
    def dialect(self) -> str:
        """``sqlite``, ``postgresql``, or the name of what Tidewheel cannot use."""

    def run_statement(self, statement: PgStatement) -> Any:
        """On PostgreSQL: say a text, get one back."""
        raise NotImplementedError(f"{type(self).__name__} is no connection to PostgreSQL")

    def call_sqlite(self, call: SqliteCall) -> Any:
        """On SQLite: do something with the connection itself."""
        raise NotImplementedError(f"{type(self).__name__} is no connection to SQLite")

    def run_steps(self, work: TransactionSteps[T]) -> T:
        """All of it, on the thread of the caller."""
        answer = None
        while True:
            try:
                request = work.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                answer = (
                    self.run_statement(request)
                    if isinstance(request, PgStatement)
                    else self.call_sqlite(request)
                )
            except Exception as error:
                raise_if_not_migrated(error)
                raise


class AsyncExternalConnection(ABC):
    """A connection whose calls are awaited."""

    @property
    @abstractmethod
    def dialect(self) -> str:
        """``sqlite``, ``postgresql``, or the name of what Tidewheel cannot use."""

    async def run_statement(self, statement: PgStatement) -> Any:
        """On PostgreSQL: say a text, get one back."""
        raise NotImplementedError(f"{type(self).__name__} is no connection to PostgreSQL")

    async def call_sqlite(self, call: SqliteCall) -> Any:
        """On SQLite: do something with the connection itself."""
        raise NotImplementedError(f"{type(self).__name__} is no connection to SQLite")

    async def run_steps(self, work: TransactionSteps[T]) -> T:
        """All of it, on the caller's event loop."""
        answer = None
        while True:
            try:
                request = work.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                answer = await (
                    self.run_statement(request)
                    if isinstance(request, PgStatement)
                    else self.call_sqlite(request)
                )
            except Exception as error:
                raise_if_not_migrated(error)
                raise


def raise_if_not_migrated(error: Exception) -> None:
    """Other errors are the driver's own: code that tries again after some of them has to know them."""
    if _sqlstate(error) in _UNDEFINED_SQLSTATES:
        raise StoreError(
            f"this connection sees no Tidewheel ({error}); run tidewheel migrate there, look whether it is "
            "the app's database and schema, and whether its role may use that schema"
        ) from error


def _sqlstate(error: BaseException) -> str | None:
    """As each driver tells it; SQLAlchemy and Django put their own error around the driver's."""
    for told in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(told, "sqlstate", None) or getattr(told, "pgcode", None)
        if state is None and told is not None and told.args and isinstance(told.args[0], dict):
            state = told.args[0].get("C")  # pg8000
        if state is not None:
            return str(state)
    return None
