from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.security.callers import PublishedKey, published_key


@pytest.fixture(scope="package")
def published() -> Iterator[PublishedKey]:
    """An issuer of tokens, for all of these tests."""
    with published_key() as key:
        yield key


@pytest.fixture(autouse=True, scope="package")
def _quick_passwords(quick_passwords: None) -> None:
    """Hundreds log in here."""
