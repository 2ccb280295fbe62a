"""A few connections, lent to one caller at a time."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tidewheel.stores.postgres import connection_pool
from tidewheel.stores.postgres.connection_pool import ConnectionPool


class FakeConnection:
    """What is used of one: whether it is closed, and two ways to close it."""

    def __init__(self) -> None:
        self.closed = False
        self.politely = False

    def is_closed(self) -> bool:
        return self.closed

    def terminate(self) -> None:
        self.closed = True

    async def close(self) -> None:
        self.politely = self.closed = True


async def _connect() -> FakeConnection:
    return FakeConnection()


async def test_the_one_used_last_is_lent_first() -> None:
    """So that the others can rest, and be closed."""
    some = ConnectionPool(_connect, 3)
    one, two = await some.acquire(), await some.acquire()
    some.release(one)
    some.release(two)
    assert await some.acquire() is two
    assert await some.acquire() is one


async def test_there_are_never_more_than_allowed() -> None:
    """Whoever comes when all are lent waits, and the one who waited longest is first."""
    made: list[FakeConnection] = []

    async def connect() -> FakeConnection:
        await asyncio.sleep(0)
        made.append(FakeConnection())
        return made[-1]

    some = ConnectionPool(connect, 2)
    order: list[int] = []

    async def use(number: int) -> None:
        connection = await some.acquire()
        order.append(number)
        await asyncio.sleep(0)
        some.release(connection)

    await asyncio.gather(*(use(number) for number in range(20)))
    assert order == list(range(20))
    assert len(made) == 2


async def test_nobody_overtakes_those_who_wait() -> None:
    """What is given back goes to who waits, not to who happens to come at that moment."""
    some = ConnectionPool(_connect, 1)
    only = await some.acquire()
    waiting = asyncio.create_task(some.acquire())
    await asyncio.sleep(0)
    some.release(only)
    late = asyncio.create_task(some.acquire())
    assert await waiting is only
    assert not late.done()
    some.release(only)
    assert await late is only


async def test_a_broken_one_makes_room_for_another() -> None:
    """Also for somebody who has waited for it."""
    some = ConnectionPool(_connect, 1)
    broken = await some.acquire()
    waiting = asyncio.create_task(some.acquire())
    await asyncio.sleep(0)
    broken.terminate()
    some.release(broken)
    another = await waiting
    assert another is not broken
    some.release(another)
    another.terminate()  # while it rests
    assert await some.acquire() is not another


async def test_who_gives_up_waiting_takes_nothing_along() -> None:
    """Cancelled in the very moment it was handed a connection, it passes it on."""
    some = ConnectionPool(_connect, 1)
    only = await some.acquire()
    gone, patient = asyncio.create_task(some.acquire()), asyncio.create_task(some.acquire())
    await asyncio.sleep(0)
    some.release(only)
    gone.cancel()
    assert await patient is only
    assert gone.cancelled()


async def test_a_connection_that_cannot_be_made_lets_the_next_try() -> None:
    """The error is that of the one who tried."""
    fails = True

    async def connect() -> FakeConnection:
        await asyncio.sleep(0)
        if fails:
            raise OSError("no route")
        return FakeConnection()

    some = ConnectionPool(connect, 1)
    first, second = asyncio.create_task(some.acquire()), asyncio.create_task(some.acquire())
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="no route"):
        await first
    fails = False
    assert isinstance(await second, FakeConnection)


async def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all connections stuck, callers are told instead of kept."""
    monkeypatch.setattr(connection_pool, "ACQUIRE_TIMEOUT_SECONDS", 0.01)
    some = ConnectionPool(_connect, 1)
    only = await some.acquire()
    with pytest.raises(TimeoutError):
        await some.acquire()
    some.release(only)
    assert await some.acquire() is only


async def test_those_not_needed_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy moment does not keep the server's processes for ever."""
    monkeypatch.setattr(connection_pool, "MAX_IDLE_SECONDS", 0.01)
    some = ConnectionPool(_connect, 3)
    lent = [await some.acquire() for _ in range(3)]
    for connection in lent:
        some.release(connection)
    while not all(connection.closed for connection in lent):
        await asyncio.sleep(0.005)
    assert await some.acquire() not in lent


async def test_one_that_is_silent_casts_doubt_on_those_not_heard_of_since() -> None:
    """A server that vanished is found out once, and not once for each connection that rests."""
    some = ConnectionPool(_connect, 3)
    early, late, silent = [await some.acquire() for _ in range(3)]
    some.release(early)
    await asyncio.sleep(0.001)  # the loop's clock moves on
    lent_at = asyncio.get_running_loop().time()
    await asyncio.sleep(0.001)
    some.release(late)
    silent.terminate()
    some.close_resting_since(lent_at)
    some.release(silent)
    assert (early.closed, late.closed) == (True, False)
    assert await some.acquire() is late
    # There is room for both.
    assert {await some.acquire(), await some.acquire()}.isdisjoint({early, late, silent})


async def test_closing_waits_for_what_is_lent_and_refuses_the_rest() -> None:
    """Resting ones say goodbye; whoever waits for one is told."""
    some = ConnectionPool(_connect, 2)
    lent, resting = await some.acquire(), await some.acquire()
    some.release(resting)
    closing = asyncio.create_task(some.close(10))
    await asyncio.sleep(0)
    with pytest.raises(asyncpg.InterfaceError):
        await some.acquire()
    assert not closing.done()
    some.release(lent)
    await closing
    assert lent.closed
    assert resting.politely


async def test_closing_does_not_wait_for_ever() -> None:
    """What is still lent then is cut off."""
    some = ConnectionPool(_connect, 1)
    lent = await some.acquire()
    await some.close(0.01)
    assert lent.closed
