"""Empty schemas for tests: emptied and handed out again, because migrating one takes a tenth of a second."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Any

import asyncpg

from tests.patience import PATIENCE
from tests.servers.postgres import PostgresServer
from tests.servers.processes import close_at_exit

# All at once, tables in one order; the schema's own record of its version stays.
EMPTY = """
DO $$
DECLARE
    name regclass;
BEGIN
    SET LOCAL lock_timeout = '200ms';
    -- All of them first: what is still written there, by a store that has just been closed, is waited for.
    FOR name IN
        SELECT oid FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND relname <> 'schema_versions'
        ORDER BY relname
    LOOP
        EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', name);
    END LOOP;
    FOR name IN
        SELECT oid FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' AND relname <> 'schema_versions'
        ORDER BY relname
    LOOP
        EXECUTE format('DELETE FROM %s', name);
    END LOOP;
END
$$
"""


class Schemas:
    """Names of schemas on one server. Who takes one gives it back when nothing uses it any more."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection: Any = None
        self._used: deque[str] = deque()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def new(self) -> str:
        """One that is not there yet, and is never handed out again."""
        with self._lock:
            return f"tidewheel_{next(self._numbers)}"

    def take(self) -> str:
        """An empty one: migrated already, or not there yet."""
        with self._lock:
            # The one given back first: whatever its last user forgot has had time to end.
            schema = self._used.popleft() if self._used else None
        if schema is not None and _run(self._empty(schema)):
            return schema
        return self.new()

    def give_back(self, schema: str) -> None:
        with self._lock:
            self._used.append(schema)

    async def _empty(self, schema: str) -> bool:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._server.url())
            close_at_exit(self)
        try:
            await self._connection.execute(EMPTY.format(schema=schema))
        except (asyncpg.LockNotAvailableError, asyncpg.InvalidSchemaNameError):
            return False  # somebody still writes to it, or its user never migrated it: let it be
        return True

    def close(self) -> None:
        """Let go of the server."""

        async def close() -> bool:
            if self._connection is not None:
                self._connection.terminate()
            return True

        _run(close())


_loop: asyncio.AbstractEventLoop | None = None
_loop_lock = threading.Lock()


def _run(work: Coroutine[Any, Any, bool]) -> bool:
    """Await something where there may be an event loop already, on one of our own."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="empties schemas", daemon=True).start()
    return asyncio.run_coroutine_threadsafe(work, _loop).result(PATIENCE)
