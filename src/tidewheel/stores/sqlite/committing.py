"""Ending a transaction so that its callers can be told what became of it.

A commit whose sync failed is rolled back, but its pages stay in the log, complete. As long as any process has
the file open nobody sees them; after a crash of all of them SQLite would read the log anew, find a commit
there and honour it. So a small commit is written over them before anybody is told that nothing was written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores.sqlite.connection import begin_immediate, translate
from tidewheel.stores.sqlite.location import Location
from tidewheel.stores.sqlite.transaction import take_numbers

# The commit's mark goes with the last page: whoever fails before it has left nothing to honour.
# A constraint is one of the user's tables, checked at the end (see ``lending``).
_BEFORE_THE_MARK = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_WRITE", "SQLITE_CONSTRAINT")


def commit(connection: sqlite3.Connection, location: Location, make_heard: Callable[[], None]) -> None:
    """COMMIT. When that fails, nothing of it is left, or the error says that nobody knows."""
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith(_BEFORE_THE_MARK):
            raise
        try:
            _write_over(connection, location, make_heard)
        except (sqlite3.Error, StoreError):
            raise StoreUnavailable(
                f"{translate(error, location)}; whether this was written is not known, and will be seen when "
                "the file is opened again after a crash: look before trying again, or use a key"
            ) from error
        raise


def _write_over(connection: sqlite3.Connection, location: Location, make_heard: Callable[[], None]) -> None:
    """A commit that changes one page, in the place of the failed one's first."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    begin_immediate(connection, location, make_heard)
    take_numbers(connection, "number", 1)  # one that no job will have
    connection.execute("COMMIT")
