"""From an entry of ``DATABASES`` to the URL of the same database, for connections of Tidewheel's own."""

from __future__ import annotations

import os
from typing import Any, Final
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

_DRIVER_OPTIONS: Final = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "target_session_attrs")
"""What Django's OPTIONS say to the driver, and ours understands in the same words."""

_first_names: dict[str, Any] = {}
"""The NAME of each of DATABASES as the settings have it."""


def remember_database_names() -> None:
    """While Django starts: later its test runner writes names of its own into the settings."""
    for alias in connections:
        _first_names.setdefault(alias, connections.settings[alias].get("NAME"))


def is_test_database(connection: Any) -> bool:
    """Whether it is not to the database of the settings, but to one that tests have made."""
    name = connection.settings_dict.get("NAME")
    return bool(name != _first_names.setdefault(connection.alias, name))


def database_url(connection: Any, schema: str | None) -> str | None:
    """Of a connection of Django's, as it is now: tests give it another database. None for one in memory."""
    if connection.vendor == "sqlite":
        return _sqlite(connection)
    if connection.vendor == "postgresql":
        return _postgresql(connection.settings_dict, connection.alias, schema)
    raise ImproperlyConfigured(
        f"the database {connection.alias!r} is {connection.display_name}; Tidewheel keeps its jobs in SQLite "
        "or PostgreSQL: name another one of DATABASES as OPTIONS['database']"
    )


def _sqlite(connection: Any) -> str | None:
    if connection.is_in_memory_db():
        return None
    name = os.fspath(connection.settings_dict["NAME"])
    if name.startswith("file:"):
        raise ImproperlyConfigured(
            f"the database {connection.alias!r} is the URI {name!r}; give its file to Tidewheel as "
            "OPTIONS['url'], for example sqlite:////srv/shop.db"
        )
    return f"sqlite:///{quote(os.path.abspath(name))}"


def _postgresql(known: dict[str, Any], alias: str, schema: str | None) -> str:
    options = known.get("OPTIONS") or {}
    name = known.get("NAME") or options.get("dbname")
    if not name:
        raise ImproperlyConfigured(
            f"the database {alias!r} has no NAME (a service, perhaps); give its URL to Tidewheel as "
            "OPTIONS['url'], for example postgresql://user@host/database"
        )
    query = {key: str(options[key]) for key in _DRIVER_OPTIONS if options.get(key)}
    host, port = str(known.get("HOST") or ""), str(known.get("PORT") or "")
    if host.startswith("/"):  # the directory of a socket
        query["host"], host = host, ""
        if port:
            query["port"], port = port, ""
    if schema is not None:
        query["schema"] = schema
    user = quote(str(known.get("USER") or ""), safe="")
    if known.get("PASSWORD"):
        user += f":{quote(str(known['PASSWORD']), safe='')}"
    place = f"[{host}]" if ":" in host else host
    if port:
        place = f"{place or 'localhost'}:{port}"
    words = f"?{urlencode(query)}" if query else ""
    return f"postgresql://{user}{'@' if user else ''}{place}/{quote(str(name), safe='')}{words}"
