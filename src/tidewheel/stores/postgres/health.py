"""Find problems of the PostgreSQL server, and check the integrity of the store.

``find_health_problems`` reports unsafe settings, sessions that hold back vacuum, and full notification queues
or connection pools. Apart from overdue jobs, it reads the server's statistics, never tables. Each part has
its own connection and 0.5 seconds; a part that fails is reported as unseen and does not stop the others.

``check_integrity`` tests the rules that the code relies on, over all jobs in one snapshot. It repairs
nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import asyncpg

from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.core.text_format import plural
from tidewheel.errors import StoreError
from tidewheel.stores.bounds import MAX_HEALTH_FINDINGS
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.errors import DRIVER_ERRORS
from tidewheel.stores.postgres.roles import has_row_level_security
from tidewheel.stores.reports import find_overdue_pruning
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/health.sql")

CHECK_SECONDS: Final = 0.5
"""How long one part may take; catalogues are in memory."""
MAX_SNAPSHOT_SECONDS: Final = 300.0
"""Transactions may be open so long before they are worth a word: a report or a dump has its time."""
MAX_HOLDERS_LISTED: Final = 10
MAX_STANDBY_LAG_TRANSACTIONS: Final = 1_000_000
"""Transactions that a standby in use may be behind: it follows within seconds, as a rule."""
DEAD_ROWS: Final = 100_000
DEAD_SHARE: Final = 0.5
"""A table is not kept up with when so many rows are dead, and so many for each live one: twenty times of what
its settings let gather before vacuum comes."""
MAX_TABLES_LISTED: Final = 5
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


async def find_health_problems(database: Database) -> list[HealthFinding]:
    """All of them, those that lose jobs first."""
    found = check_pooler(pooled=database.pooled)
    parts: tuple[tuple[str, Callable[[Any], Awaitable[list[HealthFinding]]]], ...] = (
        ("settings", _check_vacuum_settings),
        ("open transactions", _check_held_snapshots),
        ("prepared transactions", _check_prepared_transactions),
        ("replication slots", _check_replication_slots),
        ("dead rows", lambda connection: _check_dead_rows(connection, database.location.schema)),
        ("sizes of tables", lambda connection: _check_empty_tables(connection, database.location.schema)),
        ("finished jobs", lambda connection: _check_overdue_pruning(connection, database)),
        ("notifications", _check_notification_queue),
        ("connections", _check_connections),
    )
    try:
        for name, look in parts:
            # A connection for each: one that was given up is not used again.
            async with database.connection() as connection:
                found += await _run_check(name, look, connection)
    except StoreError as error:
        found.append(HealthFinding(HealthFindingKind.UNSEEN, {"part": "the server", "reason": str(error)}))
    return found[:MAX_HEALTH_FINDINGS]


async def _run_check(
    name: str, look: Callable[[Any], Awaitable[list[HealthFinding]]], connection: Any
) -> list[HealthFinding]:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await look(connection)
    except TimeoutError:
        connection.terminate()  # it is still busy with our question
        return [_could_not_check(name, f"no answer within {CHECK_SECONDS:g} s")]
    except DRIVER_ERRORS as error:
        return [_could_not_check(name, str(error) or type(error).__name__)]


def _could_not_check(part: str, reason: str) -> HealthFinding:
    return HealthFinding(HealthFindingKind.UNSEEN, {"part": part, "reason": reason})


def check_pooler(*, pooled: bool) -> list[HealthFinding]:
    return [HealthFinding(HealthFindingKind.POOLED)] if pooled else []


def check_settings(settings: Mapping[str, str]) -> list[HealthFinding]:
    """What takes acknowledged jobs when a server or a machine goes down."""
    found = [(name, settings[name]) for name in ("fsync", "full_page_writes") if settings[name] != "on"]
    if settings["synchronous_commit"] not in SAFE_COMMITS:
        found.append(("synchronous_commit", settings["synchronous_commit"]))
    return [
        HealthFinding(HealthFindingKind.UNSAFE_COMMITS, {"setting": name, "value": value})
        for name, value in sorted(found)
    ]


async def read_settings(connection: Any) -> dict[str, str]:
    return dict(await connection.fetch(_sql["settings"], list(SETTINGS)))


async def _check_vacuum_settings(connection: Any) -> list[HealthFinding]:
    found = check_settings(await read_settings(connection))
    vacuum = dict(await connection.fetch(_sql["settings"], list(VACUUM_SETTINGS)))
    return found + [
        HealthFinding(HealthFindingKind.NO_VACUUM, {"setting": name})
        for name in VACUUM_SETTINGS
        if vacuum[name] != "on"
    ]


async def _check_held_snapshots(connection: Any) -> list[HealthFinding]:
    found, hidden = [], 0
    for row in await connection.fetch(
        _sql["held_snapshots"], MAX_SNAPSHOT_SECONDS, READ_LENGTH, MAX_HOLDERS_LISTED
    ):
        since, held, *known, query = row
        if held is None:  # other roles' sessions, of which this one is told nothing
            hidden = known[0]
            continue
        names = ("process", "role", "application", "address", "state", "transactions")
        figures = {"holder": "session", "seconds": held, **dict(zip(names, known, strict=True))}
        figures["query"] = shown_statement(query)
        found.append(HealthFinding(HealthFindingKind.PINNED_VACUUM, figures, since))
    if hidden:
        reason = f"{plural(hidden, 'session of another role is', 'sessions of other roles are')} hidden"
        figures = {"part": "open transactions", "reason": reason, "role": "pg_read_all_stats"}
        figures["grantee"] = await connection.fetchval(_sql["grantee"])
        found.append(HealthFinding(HealthFindingKind.UNSEEN, figures))
    return found


def shown_statement(text: str | None) -> str | None:
    """The beginning of a statement, without the values written in it; those of parameters never are."""
    return None if text is None else " ".join(_values.sub("…", text).split()).rstrip("; ")[:QUERY_LENGTH]


async def _check_prepared_transactions(connection: Any) -> list[HealthFinding]:
    names = ("name", "role", "transactions")
    return [
        HealthFinding(
            HealthFindingKind.PINNED_VACUUM,
            {"holder": "prepared", "seconds": held, **dict(zip(names, known, strict=True))},
            since,
        )
        for since, held, *known in await connection.fetch(
            _sql["prepared_transactions"], MAX_SNAPSHOT_SECONDS, MAX_HOLDERS_LISTED
        )
    ]


async def _check_replication_slots(connection: Any) -> list[HealthFinding]:
    return [
        HealthFinding(
            HealthFindingKind.PINNED_VACUUM,
            {"holder": holder, "name": name, "active": "yes" if active else "no", "transactions": age},
        )
        for holder, name, active, age in await connection.fetch(
            _sql["replication_slots"], MAX_HOLDERS_LISTED, MAX_STANDBY_LAG_TRANSACTIONS
        )
    ]


async def _check_dead_rows(connection: Any, schema: str) -> list[HealthFinding]:
    rows = await connection.fetch(_sql["dead_rows"], schema, DEAD_ROWS, DEAD_SHARE, MAX_TABLES_LISTED)
    return [
        HealthFinding(
            HealthFindingKind.DEAD_ROWS, {"table": f"{schema}.{table}", "dead": dead, "live": live}, vacuumed
        )
        for table, dead, live, vacuumed in rows
    ]


async def _check_empty_tables(connection: Any, schema: str) -> list[HealthFinding]:
    rows = await connection.fetch(_sql["mostly_empty_tables"], schema, LARGE_TABLE, MAX_TABLES_LISTED)
    return [
        HealthFinding(
            HealthFindingKind.SPARSE,
            {"table": f"{schema}.{table}", "bytes": size, "used": min(1.0, live * LONGEST_ROW / size)},
        )
        for table, size, live in rows
    ]


async def _check_overdue_pruning(connection: Any, database: Database) -> list[HealthFinding]:
    if database.sees_one_tenant:
        return []  # who sees one tenant does not see how the others are kept
    try:
        return find_overdue_pruning(
            *await connection.fetchrow(database.qualify(_sql["overdue_pruning"]), database.now)
        )
    except asyncpg.InsufficientPrivilegeError:
        return []  # a role that only enqueues; workers read it, or they could not prune


async def _check_notification_queue(connection: Any) -> list[HealthFinding]:
    usage = await connection.fetchval(_sql["notifications"])
    return [HealthFinding(HealthFindingKind.NOTIFY_QUEUE, {"usage": usage})] if usage >= QUEUE_SHARE else []


async def _check_connections(connection: Any) -> list[HealthFinding]:
    used, limit = await connection.fetchrow(_sql["connections"])
    if used < limit * CONNECTION_SHARE:
        return []
    return [HealthFinding(HealthFindingKind.FEW_CONNECTIONS, {"used": used, "limit": limit})]


_integrity_sql = SqlFile("tidewheel.stores.postgres", "sql/integrity_checks.sql")
_security_sql = SqlFile("tidewheel.stores.postgres", "sql/security_checks.sql")

MAX_PROBLEMS_PER_RULE: Final = 20
"""Once a rule is broken, more of the same says little."""
RULE_SECONDS: Final = 3600.0
"""A rule may look at every job there is, which takes longer than any other statement."""


async def check_integrity(database: Database) -> list[str]:
    """One line for each problem; nothing is repaired. In one snapshot, so workers may go on meanwhile."""
    if database.sees_one_tenant:
        raise StoreError(
            f"{database.description} shows this role one tenant at a time, and a check is of all jobs; run "
            "it as a "
            "member of tidewheel_worker"
        )
    problems: list[str] = []
    async with database.transaction() as connection:
        await connection.execute(
            f"SET LOCAL statement_timeout = {int(RULE_SECONDS * 1000)}; SET LOCAL work_mem = '64MB'"
        )
        for name in _integrity_sql.names():
            rows = await connection.fetch(
                f"{database.qualify(_integrity_sql[name])} LIMIT {MAX_PROBLEMS_PER_RULE}",
                timeout=RULE_SECONDS,
            )
            problems.extend(row[0] for row in rows)
        if await has_row_level_security(connection, database):
            for name in _security_sql.names():
                rows = await connection.fetch(
                    f"{_security_sql[name]} LIMIT {MAX_PROBLEMS_PER_RULE}", database.location.schema
                )
                problems.extend(row[0] for row in rows)
    return problems
