"""Tidewheel as one of a project's apps: the commands of ``manage.py``, and tables that ``migrate`` makes."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from tidewheel.integrations.django.database_urls import remember_database_names


class TidewheelConfig(AppConfig):  # type: ignore[misc]
    """For ``INSTALLED_APPS``."""

    name = "tidewheel.integrations.django"
    label = "tidewheel"
    verbose_name = "Tidewheel"

    def ready(self) -> None:
        remember_database_names()
        post_migrate.connect(make_tables, sender=self, dispatch_uid="tidewheel")
        connection_created.connect(leave_checkpoints, dispatch_uid="tidewheel")


def leave_checkpoints(*, connection: Any, **_: Any) -> None:
    """In a file of SQLite that has jobs only Tidewheel moves the log into the file; see decision 0006."""
    if connection.vendor != "sqlite":
        return
    from tidewheel.integrations.django.project import project_apps

    try:
        concerned = any(app.database == connection.alias for app in project_apps())
    except ImproperlyConfigured:
        return  # ``manage.py check`` tells, and every enqueue; other tables can be used meanwhile
    if concerned:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_autocheckpoint = 0")


def make_tables(*, using: str, verbosity: int = 1, stdout: Any = None, plan: Any = None, **_: Any) -> None:
    """After ``manage.py migrate``, and in databases of tests: bring the tables of Tidewheel up to date."""
    from tidewheel.integrations.django.project import project_apps

    concerned = [app for app in project_apps() if app.database == using and app.settings.migrate]
    # Some may have one in common.
    places = {app.current_url: app for app in concerned if app.current_url is not None}
    for app in places.values():
        steps = app.bring_up_to_date(emptied=not plan)
        if verbosity >= 1 and stdout is not None:
            for step in steps:
                stdout.write(f"  Tidewheel: applied {step}")
