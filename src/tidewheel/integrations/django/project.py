"""The Tidewheel app of a Django project: one for each backend, on the database that Django uses."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.transaction import TransactionManagementError
from django.utils.module_loading import autodiscover_modules, import_string

from tidewheel.app import Tidewheel
from tidewheel.core.model import State
from tidewheel.core.names import suggest
from tidewheel.core.retry import Retry
from tidewheel.errors import ConfigurationError
from tidewheel.integrations.django.database_urls import database_url, is_test_database
from tidewheel.integrations.django.queue_registry import QueueRegistry
from tidewheel.settings import SETTINGS

if TYPE_CHECKING:
    from tidewheel.stores.external_transaction import UncommittedEnqueue

OWN_OPTIONS: Final = ("database", "modules", "retry", "schema")
"""What OPTIONS may say beside the settings of Tidewheel."""


class ProjectApp(Tidewheel):
    """A ``Tidewheel`` whose store is the database of one of Django's connections."""

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        _refuse_unknown(alias, options)
        self.alias = alias
        self.database: str | None = options.get("database", DEFAULT_DB_ALIAS)
        """which of DATABASES jobs are written with; None: none, Tidewheel writes by itself"""
        self.retry: Retry | None = options.get("retry")
        self.modules: tuple[str, ...] = tuple(options.get("modules", ()))
        self._schema: str | None = options.get("schema")
        self._explicit: str | None = options.get("url")
        self._moved = ExitStack()
        self._moving = threading.Lock()
        if self.database is not None and self.database not in connections.settings:
            raise ImproperlyConfigured(
                f"OPTIONS['database'] of the tasks {alias!r} is {self.database!r}, which is none of DATABASES"
                f"{suggest(self.database, connections.settings)}"
            )
        if self.database is None and self._explicit is None:
            raise ImproperlyConfigured(
                f"OPTIONS['database'] of the tasks {alias!r} is None, so OPTIONS['url'] has to say where the "
                "jobs are"
            )
        given = {name: value for name, value in options.items() if name not in {*OWN_OPTIONS, "url"}}
        try:
            # A database in memory is one of tests.
            super().__init__(self.current_url or "memory://", **given)
        except ConfigurationError as error:
            raise ImproperlyConfigured(f"OPTIONS of the tasks {alias!r}: {error}") from error
        self.registry = self.queues = QueueRegistry()
        self.declared: dict[str, Any] = {}
        """tasks of Django's interface, by their path"""
        self.handlers: Any = None
        """what runs them, once there is one"""

    @property
    def connection(self) -> Any:
        """Django's connection of this thread; the app follows it to a database that tests have made."""
        if self.database is None:
            raise ImproperlyConfigured(f"the tasks {self.alias!r} have no database of Django's")
        self.follow_database()
        return self.plain_connection

    @property
    def plain_connection(self) -> Any:
        """The same as it is."""
        return connections[self.database]

    def follow_database(self) -> None:
        """Use the database that Django uses now: its test runner makes another one, and goes back."""
        url = self.current_url
        if url is None:
            raise ImproperlyConfigured(
                f"the database {self.database!r} is in memory, where no worker finds a job; in tests give it "
                "a file, DATABASES[…]['TEST'] = {'NAME': 'test.sqlite3'}, or use another backend for TASKS"
            )
        if url == self.url:
            return
        with self._moving:
            self._moved.close()
            if url != self.url:
                self._moved.enter_context(self.on_store(url))
            self.settings = replace(self.settings, url=url)  # where commands look

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        """In a database of tests nobody waits, and a connection would keep it from being dropped."""
        if not self.uses_test_database:
            super().notify_on_commit(uncommitted)

    def bring_up_to_date(self, *, emptied: bool) -> list[str]:
        """The tables as this version wants them, blocking; the names of the steps taken.

        ``emptied``: Django has just emptied its own tables. In a database of tests the jobs go with them.
        """
        self.follow_database()
        app = Tidewheel(self.url, migrate=False)  # opened without, so that the steps are seen
        try:
            steps = app.sync.migrate()
            if emptied and self.uses_test_database and _under_test():
                for state in State:  # all of them, and said so: jobs are not deleted by accident
                    app.sync.delete_all(state=state)
        finally:
            app.sync.close()
        return steps

    @property
    def uses_test_database(self) -> bool:
        """Whether this is not the database of the settings, but one that tests have made."""
        return self.database is not None and is_test_database(self.plain_connection)

    def discover(self) -> None:
        """Import what has tasks: ``tasks`` and ``jobs`` of installed apps, and what ``modules`` names."""
        autodiscover_modules("tasks", "jobs")
        for name in self.modules:
            import_module(name)
        if _is_ours(self.alias):
            from tidewheel.integrations.django.compat import backends

            inside = (
                f"{config.name}.{name}" for config in apps.get_app_configs() for name in ("tasks", "jobs")
            )
            known = (sys.modules.get(name) for name in (*inside, *self.modules))
            backends()[self.alias].adopt_modules(filter(None, known))

    @property
    def current_url(self) -> str | None:
        """The URL of the database that Django uses now; None in memory, where Tidewheel has nothing to do."""
        # A URL says where the jobs are that are none of tests: those must not be run by one.
        if self._explicit is not None and not self.uses_test_database:
            return self._explicit
        return database_url(connections[self.database], self._schema)


