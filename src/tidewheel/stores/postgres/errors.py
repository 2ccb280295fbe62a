"""What PostgreSQL and its driver raise, in our words."""

from __future__ import annotations

import asyncpg

from tidewheel.errors import ConfigurationError, StoreError, StoreUnavailable, TidewheelError
from tidewheel.stores.enqueue import key_in_use_error, parent_not_found_error

# Classes of SQLSTATE after which the same call may well succeed: lost connections, rolled back by a conflict,
# out of resources, locked, shutting down or cancelled, failing disks.
_TRANSIENT_STATES = ("08", "40", "53", "55", "57", "58", "25006")  # the last: read-only, as during a failover
_REJECTED_STATES = ("28", "3D")  # wrong password or user, no such database
_BAD_OPTION = ("42704", "22023", "55P02")  # a setting that is unknown, cannot have this value, or not now
_NOT_MIGRATED = ("42P01", "42883", "3F000")  # no such table, function or schema

_PARENT_NOT_FOUND_STATE = "TW001"  # raised by add_parents, with the id
_HIDDEN_KEY_HOLDER_STATE = "TW003"  # raised by enqueue, with the key

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # A statement on a connection that the server is just closing; no primary among the hosts, for now.
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Everything a call into the driver may raise about the database."""


def translate_error(error: BaseException, where: str) -> TidewheelError:
    """The error of one statement. Says where, never with a password."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state == _PARENT_NOT_FOUND_STATE:
            return parent_not_found_error(str(error))
        if state == _HIDDEN_KEY_HOLDER_STATE:
            return key_in_use_error(str(error))
        if state in _NOT_MIGRATED:
            return StoreError(
                f"{where} has no Tidewheel schema, or an old one; run `tidewheel migrate`, or what "
                f"`tidewheel migrate --print` prints ({error})"
            )
        # Refused now, though it was let in before: credentials are being changed, or the database moved.
        if state.startswith(_TRANSIENT_STATES + _REJECTED_STATES):
            return StoreUnavailable(f"{where}: {error}")
        if isinstance(error, asyncpg.DataError) and error.__cause__ is not None:
            # From the driver, about a value it cannot send, which it quotes. That may be anybody's secret.
            return StoreError(f"{where} cannot keep a value: {error.__cause__}")
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            return _lacks_rights(error, where)
        return StoreError(f"{where}: {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{where} did not answer in time")
    return StoreUnavailable(f"{where} cannot be reached: {error or type(error).__name__}")


def _lacks_rights(error: asyncpg.InsufficientPrivilegeError, where: str) -> StoreError:
    remedy = (
        "keys, users, the audit log and bulk operations are for the worker role: let `tidewheel serve` and "
        "`tidewheel keys` connect as a member of tidewheel_worker"
        if "documents" in str(error)
        else "connect as a role with the rights of a worker, or grant them: docs/how-to/postgresql.md#roles"
    )
    denied = StoreError(f"{where}: {error}; {remedy}")
    denied.lacks_rights = True
    return denied


def translate_connect_error(error: BaseException, where: str) -> TidewheelError:
    """The error of the first connection: what was refused then will be refused again."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state.startswith(_REJECTED_STATES):
            return ConfigurationError(f"{where} refuses this user or does not exist: {error}")
        # A pooler has only one code for all it says.
        if state in _BAD_OPTION or (state == "08P01" and "startup parameter" in str(error)):
            return ConfigurationError(f"{where} refuses an option of the URL: {error}")
    if isinstance(error, ValueError):
        # What the driver says may quote the part of the URL it stumbled over.
        what = (
            error
            if isinstance(error, asyncpg.ClientConfigurationError)
            else "host, port or an option is wrong"
        )
        return ConfigurationError(f"the URL of {where} cannot be used: {what}")
    return translate_error(error, where)
