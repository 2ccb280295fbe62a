"""Wake workers in other processes with NOTIFY and LISTEN.

NOTIFY inside a transaction holds a database-wide lock until the commit, which would serialize all enqueues.
``Notifier`` therefore sends hints afterwards and limits their rate; polling finds a job whose hint is lost.
``Listener`` probes its connection every 10 seconds, because a dead peer looks alive. After each loss it wakes
all subscribers once, because hints may have been missed. ``CommitWatcher`` sends the hints of jobs enqueued
in an application's transaction, if that may commit after the transaction that would have sent them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tidewheel.core.jitter import jitter
from tidewheel.errors import TidewheelError
from tidewheel.stores.external_transaction import UncommittedEnqueue
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate_error
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.wakeups import LimitWakeups

CLOSE_SECONDS: Final = 1.0
FIRST_NOTIFY_SECONDS: Final = 0.050
"""Max seconds that an enqueue waits until its hint is sent. Its job is written, so polling finds it."""
NOTIFY_INTERVAL_SECONDS: Final = 0.010
"""Seconds between two notifications of a busy process."""
MAX_AT_ONCE: Final = 5
"""Hints that enqueues may send without a pause, because a caller may block the event loop after each of them.

One more is allowed after each ``NOTIFY_INTERVAL_SECONDS``, so a busy producer sends as many as if there were
one.
"""
MAX_TOPICS_PER_HINT: Final = 20
MAX_HINT_BYTES: Final = 7999
"""More topics than this, or names too long for a notification, are not named: it may be any."""

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")
_log = logging.getLogger("tidewheel.postgres")


class ReadyHint(msgspec.Struct, frozen=True, array_like=True):
    """What travels: who says it, where jobs became ready, whether jobs finished.

    Places are topics, each with the lowest number of its jobs or ``ANY_NUMBER``; None: any topic.
    """

    sender: str
    lowest_numbers: dict[str, int] | None
    finished: bool


class Channels:
    """Where hints travel. Two, because few wait for results, and every worker finishes jobs all the time."""

    def __init__(self, schema: str) -> None:  # an application's own, as its schema is
        self.ready = schema
        self.finished = f"{schema}.finished"


class Allowance:
    """How many hints may be sent without a pause: a token bucket that is full at first."""

    def __init__(self) -> None:
        self._left = float(MAX_AT_ONCE)
        self._counted_at = 0.0

    def take(self, now: float) -> bool:
        """Use one up if there is one."""
        if allowed := self.due_in(now) <= 0:
            self._left -= 1
        return allowed

    def due_in(self, now: float) -> float:
        """Return the seconds until one may be sent."""
        self._left = min(MAX_AT_ONCE, self._left + (now - self._counted_at) / NOTIFY_INTERVAL_SECONDS)
        self._counted_at = now
        return (1 - self._left) * NOTIFY_INTERVAL_SECONDS


class Notifier:
    """Sends hints of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.sender = secrets.token_hex(6)
        self.channels = Channels(database.location.schema)
        self._places: dict[str, int] = {}
        self._anywhere = False  # some topic or other, it is not known which
        self._finished = False
        self._allowance = Allowance()
        self._following: asyncio.Task[None] | None = None  # sends what is coalesced, with pauses
        self._sending: set[asyncio.Task[None]] = set()  # hints on their way
        self._limit_wakeups = LimitWakeups()
        self._limit_timer: asyncio.TimerHandle | None = None  # when others learn of it

    def change_freed_slots(self, changes: Mapping[str, int]) -> None:
        """So many places of limited topics came free, or were taken (less than zero)."""
        loop = asyncio.get_running_loop()
        self._limit_wakeups.add_freed_slots(changes, loop.time())
        if self._limit_timer is None and (seconds := self._limit_wakeups.due_in(loop.time())) is not None:
            self._limit_timer = loop.call_later(seconds, self._notify_freed_slots)

    def _notify_freed_slots(self) -> None:
        self._limit_timer = None
        self.notify_ready(
            dict.fromkeys(self._limit_wakeups.pop_due_topics(asyncio.get_running_loop().time()), ANY_NUMBER)
        )
        self.change_freed_slots({})

    def notify_ready(self, places: Mapping[str, int]) -> None:
        self._add(places)
        if places:
            self._follow()

    def _add(self, places: Mapping[str, int]) -> None:
        for topic, number in places.items():
            self._places[topic] = min(number, self._places.get(topic, number))

    async def notify_ready_and_wait(self, places: Mapping[str, int]) -> None:
        """Send a hint before the caller goes on, because it may block the event loop.

        Beyond ``MAX_AT_ONCE`` hints it is coalesced with others and sent after a pause.
        """
        self._add(places)
        if not self._allowance.take(asyncio.get_running_loop().time()):
            self._follow()
            return
        sending = asyncio.create_task(self._send())
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        if not (await asyncio.wait((sending,), timeout=FIRST_NOTIFY_SECONDS))[0]:
            _log.debug("a notification takes longer than %g s", FIRST_NOTIFY_SECONDS)

    def notify_ready_anywhere(self) -> None:
        self._anywhere = True
        self._follow()

    def notify_finished(self) -> None:
        self._finished = True
        self._follow()

    async def close(self) -> None:
        """Send what is to be sent, if that is quick: it is only a hint."""
        if self._limit_timer is not None:
            self._limit_timer.cancel()
            self.notify_ready(dict.fromkeys(self._limit_wakeups.pop_all_topics(), ANY_NUMBER))
        if sending := {*self._sending, *filter(None, (self._following,))}:
            for late in (await asyncio.wait(sending, timeout=CLOSE_SECONDS))[1]:
                late.cancel()

    def _follow(self) -> None:
        if self._following is None:
            self._following = asyncio.create_task(self._send_with_pauses())

    async def _send_with_pauses(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            while self._places or self._anywhere or self._finished:
                if not self._allowance.take(now()):
                    await asyncio.sleep(self._allowance.due_in(now()))
                    continue
                await self._send()
                await asyncio.sleep(NOTIFY_INTERVAL_SECONDS)
        finally:
            self._following = None

    async def _send(self) -> None:
        messages = self._pop_messages()
        if not messages:
            return
        try:
            await self._database.fetch(_sql["notify"], list(messages), list(messages.values()))
        except TidewheelError as error:
            # What it was about is safely written; whoever polls will find it.
            _log.debug("a notification was not sent: %s", error)

    def _pop_messages(self) -> dict[str, str]:
        """What is to be said now, by channel."""
        messages = {}
        if self._places or self._anywhere:
            # Everybody may listen to a channel, and one tenant may not learn of another's topics.
            named = (
                not self._anywhere
                and not self._database.has_row_level_security
                and len(self._places) <= MAX_TOPICS_PER_HINT
            )
            message = _encode(ReadyHint(self.sender, self._places if named else None, finished=False))
            if len(message.encode()) > MAX_HINT_BYTES:
                message = _encode(ReadyHint(self.sender, None, finished=False))
            messages[self.channels.ready] = message
        if self._finished:
            messages[self.channels.finished] = _encode(ReadyHint(self.sender, {}, finished=True))
        self._places.clear()
        self._anywhere = self._finished = False
        return messages


def _encode(hint: ReadyHint) -> str:
    return msgspec.json.encode(hint).decode()


PROBE_SECONDS: Final = 10.0
START_SECONDS: Final = 5.0
MIN_RECONNECT_SECONDS: Final = 0.1
MAX_RECONNECT_SECONDS: Final = 5.0
"""Before the next try. Short: until it succeeds, jobs are only found by polling."""

_decoder = msgspec.json.Decoder(ReadyHint)
UNKNOWN_HINT: Final = ReadyHint("", None, finished=True)
"""Some notifications may have been missed."""


class Listener:
    """The ear of one store. Runs from the first subscription until the store is closed."""

    def __init__(self, database: Database, sender: str, on_hint: Callable[[ReadyHint], None]) -> None:
        self._database = database
        self._sender = sender
        self._on_hint = on_hint
        self._task: asyncio.Task[None] | None = None
        self._channels: set[str] = set()  # to be listened to
        self._state_changed = asyncio.Event()  # the connection was lost, or there is a new channel
        self._listening = asyncio.Event()  # to all channels
        self._notifications_down = False  # somebody waits for hints that this did not hear

    async def start(self, *channels: str) -> None:
        """Listen from now on. Returns once it does, or when it is clear that this takes longer."""
        if self._database.pooled:
            return  # a pooler passes no notifications on; polling has to do
        if not self._channels.issuperset(channels):
            self._channels.update(channels)
            self._listening.clear()
            self._state_changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self._notifications_down:
            return  # it says so when it hears again; no caller has to wait for that
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._listening.wait()
        except TimeoutError:
            self._notifications_down = True

    @property
    def notifications_down(self) -> bool:
        """Whether what others notify is not heard: never behind a pooler, nor without a connection."""
        return self._database.pooled or self._notifications_down

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
                    problem = translate_error(error, self._database.description)
                    _log.warning("not listening, polling until it works again: %s", problem)
            except Exception:
                # A bug, but none that may cost more than the hints: polling goes on underneath.
                _log.exception("listening failed")
            failures += 1
            self._listening.clear()
            self._notifications_down = True
            nominal = min(MAX_RECONNECT_SECONDS, MIN_RECONNECT_SECONDS * 2.0 ** min(failures - 1, 16))
            await asyncio.sleep(nominal * jitter(0.5, 1.0))

    async def _listen(self) -> None:
        """Until the connection is lost or found dead, which is raised."""
        connection = await self._database.connect()
        lost = False
        heard: set[str] = set()

        def lose(_: Any) -> None:
            nonlocal lost
            lost = True
            self._state_changed.set()

        try:
            connection.add_termination_listener(lose)
            while not lost:
                self._state_changed.clear()
                for channel in self._channels - heard:
                    await connection.add_listener(channel, self._handle_notification)
                    heard.add(channel)
                if heard >= self._channels and not self._listening.is_set():
                    self._now_listening()
                pause = PROBE_SECONDS * jitter(0.75, 1.25)
                try:
                    # Not wait_for: in Python 3.11 that loses a cancellation that comes with the result.
                    async with asyncio.timeout(pause):
                        await self._state_changed.wait()
                except TimeoutError:
                    await self._probe(connection)
            raise ConnectionError("the listening connection was lost")
        finally:
            connection.terminate()  # not closed in good order: the other end may not be there to answer

    async def _probe(self, connection: Any) -> None:
        if await connection.fetchval("SELECT pg_is_in_recovery()", timeout=START_SECONDS):
            raise ConnectionError("the server became a standby, where nobody notifies")

    def _now_listening(self) -> None:
        self._listening.set()
        if self._notifications_down:
            self._notifications_down = False
            _log.info("listening to %s", self._database.description)
            self._on_hint(UNKNOWN_HINT)

    def _handle_notification(self, connection: Any, process: int, channel: str, message: str) -> None:  # noqa: ARG002
        try:
            hint = _decoder.decode(message)
        except msgspec.DecodeError:
            hint = UNKNOWN_HINT  # somebody else's words, or a newer Tidewheel's: better a look too many
        if hint.sender != self._sender:
            self._on_hint(hint)


COMMIT_POLL_SECONDS: Final = 0.2
"""Between two looks. With 0.05 s, eight who commit all the time lost a sixth of their rate."""
MAX_WATCH_SECONDS: Final = 600.0
"""A transaction that is older is left to those who poll."""
MAX_WATCHED_TRANSACTIONS: Final = 10_000
"""Transactions that are waited for; of more, the oldest are announced at once, which does no harm."""


@dataclass(slots=True)
class _OpenTransaction:
    since: float
    lowest_numbers: dict[str, int]


class CommitWatcher:
    """Waits for the ends of transactions, for one store."""

    def __init__(self, database: Database, ready: Callable[[Mapping[str, int]], None]) -> None:
        self._database = database
        self._ready = ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._new: deque[UncommittedEnqueue] = deque()  # from any thread
        self._open_transactions: dict[str, _OpenTransaction] = {}
        self._poll_scheduled = False  # somebody will look at what is new
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """On the event loop of the store."""
        self._loop = asyncio.get_running_loop()

    def watch(self, uncommitted: UncommittedEnqueue) -> None:
        """Tell of its places once the transaction has committed. From any thread, and cheap while others are
        waited for: nobody is woken up for it.
        """
        self._new.append(uncommitted)
        if not self._poll_scheduled and self._loop is not None:
            self._poll_scheduled = True
            self._loop.call_soon_threadsafe(self._start)

    def close(self) -> None:
        """Nobody will look any more: say it now, it is only a hint."""
        self._loop = None
        if self._task is not None:
            self._task.cancel()
        self._collect_new()
        for one in self._open_transactions.values():
            self._ready(one.lowest_numbers)
        self._open_transactions.clear()

    def _start(self) -> None:
        if self._task is None and self._loop is not None:
            self._task = self._loop.create_task(self._poll())

    async def _poll(self) -> None:
        try:
            while self._collect_new():
                await asyncio.sleep(COMMIT_POLL_SECONDS)
                self._handle_states(
                    await self._database.fetch(_sql["transaction_states"], list(self._open_transactions))
                )
        except TidewheelError as error:
            self._open_transactions.clear()
            # Whoever polls finds the jobs.
            _log.debug("the ends of some transactions were not seen: %s", error)
        finally:
            self._task = None
            self._poll_scheduled = False
            if self._new:  # came in just now, while it still looked as if somebody would see it
                self._poll_scheduled = True
                self._start()

    def _collect_new(self) -> bool:
        """What is new; whether there is anything to wait for."""
        while self._new:
            untold = self._new.popleft()
            known = self._open_transactions.get(untold.transaction)
            if known is None:
                if len(self._open_transactions) >= MAX_WATCHED_TRANSACTIONS:
                    self._ready(
                        self._open_transactions.pop(next(iter(self._open_transactions))).lowest_numbers
                    )
                known = self._open_transactions[untold.transaction] = _OpenTransaction(time.monotonic(), {})
            for topic, number in untold.lowest_numbers.items():
                known.lowest_numbers[topic] = min(number, known.lowest_numbers.get(topic, number))
        return bool(self._open_transactions)

    def _handle_states(self, ends: Sequence[Record]) -> None:
        for transaction, state in ends:
            if state == "committed":
                self._ready(self._open_transactions[transaction].lowest_numbers)
            age = time.monotonic() - self._open_transactions[transaction].since
            if state != "in progress" or age > MAX_WATCH_SECONDS:
                del self._open_transactions[transaction]


ANY_NUMBER: Final = 0
"""In place of a number: where the jobs are is not known."""