_apps: dict[str, ProjectApp] = {}
_apps_lock = threading.Lock()


def app_for(alias: str = "default") -> ProjectApp:
    """The app of the backend with this alias in ``TASKS``, the same one in all threads.

    A project without a backend of Tidewheel has a ``"default"`` one all the same, on its default database.
    """
    app = _apps.get(alias)
    if app is None:
        with _apps_lock:
            app = _apps.get(alias)
            if app is None:
                app = _apps[alias] = ProjectApp(alias, _options_of(alias))
    return app


def run_until_idle(alias: str = "default") -> int:
    """Run the jobs that are due, for tests and scripts; how many attempts that took. Blocks.

    Not inside of a transaction, whose jobs are not there yet: a ``TestCase`` is one from end to end.
    """
    app = app_for(alias)
    app.follow_database()
    app.discover()
    if app.database is not None and app.plain_connection.in_atomic_block:
        raise TransactionManagementError(
            "run_until_idle was called inside of a transaction, whose jobs no worker sees before its commit; "
            "call it outside of atomic(), in tests in a TransactionTestCase"
        )

    async def run() -> int:
        async with app:
            return await app.run_until_idle()

    done: list[int | BaseException] = []

    def work() -> None:
        try:
            done.append(asyncio.run(run()))
        except BaseException as error:
            done.append(error)

    # On a thread of its own: the caller may have an event loop, and its connections stay its own.
    thread = threading.Thread(target=work, name="tidewheel-idle")
    thread.start()
    thread.join()
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


def _under_test() -> bool:
    """Whether a test runner of Django's has set its environment up; its outbox is the public sign of that."""
    return hasattr(mail, "outbox")


def project_apps() -> list[ProjectApp]:
    """Those of all backends in ``TASKS``; without any, that of plain tasks."""
    aliases = [alias for alias in _configured() if _is_ours(alias)]
    if not aliases and not _apps and connections[DEFAULT_DB_ALIAS].vendor in {"sqlite", "postgresql"}:
        aliases = ["default"]
    return [app_for(alias) for alias in dict.fromkeys((*aliases, *_apps))]


def _configured() -> Mapping[str, Any]:
    return getattr(settings, "TASKS", None) or {}


def _is_ours(alias: str) -> bool:
    path = _configured().get(alias, {}).get("BACKEND")
    if path is None:
        return False
    try:
        kind = import_string(path)
    except ImportError:
        return False  # whatever was meant; Django tells where it is wanted
    return isinstance(kind, type) and getattr(kind, "is_tidewheel_backend", False) is True


def _options_of(alias: str) -> Mapping[str, Any]:
    if alias not in (known := {"default", *_configured()}):
        raise ImproperlyConfigured(
            f"TASKS has no {alias!r}{suggest(alias, known)}; possible are {', '.join(sorted(known))}"
        )
    if not _is_ours(alias):
        return {}  # another backend's, for tests perhaps; plain tasks need none
    options: Mapping[str, Any] = _configured()[alias].get("OPTIONS", {})
    return options


def _refuse_unknown(alias: str, options: Mapping[str, Any]) -> None:
    known = {*OWN_OPTIONS, *SETTINGS}
    for name in options:
        if name not in known:
            raise ImproperlyConfigured(
                f"OPTIONS of the tasks {alias!r} has {name!r}{suggest(str(name), known)}; possible are "
                f"{', '.join(OWN_OPTIONS)} and the settings of Tidewheel"
            )
    retry = options.get("retry")
    if retry is not None and not isinstance(retry, Retry):
        raise ImproperlyConfigured(
            f"OPTIONS['retry'] of the tasks {alias!r} is {retry!r}; give a tidewheel.Retry"
        )
