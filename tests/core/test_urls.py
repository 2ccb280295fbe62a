"""What is shown of a URL."""

from __future__ import annotations

import pytest

from tidewheel.core.urls import redact_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/app",
        "postgresql://me:hunter2#1@db/app",
        "postgresql://me:a/hunter2@db/app",
        "postgresql://me:a?hunter2@db/app",
        "postgresql://me:a@hunter2@db/app",
        "postgresql://:hunter2@db/app",
        "postgress://me:hunter2@db",
        "postgresql://db/app?user=me&password=hunter2",
        "postgresql://db/app?password=hunter2&user=me",
        "postgresql://db/app?sslmode=verify-full&sslpassword=hunter2",
    ],
)
def test_no_password_is_shown_however_it_is_written(url: str) -> None:
    """Logs and error messages travel far."""
    shown = redact_url(url)
    assert "hunter2" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "url", ["sqlite:///jobs.db", "memory://", "postgresql://me@db:5432/app?schema=x", "postgresql:///app"]
)
def test_a_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    """People recognise what they wrote."""
    assert redact_url(url) == url
