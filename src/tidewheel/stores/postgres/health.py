"""Find problems of the PostgreSQL server, and check the integrity of the store.

``ailments`` reports unsafe settings, sessions that hold back vacuum, and full notification queues or
connection pools. Apart from overdue jobs, it reads the server's statistics, never tables. Each part has its
own connection and 0.5 seconds; a part that fails is reported as unseen and does not stop the others.

``check`` tests the rules that the code relies on, over all jobs in one snapshot. It repairs nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import asyncpg

from tidewheel.core.reports import Ailment, AilmentKind
from tidewheel.core.text_format import plural
from tidewheel.errors import StoreError
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.errors import DRIVER_ERRORS
from tidewheel.stores.postgres.roles import is_secured
from tidewheel.stores.protocol import MAX_AILMENTS
from tidewheel.stores.reports import of_overdue
from tidewheel.stores.sql_files import Queries

_sql = Queries("tidewheel.stores.postgres", "sql/health.sql")

PART_SECONDS: Final = 0.5
"""How long one part may take; catalogues are in memory."""
PINNED_SECONDS: Final = 300.0
"""Transactions may be open so long before they are worth a word: a report or a dump has its time."""
MOST_HOLDERS: Final = 10
FAR_BEHIND: Final = 1_000_000
"""Transactions that a standby in use may be behind: it follows within seconds, as a rule."""
DEAD_ROWS: Final = 100_000
DEAD_SHARE: Final = 0.5
"""A table is not kept up with when so many rows are dead, and so many for each live one: twenty times of what
its settings let gather before vacuum comes."""
MOST_TABLES: Final = 5
LARGE_TABLE: Final = 256 * 1024 * 1024
"""Bytes from which on it matters that a table is mostly empty."""
LONGEST_ROW: Final = 2048
"""Bytes of a row in its table; what is longer is stored apart."""
VACUUM_SETTINGS: Final = ("autovacuum", "track_counts")
"""Without the second the first does not know what to do."""
QUEUE_SHARE: Final = 0.25
"""Of the room for notifications, which is emptied within milliseconds as a rule."""
CONNECTION_SHARE: Final = 0.9
QUERY_LENGTH: Final = 100
"""Of a statement; so much is enough to know whose it is."""
READ_LENGTH: Final = 2000
SAFE_COMMITS: Final = ("on", "remote_apply", "remote_write", "local")
"""With these an acknowledged commit is on the disk of this server; with the last two perhaps on no other."""
_values = re.compile(
    r"""\b[eE]'(?:[^'\\]|''|\\.)*(?:'|\\?$) | '(?:[^']|'')*(?:'|$)
    | \$(\w*)\$.*?(?:\$\1\$|$) | (?<![\w$])\d[\d.]*""",
    re.VERBOSE | re.DOTALL,
)
SETTINGS: Final = ("fsync", "synchronous_commit", "full_page_writes", "synchronous_standby_names")


async def ailments(database: Database) -> list[Ailment]:
    """All of them, those that lose jobs first."""
    found = of_pooler(pooled=database.pooled)
    parts: tuple[tuple[str, Callable[[Any], Awaitable[list[Ailment]]]], ...] = (
        ("settings", _settings),
        ("open transactions", _pins),
        ("prepared transactions", _prepared),
        ("replication slots", _slots),
        ("dead rows", lambda connection: _dead_rows(connection, database.location.schema)),
        ("sizes of tables", lambda connection: _sparse(connection, database.location.schema)),
        ("finished jobs", lambda connection: _overdue(connection, database)),
        ("notifications", _notifications),
        ("connections", _connections),
    )
    try:
        for name, look in parts:
            # A connection for each: one that was given up is not used again.
            async with database.connection() as connection:
                found += await _part(name, look, connection)
    except StoreError as error:
        found.append(Ailment(AilmentKind.UNSEEN, {"part": "the server", "reason": str(error)}))
    return found[:MAX_AILMENTS]


async def _part(name: str, look: Callable[[Any], Awaitable[list[Ailment]]], connection: Any) -> list[Ailment]:
    try:
        async with asyncio.timeout(PART_SECONDS):
            return await look(connection)
    except TimeoutError:
        connection.terminate()  # it is still busy with our question
        return [_unseen(name, f"no answer within {PART_SECONDS:g} s")]
    except DRIVER_ERRORS as error:
        return [_unseen(name, str(error) or type(error).__name__)]


def _unseen(part: str, reason: str) -> Ailment:
    return Ailment(AilmentKind.UNSEEN, {"part": part, "reason": reason})


def of_pooler(*, pooled: bool) -> list[Ailment]:
    return [Ailment(AilmentKind.POOLED)] if pooled else []


def of_settings(settings: Mapping[str, str]) -> list[Ailment]:
    """What takes acknowledged jobs when a server or a machine goes down."""
    found = [(name, settings[name]) for name in ("fsync", "full_page_writes") if settings[name] != "on"]
    if settings["synchronous_commit"] not in SAFE_COMMITS:
        found.append(("synchronous_commit", settings["synchronous_commit"]))
    return [
        Ailment(AilmentKind.UNSAFE_COMMITS, {"setting": name, "value": value})
        for name, value in sorted(found)
    ]


async def read_settings(connection: Any) -> dict[str, str]:
    return dict(await connection.fetch(_sql["settings"], list(SETTINGS)))


async def _settings(connection: Any) -> list[Ailment]:
    found = of_settings(await read_settings(connection))
    vacuum = dict(await connection.fetch(_sql["settings"], list(VACUUM_SETTINGS)))
    return found + [
        Ailment(AilmentKind.NO_VACUUM, {"setting": name}) for name in VACUUM_SETTINGS if vacuum[name] != "on"
    ]


async def _pins(connection: Any) -> list[Ailment]:
    found, hidden = [], 0
    for row in await connection.fetch(_sql["held_snapshots"], PINNED_SECONDS, READ_LENGTH, MOST_HOLDERS):
        since, held, *known, query = row
        if held is None:  # other roles' sessions, of which this one is told nothing
            hidden = known[0]
            continue
        names = ("process", "role", "application", "address", "state", "transactions")
        figures = {"holder": "session", "seconds": held, **dict(zip(names, known, strict=True))}
        figures["query"] = shown_statement(query)
        found.append(Ailment(AilmentKind.PINNED_VACUUM, figures, since))
    if hidden:
        reason = f"{plural(hidden, 'session of another role is', 'sessions of other roles are')} hidden"
        figures = {"part": "open transactions", "reason": reason, "role": "pg_read_all_stats"}
        figures["grantee"] = await connection.fetchval(_sql["grantee"])
        found.append(Ailment(AilmentKind.UNSEEN, figures))
    return found


def shown_statement(text: str | None) -> str | None:
    """The beginning of a statement, without the values written in it; those of parameters never are."""
    return None if text is None else " ".join(_values.sub("…", text).split()).rstrip("; ")[:QUERY_LENGTH]


async def _prepared(connection: Any) -> list[Ailment]:
    names = ("name", "role", "transactions")
    return [
        Ailment(
            AilmentKind.PINNED_VACUUM,
            {"holder": "prepared", "seconds": held, **dict(zip(names, known, strict=True))},
            since,
        )
        for since, held, *known in await connection.fetch(
            _sql["prepared_transactions"], PINNED_SECONDS, MOST_HOLDERS
        )
    ]


async def _slots(connection: Any) -> list[Ailment]:
    return [
        Ailment(
            AilmentKind.PINNED_VACUUM,
            {"holder": holder, "name": name, "active": "yes" if active else "no", "transactions": age},
        )
        for holder, name, active, age in await connection.fetch(
            _sql["replication_slots"], MOST_HOLDERS, FAR_BEHIND
        )
    ]


async def _dead_rows(connection: Any, schema: str) -> list[Ailment]:
    rows = await connection.fetch(_sql["dead_rows"], schema, DEAD_ROWS, DEAD_SHARE, MOST_TABLES)
    return [
        Ailment(AilmentKind.DEAD_ROWS, {"table": f"{schema}.{table}", "dead": dead, "live": live}, vacuumed)
        for table, dead, live, vacuumed in rows
    ]


async def _sparse(connection: Any, schema: str) -> list[Ailment]:
    rows = await connection.fetch(_sql["mostly_empty_tables"], schema, LARGE_TABLE, MOST_TABLES)
    return [
        Ailment(
            AilmentKind.SPARSE,
            {"table": f"{schema}.{table}", "bytes": size, "used": min(1.0, live * LONGEST_ROW / size)},
        )
        for table, size, live in rows
    ]


async def _overdue(connection: Any, database: Database) -> list[Ailment]:
    if database.scoped:
        return []  # who sees one tenant does not see how the others are kept
    try:
        return of_overdue(*await connection.fetchrow(database.qualify(_sql["overdue_pruning"]), database.now))
    except asyncpg.InsufficientPrivilegeError:
        return []  # a role that only enqueues; workers read it, or they could not prune


async def _notifications(connection: Any) -> list[Ailment]:
    usage = await connection.fetchval(_sql["notifications"])
    return [Ailment(AilmentKind.NOTIFY_QUEUE, {"usage": usage})] if usage >= QUEUE_SHARE else []


async def _connections(connection: Any) -> list[Ailment]:
    used, limit = await connection.fetchrow(_sql["connections"])
    if used < limit * CONNECTION_SHARE:
        return []
    return [Ailment(AilmentKind.FEW_CONNECTIONS, {"used": used, "limit": limit})]


_integrity_sql = Queries("tidewheel.stores.postgres", "sql/integrity_checks.sql")
_security = Queries("tidewheel.stores.postgres", "sql/security_checks.sql")

MOST_PER_RULE: Final = 20
"""Once a rule is broken, more of the same says little."""
RULE_SECONDS: Final = 3600.0
"""A rule may look at every job there is, which takes longer than any other statement."""


async def check(database: Database) -> list[str]:
    """One line for each problem; nothing is repaired. In one snapshot, so workers may go on meanwhile."""
    if database.scoped:
        raise StoreError(
            f"{database.where} shows this role one tenant at a time, and a check is of all jobs; run it as a "
            "member of tidewheel_worker"
        )
    problems: list[str] = []
    async with database.transaction() as connection:
        await connection.execute(
            f"SET LOCAL statement_timeout = {int(RULE_SECONDS * 1000)}; SET LOCAL work_mem = '64MB'"
        )
        for name in _integrity_sql.names():
            rows = await connection.fetch(
                f"{database.qualify(_integrity_sql[name])} LIMIT {MOST_PER_RULE}", timeout=RULE_SECONDS
            )
            problems.extend(row[0] for row in rows)
        if await is_secured(connection, database):
            for name in _security.names():
                rows = await connection.fetch(
                    f"{_security[name]} LIMIT {MOST_PER_RULE}", database.location.schema
                )
                problems.extend(row[0] for row in rows)
    return problems
