"""A worker inside another program, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - its own exit handler has to be registered before ours
import logging
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from tidewheel.errors import WrongState
from tidewheel.tasks.options import WorkerOptions
from tidewheel.worker.supervisor import WorkerSupervisor

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

LOOP_RESPONSE_SECONDS: Final = 10.0
"""How long a worker's event loop may be silent, once the grace period is over, before it is given up."""

logger = logging.getLogger(__name__)


class WorkerThread:
    """Starts with ``with`` (or ``async with``) and stops at its end, letting running jobs finish.

    Signals stay the program's own. Made by :meth:`Tidewheel.worker_thread`.
    """

    def __init__(
        self,
        app: Tidewheel,
        options: WorkerOptions,
        startup_check: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """``startup_check`` runs beside the worker, and is cancelled when that ends."""
        self._app = app
        self._startup_check = startup_check
        self._options: WorkerOptions = {**options, "handle_signals": False}
        self._thread: threading.Thread | None = None
        self._workers: WorkerSupervisor | None = None
        self._ready = threading.Event()
        self._no_grace = threading.Event()  # it has ended, or somebody is in a hurry
        self._error: BaseException | None = None

    def start(self) -> Self:
        """Returns once the worker claims jobs; raises what kept it from starting."""
        if self._thread is not None:
            raise WrongState("this worker thread has been started; make a new one with app.worker_thread()")
        # Daemon: a program that ends without stopping it must be able to end; leases take care of the rest.
        self._thread = threading.Thread(target=self._run, name="tidewheel-worker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def stop(self, *, now: bool = False) -> None:
        """Stop claiming, wait for running jobs (``now``: give them back), then end. Blocks.

        Raises what the worker died of, if it did. One whose event loop is blocked by a handler cannot end:
        it is left behind ``LOOP_RESPONSE_SECONDS`` after the grace period.
        """
        if self._thread is None:
            return
        self._request_stop(now=now)
        if self._thread.is_alive():  # not in a child that was forked: nothing there tells the event
            self._no_grace.wait(self._app.settings.shutdown_grace)
        if not self._wait_until_ended(self._thread):
            logger.critical(
                "a handler blocks the event loop of the worker in this program; it is left behind, with its "
                "thread; its jobs come back when this process and their leases have ended"
            )
            return
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _wait_until_ended(self, thread: threading.Thread) -> bool:
        """Waits for it as long as its event loop answers; a slow store is no reason to give up."""
        while thread.is_alive():
            answered = threading.Event()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:  # it is closed, and the thread about to end
                answered.set()
            thread.join(LOOP_RESPONSE_SECONDS)
            if thread.is_alive() and not answered.is_set():
                return False
        return True

    def stop_now(self) -> None:
        """Give running jobs back at once, for whoever else waits in ``stop``. Does not block."""
        self._request_stop(now=True)

    def _request_stop(self, *, now: bool) -> None:
        if self._workers is not None and self._thread is not None and self._thread.is_alive():
            self._workers.stop(now=now)
        if now:
            self._no_grace.set()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
            if self._ready.is_set():  # else ``start`` raises it; ``stop`` may be months away
                logger.critical("the worker in this program has died, and runs no more jobs", exc_info=True)
        finally:
            self._ready.set()
            self._no_grace.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with self._app:
            self._workers = WorkerSupervisor(
                lambda: self._app.worker(**self._options), beside=self._startup_check
            )
            self._ready.set()
            await self._workers.run()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


def stop_at_exit(worker: WorkerThread) -> None:
    """Stop a worker that was started when the program ends, letting running jobs finish."""

    def stop() -> None:
        try:
            worker.stop()
        except Exception:  # nobody is left to catch this, and others have to end, too
            logger.exception("the worker in this program had died")

    # As in ``blocking``: while there are still threads for its handlers, and before that closes the store.
    getattr(threading, "_register_atexit", atexit.register)(stop)
