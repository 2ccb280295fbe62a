"""What PostgreSQL and its driver raise, in our words."""

from __future__ import annotations

import asyncpg

from windlass.errors import ConfigurationError, StoreError, StoreUnavailable, WindlassError

# Classes of SQLSTATE after which the same call may well succeed: lost connections, rolled back by a conflict,
# out of resources, locked, shutting down or cancelled, failing disks.
_PASSING = ("08", "40", "53", "55", "57", "58", "25006")  # the last: read-only, as during a failover
_REFUSED = ("28", "3D")  # wrong password or user, no such database
_NOT_MIGRATED = ("42P01", "42883", "3F000")  # no such table, function or schema

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.TargetServerAttributeNotMatched,  # no primary among the hosts, for now
    OSError,
    TimeoutError,
)
"""Everything a call into the driver may raise about the database."""


def translate(error: BaseException, where: str) -> WindlassError:
    """The error of one statement. Says where, never with a password."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state in _NOT_MIGRATED:
            return StoreError(
                f"{where} has no Windlass schema, or an old one; run `windlass migrate` ({error})"
            )
        # Refused now, though it was let in before: credentials are being changed, or the database moved.
        if state.startswith(_PASSING + _REFUSED):
            return StoreUnavailable(f"{where}: {error}")
        return StoreError(f"{where}: {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{where} did not answer in time")
    if isinstance(error, ValueError):
        # A value the driver cannot send. Its own message quotes the value, which may be anybody's secret.
        return StoreError(f"{where} cannot store this: {error.__cause__ or 'a value does not fit its column'}")
    return StoreUnavailable(f"{where} cannot be reached: {error or type(error).__name__}")


def translate_first(error: BaseException, where: str) -> WindlassError:
    """The error of the first connection: what was refused then will be refused again."""
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_REFUSED):
        return ConfigurationError(f"{where} refuses this user or does not exist: {error}")
    if isinstance(error, ValueError):
        return ConfigurationError(f"the URL of {where} cannot be used: {error}")
    return translate(error, where)
