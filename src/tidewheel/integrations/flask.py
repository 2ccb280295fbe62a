"""Flask: an app that is an extension, whose handlers run in an application context.

    queue = FlaskTidewheel("sqlite:///shop.db")

    def create_app() -> Flask:
        app = Flask(__name__)
        queue.init_app(app)
        return app

Calls block, as everything in Flask does: ``send_receipt.sync.enqueue(order_id=7)``.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, cast

import click
from flask import Flask, current_app
from flask.cli import NoAppException, ScriptInfo
from werkzeug.local import LocalProxy

from tidewheel.app import Tidewheel
from tidewheel.cli.command_group import run_for_app
from tidewheel.client.connections import LoopConnections
from tidewheel.core.clock import Clock
from tidewheel.core.names import shorten
from tidewheel.core.security_context import acting_as
from tidewheel.errors import ConfigurationError
from tidewheel.settings import SettingOptions
from tidewheel.tasks.callbacks import CALLBACK_OPTIONS
from tidewheel.tasks.options import WorkerOptions
from tidewheel.tasks.signature import is_async
from tidewheel.worker.worker_thread import WorkerThread, stop_at_exit

_EXTENSION: Final = "tidewheel"
_REFERENCE: Final = f"{__name__}:queue"
"""The app that commands load, in this process and in those they start; see ``__getattr__``."""


class FlaskTidewheel(Tidewheel):
    """A :class:`Tidewheel` for Flask. Made at the top of a module, and told of the application later.

    ``init_app`` reads from the application's configuration ``TIDEWHEEL_URL``, the database to use instead of
    the one given here, and ``TIDEWHEEL_WORKER``: true, or options, for a worker in the web process.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        flask: Flask | None = None,
        clock: Clock | None = None,
        **settings: Unpack[SettingOptions],
    ) -> None:
        super().__init__(url, clock=clock, **settings)
        self._given_url = self.settings.url
        self._flask: Flask | None = None
        self._visits = 0  # to other stores, see ``on_store``
        # By process, because threads do not survive a fork, and by what the store was opened with.
        self._worker_threads: dict[tuple[int, LoopConnections], WorkerThread] = {}
        if flask is not None:
            self.init_app(flask)

    def init_app(self, app: Flask) -> None:
        """Make this the queue of an application. Of several applications, handlers get the last one, and its
        database is in use. While ``on_store`` or ``in_memory`` is in force, that stays in use until its end.
        """
        url = app.config.get("TIDEWHEEL_URL")
        options = _worker_options(app.config.setdefault("TIDEWHEEL_WORKER", False))
        if url is None:
            url = self._given_url
        self._connections_to(url, self.clock)  # refused here, if it is; not at the end of a visit
        self.settings = replace(self.settings, url=url)
        self._flask = app
        app.extensions[_EXTENSION] = self
        app.cli.add_command(_commands)
        if not self._visits:
            self._use_configured_url()
        if options is not None:
            # With the first request: only then it is certain that this process is the one that serves. The
            # parent of a pre-forking server and that of Werkzeug's reloader import the application, too.
            app.before_request(lambda: self._ensure_worker(options))

    @contextmanager
    def on_store(self, url: str, *, clock: Clock | None = None) -> Iterator[Self]:
        """As ``Tidewheel.on_store``; a worker that a request has started meanwhile ends with it."""
        self._visits += 1
        try:
            with super().on_store(url, clock=clock):
                try:
                    yield self
                finally:
                    self._stop_worker()
        finally:
            self._visits -= 1
            if not self._visits:
                self._use_configured_url()

    def _use_configured_url(self) -> None:
        """To the database of the application that came last."""
        if self.url != self.settings.url:
            self._stop_worker()
            self.portal.close()
            self.lane.abandon()
            self._switch_store(self.settings.url, self.clock)

    def _ensure_worker(self, options: WorkerOptions) -> None:
        place = (os.getpid(), self._connections)
        if place in self._worker_threads:
            return
        with acting_as(None):  # a worker serves all tenants, whoever asked first
            worker = self.worker_thread(**options)
        if self._worker_threads.setdefault(place, worker) is not worker:
            return  # another request was first
        try:
            worker.start()
        except BaseException:
            del self._worker_threads[place]
            raise
        stop_at_exit(worker)

    def _stop_worker(self) -> None:
        worker = self._worker_threads.pop((os.getpid(), self._connections), None)
        if worker is not None:
            worker.stop()

    if not TYPE_CHECKING:  # for the type checker it is the method of Tidewheel, with all its overloads

        def task(self, fn=None, /, **options):
            """Register a function as a task, to be run in an application context. See ``Tidewheel.task``."""
            for name in CALLBACK_OPTIONS:
                if callable(options.get(name)):
                    options[name] = self._in_context(options[name])
            register = super().task(**options)
            if fn is None:
                return lambda function: register(self._in_context(function))
            return register(self._in_context(fn))

    def _in_context(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, in a context of its own: extensions keep what belongs to one job there."""
        if isinstance(function, functools.partial):
            return functools.partial(self._in_context(function.func), *function.args, **function.keywords)
        if not inspect.isroutine(function):
            raise ConfigurationError(f"{shorten(function)} is no function; a task of FlaskTidewheel is one")
        if is_async(function, function.__name__):

            @functools.wraps(function)
            async def running(*args: Any, **kwargs: Any) -> Any:
                with self._application().app_context():
                    return await function(*args, **kwargs)

            return running

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self._application().app_context():
                return function(*args, **kwargs)

        return called

    def _application(self) -> Flask:
        if self._flask is None:  # a process for one handler, or a worker that was not started by Flask
            try:
                _named_by_environment()
            except NoAppException as error:
                raise ConfigurationError(
                    f"handlers run in the context of a Flask application, and there is none: {error.message} "
                    "Call init_app(app), or name the application in FLASK_APP"
                ) from None
        if self._flask is None:
            raise ConfigurationError(
                "the application that FLASK_APP names does not use this queue; call init_app(app) in it"
            )
        return self._flask


def _worker_options(given: object) -> WorkerOptions | None:
    """What TIDEWHEEL_WORKER says; a mistake would otherwise fail every request."""
    if not isinstance(given, bool | Mapping):
        raise ConfigurationError(
            f"TIDEWHEEL_WORKER is {shorten(given)}; give True, False, or the options of a worker"
        )
    if isinstance(given, bool):
        return {} if given else None
    known = WorkerOptions.__optional_keys__
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"TIDEWHEEL_WORKER has the option {shorten(name)}; those of a worker are "
                + ", ".join(sorted(known))
            )
    return cast("WorkerOptions", dict(given))


def _current() -> FlaskTidewheel:
    queue = current_app.extensions.get(_EXTENSION)
    if not isinstance(queue, FlaskTidewheel):
        raise ConfigurationError(
            f"the application {current_app.name!r} has no queue; call init_app(app) of a FlaskTidewheel"
        )
    return queue


current_tidewheel: FlaskTidewheel = LocalProxy(_current)  # type: ignore[assignment]  # it stands for one
"""The queue of Flask's ``current_app``."""


@click.command(
    "tidewheel",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def _commands(ctx: click.Context, /, arguments: tuple[str, ...]) -> None:
    """Run workers, and look after jobs: Tidewheel's commands, for this application's queue."""
    info = ctx.ensure_object(ScriptInfo)
    app = info.load_app()
    if info.app_import_path:
        os.environ["FLASK_APP"] = info.app_import_path  # for the processes that --processes starts
    with app.app_context():
        run_for_app(_REFERENCE, arguments, prog_name=ctx.command_path)


def __getattr__(name: str) -> Any:
    """``queue``: that of the application Flask's command line is about, or that FLASK_APP names."""
    if name != "queue":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if current_app:
        return _current()
    with _named_by_environment().app_context():
        return _current()


def _named_by_environment() -> Flask:
    """The application that Flask's own command line would find here, without being told of one."""
    return ScriptInfo(app_import_path=os.environ.get("FLASK_APP")).load_app()
