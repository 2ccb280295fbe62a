"""Hearing other processes: a connection that listens, is probed, and is made anew when it is lost.

A connection whose other end has vanished looks alive and hears nothing, so it is asked for an answer now and
then. Every time it is lost or found dead, everybody is woken once: something may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidewheel.jitter import jitter
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate
from tidewheel.stores.postgres.notifying import Hint

PROBE_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 5.0
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Before the next try. Short: until it succeeds, jobs are only found by polling."""

_log = logging.getLogger("tidewheel.postgres")
_decoder = msgspec.json.Decoder(Hint)
ANYTHING: Final = Hint("", None, finished=True)
"""Some notifications may have been missed."""


class Listener:
    """The ear of one store. Runs from the first subscription until the store is closed."""

    def __init__(self, database: Database, sender: str, on_hint: Callable[[Hint], None]) -> None:
        self._database = database
        self._sender = sender
        self._on_hint = on_hint
        self._task: asyncio.Task[None] | None = None
        self._channels: set[str] = set()  # to be listened to
        self._news = asyncio.Event()  # the connection was lost, or there is a new channel
        self._listening = asyncio.Event()  # to all channels
        self._deaf = False  # somebody waits for hints that this did not hear

    async def start(self, *channels: str) -> None:
        """Listen from now on. Returns once it does, or when it is clear that this takes longer."""
        if self._database.pooled:
            return  # a pooler passes no notifications on; polling has to do
        if not self._channels.issuperset(channels):
            self._channels.update(channels)
            self._listening.clear()
            self._news.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self._deaf:
            return  # it says so when it hears again; no caller has to wait for that
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._listening.wait()
        except TimeoutError:
            self._deaf = True

    @property
    def deaf(self) -> bool:
        """Whether what others notify is not heard: never behind a pooler, nor without a connection."""
        return self._database.pooled or self._deaf

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen()
            except DRIVER_ERRORS as error:
                if self._listening.is_set():
                    failures = 0
                if not failures:
                    problem = translate(error, self._database.where)
                    _log.warning("not listening, polling until it works again: %s", problem)
            except Exception:
                # A bug, but none that may cost more than the hints: polling goes on underneath.
                _log.exception("listening failed")
            failures += 1
            self._listening.clear()
            self._deaf = True
            nominal = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 16))
            await asyncio.sleep(nominal * jitter(0.5, 1.0))

    async def _listen(self) -> None:
        """Until the connection is lost or found dead, which is raised."""
        connection = await self._database.connect()
        lost = False
        heard: set[str] = set()

        def lose(_: Any) -> None:
            nonlocal lost
            lost = True
            self._news.set()

        try:
            connection.add_termination_listener(lose)
            while not lost:
                self._news.clear()
                for channel in self._channels - heard:
                    await connection.add_listener(channel, self._heard)
                    heard.add(channel)
                if heard >= self._channels and not self._listening.is_set():
                    self._now_listening()
                pause = PROBE_SECONDS * jitter(0.75, 1.25)
                try:
                    # Not wait_for: in Python 3.11 that loses a cancellation that comes with the result.
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                except TimeoutError:
                    await self._probe(connection)
            raise ConnectionError("the listening connection was lost")
        finally:
            connection.terminate()  # not closed in good order: the other end may not be there to answer

    async def _probe(self, connection: Any) -> None:
        if await connection.fetchval("SELECT pg_is_in_recovery()", timeout=PATIENCE_SECONDS):
            raise ConnectionError("the server became a standby, where nobody notifies")

    def _now_listening(self) -> None:
        self._listening.set()
        if self._deaf:
            self._deaf = False
            _log.info("listening to %s", self._database.where)
            self._on_hint(ANYTHING)

    def _heard(self, connection: Any, process: int, channel: str, message: str) -> None:  # noqa: ARG002
        try:
            hint = _decoder.decode(message)
        except msgspec.DecodeError:
            hint = ANYTHING  # somebody else's words, or a newer Tidewheel's: better a look too many
        if hint.sender != self._sender:
            self._on_hint(hint)
