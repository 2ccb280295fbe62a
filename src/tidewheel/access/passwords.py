"""Passwords: hashed slowly, on threads, two at a time."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidewheel.errors import InvalidInput

if TYPE_CHECKING:
    from argon2 import PasswordHasher

T = TypeVar("T")

MIN_PASSWORD_LENGTH: Final = 8
MAX_PASSWORD_LENGTH: Final = 1000
MAX_CONCURRENT_HASHES: Final = 2
"""Each takes 64 MiB and a processor: more at once would only be a way to keep the server busy. Logins wait
in ``login_queue``, where the queue is bounded."""


@functools.cache
def _hasher() -> PasswordHasher:
    from argon2 import PasswordHasher  # late: most programs never see a password

    return PasswordHasher()


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_CONCURRENT_HASHES, thread_name_prefix="tidewheel-password")


@functools.cache
def _dummy_hash() -> str:
    """Of a password nobody has: what a name that does not exist is checked against."""
    return _hasher().hash(secrets.token_urlsafe())


def check_password(password: Any) -> str:
    """A password to be set."""
    if not isinstance(password, str) or not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        length = f"has {len(password):,} characters" if isinstance(password, str) else "is no text"
        raise InvalidInput(
            f"the password {length}; {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH:,} are possible"
        )
    return password


async def hash_password(password: str) -> str:
    return await _run(_hasher().hash, password)


async def verify_password(hashed: str | None, password: str) -> bool:
    """Whether this is the password. Without a hash it is not, after the same work."""
    if len(password) > MAX_PASSWORD_LENGTH:
        return False
    return await _run(_verify, hashed, password)


def _verify(hashed: str | None, password: str) -> bool:
    from argon2.exceptions import Argon2Error, InvalidHashError

    nobodys = _dummy_hash()  # made for the first of all, so that no name is told from another by it
    try:
        _hasher().verify(hashed or nobodys, password)
    except (Argon2Error, InvalidHashError, UnicodeEncodeError):
        return False
    return hashed is not None


async def _run(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads(), work, *arguments)
