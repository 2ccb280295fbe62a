from __future__ import annotations

from collections.abc import Iterator

import pytest
from argon2 import PasswordHasher

from tests.server.security.callers import PublishedKey, published_key
from windlass.access import passwords


@pytest.fixture(scope="package")
def published() -> Iterator[PublishedKey]:
    """An issuer of tokens, for all of these tests."""
    with published_key() as key:
        yield key


@pytest.fixture(autouse=True, scope="package")
def quick_passwords() -> Iterator[None]:
    """A hash takes a tenth of a second on purpose, and hundreds log in here."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", lambda: quick)
        passwords._nobodys_hash.cache_clear()
        yield
    passwords._nobodys_hash.cache_clear()
