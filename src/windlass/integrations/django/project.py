"""The Windlass app of a Django project: one for each backend, on the database that Django uses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.transaction import TransactionManagementError
from django.utils.module_loading import autodiscover_modules, import_string

from windlass.app import Windlass
from windlass.errors import ConfigurationError
from windlass.integrations.django.databases import url_of
from windlass.integrations.django.queues import QueueRegistry
from windlass.model import State
from windlass.names import suggest
from windlass.retry import Retry
from windlass.settings import SETTINGS

if TYPE_CHECKING:
    from windlass.stores.joining import Untold

OWN_OPTIONS: Final = ("database", "modules", "retry", "schema")
"""What OPTIONS may say beside the settings of Windlass."""


class ProjectApp(Windlass):
    """A ``Windlass`` whose store is the database of one of Django's connections."""

    def __init__(self, alias: str, options: Mapping[str, Any]) -> None:
        _refuse_unknown(alias, options)
        self.alias = alias
        self.database: str | None = options.get("database", DEFAULT_DB_ALIAS)
        """which of DATABASES jobs are written with; None: none, Windlass writes by itself"""
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
        self._first_url = self._url_now() or "memory://"  # a database in memory is one of tests
        given = {name: value for name, value in options.items() if name not in {*OWN_OPTIONS, "url"}}
        try:
            super().__init__(self._first_url, **given)
        except ConfigurationError as error:
            raise ImproperlyConfigured(f"OPTIONS of the tasks {alias!r}: {error}") from error
        self.registry = self.queues = QueueRegistry()
        self.declared: dict[str, Any] = {}
        """tasks of Django's interface, by their path"""

    @property
    def connection(self) -> Any:
        """Django's connection of this thread; the app follows it to a database that tests have made."""
        if self.database is None:
            raise ImproperlyConfigured(f"the tasks {self.alias!r} have no database of Django's")
        self.follow()
        return self.plain_connection

    @property
    def plain_connection(self) -> Any:
        """The same as it is."""
        return connections[self.database]

    def follow(self) -> None:
        """Use the database that Django uses now: its test runner makes another one, and goes back."""
        url = self._url_now()
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

    def announce(self, untold: Untold) -> None:
        """In a database of tests nobody waits, and a connection would keep it from being dropped."""
        if not self.is_moved:
            super().announce(untold)

    def bring_up_to_date(self, *, emptied: bool) -> list[str]:
        """The tables as this version wants them, blocking; the names of the steps taken.

        ``emptied``: Django has just emptied its own tables. In a database of tests the jobs go with them.
        """
        self.follow()
        app = Windlass(self.url, migrate=False)  # opened without, so that the steps are seen
        try:
            steps = app.sync.migrate()
            if emptied and self.is_moved and _under_test():
                for state in State:  # all of them, and said so: jobs are not deleted by accident
                    app.sync.delete_all(state=state)
        finally:
            app.sync.close()
        return steps

    @property
    def is_moved(self) -> bool:
        """Whether this is not the database of the settings, but one that tests have made."""
        return self.url != self._first_url

    @property
    def in_memory(self) -> bool:
        """Whether Django's database is, where Windlass has nothing to do."""
        return self._url_now() is None

    def discover(self) -> None:
        """Import what has tasks: ``tasks`` and ``jobs`` of installed apps, and what ``modules`` names."""
        autodiscover_modules("tasks")
        autodiscover_modules("jobs")
        for name in self.modules:
            import_module(name)

    def _url_now(self) -> str | None:
        if self._explicit is not None:
            return self._explicit
        return url_of(connections[self.database], self._schema)


_apps: dict[str, ProjectApp] = {}
_making = threading.Lock()


def app_for(alias: str = "default") -> ProjectApp:
    """The app of the backend with this alias in ``TASKS``, the same one in all threads.

    A project without such a backend has one all the same, on its default database.
    """
    app = _apps.get(alias)
    if app is None:
        with _making:
            app = _apps.get(alias)
            if app is None:
                app = _apps[alias] = ProjectApp(alias, _options_of(alias))
    return app


def run_until_idle(alias: str = "default") -> int:
    """Run the jobs that are due, for tests and scripts; how many attempts that took. Blocks.

    Not inside of a transaction, whose jobs are not there yet: a ``TestCase`` is one from end to end.
    """
    app = app_for(alias)
    app.follow()
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
    thread = threading.Thread(target=work, name="windlass-idle")
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
    return [app_for(alias) for alias in dict.fromkeys((*aliases, *_apps)) or ("default",)]


def _configured() -> Mapping[str, Any]:
    return getattr(settings, "TASKS", None) or {}


def _is_ours(alias: str) -> bool:
    path = _configured().get(alias, {}).get("BACKEND")
    if path is None:
        return False
    from windlass.integrations.django.backend import WindlassBackend

    kind = import_string(path)
    return isinstance(kind, type) and issubclass(kind, WindlassBackend)


def _options_of(alias: str) -> Mapping[str, Any]:
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
                f"{', '.join(OWN_OPTIONS)} and the settings of Windlass"
            )
    retry = options.get("retry")
    if retry is not None and not isinstance(retry, Retry):
        raise ImproperlyConfigured(
            f"OPTIONS['retry'] of the tasks {alias!r} is {retry!r}; give a windlass.Retry"
        )
