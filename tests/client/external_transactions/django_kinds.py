"""Django's connections, in ``atomic()`` and with their cursors."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.db import connections, transaction

from tests.client.external_transactions.caller import Caller, kind

os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # tests are async, Django is not
if not settings.configured:
    settings.configure(USE_TZ=True)
    django.setup()

_numbers = itertools.count()


@kind("django-sqlite", "sqlite")
@kind("django-sqlite-cursor", "sqlite", cursor=True)
@kind("django-postgres", "postgres")
@kind("django-postgres-cursor", "postgres", cursor=True)
async def atomic(where: str, *, cursor: bool = False) -> AsyncIterator[Caller]:
    alias = added_alias(where)
    connection = connections[alias]
    inside = ExitStack()

    def execute(statement: str) -> None:
        if not connection.in_atomic_block:
            inside.enter_context(transaction.atomic(using=alias))
        with connection.cursor() as opened:
            opened.execute(statement)

    def end(*, commit: bool) -> None:
        if not commit:
            connection.set_rollback(True)
        inside.close()

    given = connection.cursor() if cursor else connection
    with contextlib.closing(connection):
        yield Caller(given, execute, lambda: end(commit=True), lambda: end(commit=False))


def added_alias(where: str) -> str:
    """A database of its own among those Django knows."""
    alias = f"tidewheel{next(_numbers)}"
    known = connections.configure_settings({"default": {}, alias: _database(where)})
    connections.settings[alias] = known[alias]
    return alias


def _database(where: str) -> dict[str, Any]:
    if "://" not in where:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": where}
    parts = urlsplit(where)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
