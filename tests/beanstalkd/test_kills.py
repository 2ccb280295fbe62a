"""A server that is killed has told nobody anything that is not so."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from tests.beanstalkd.conversation_player import Connection
from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.servers.tidewheel_beanstalkd import Door

CLIENTS = 10
WORKERS = 3
TTR = 2
"""Seconds after which jobs that were reserved when the server was killed are anybody's again."""


@dataclass(slots=True)
class Told:
    """What the server said before it was killed."""

    inserted: dict[bytes, bytes] = field(default_factory=dict)  # id: body
    deleted: set[bytes] = field(default_factory=set)
    reserved: set[bytes] = field(default_factory=set)
    asked_to_delete: set[bytes] = field(default_factory=set)
    asked_to_put: set[bytes] = field(default_factory=set)


async def put_until_killed(door: Door, client: int, puts: int, told: Told, enough: asyncio.Event) -> None:
    connection = await Connection.open(door.address)
    for number in range(puts):
        body = b"%d of client %d" % (number, client)
        told.asked_to_put.add(body)
        await connection.say(b"put 0 0 %d %d\r\n%s\r\n" % (TTR, len(body), body))
        line, _ = await connection.hear()
        if not line:
            break
        word, job = line.split()
        assert word == b"INSERTED", line
        assert job not in told.inserted
        told.inserted[job] = body
        if len(told.inserted) >= puts * CLIENTS // 2:
            enough.set()
    await connection.close()


async def work_until_killed(door: Door, told: Told, chance: random.Random) -> None:
    """Reserves, and deletes some of it: the rest is held, or given up with the connection."""
    connection = await Connection.open(door.address)
    while True:
        await connection.say(b"reserve\r\n")
        line, _ = await connection.hear()
        if not line:
            break
        if line == b"DEADLINE_SOON":
            await connection.close()
            connection = await Connection.open(door.address)
            continue
        word, job, _ = line.split()
        assert word == b"RESERVED", line
        assert job not in told.deleted
        told.reserved.add(job)
        if chance.random() < 0.5:
            told.asked_to_delete.add(job)
            await connection.say(b"delete %s\r\n" % job)
            line, _ = await connection.hear()
            if not line:
                break
            if line == b"DELETED":
                told.deleted.add(job)
    await connection.close()


async def take(door: Door, wanted: set[bytes], taken: dict[bytes, bytes]) -> None:
    """Reserve and delete until all that is wanted is there, or nothing has come for long."""
    connection = await Connection.open(door.address)
    while not wanted <= taken.keys():
        await connection.say(b"reserve-with-timeout %d\r\n" % (TTR + 2))
        line, body = await connection.hear()
        if line == b"TIMED_OUT":
            break
        _, job, _ = line.split()
        assert job not in taken
        assert body is not None
        taken[job] = body
        await connection.say(b"delete %s\r\n" % job)
        assert await connection.hear() == (b"DELETED", None)
    await connection.close()


async def is_killed_in_the_middle(url: str | None, puts: int) -> None:
    told, enough, chance = Told(), asyncio.Event(), random.Random(10)
    door = Door(url=url)
    try:
        door.start()
        talking = [put_until_killed(door, client, puts, told, enough) for client in range(CLIENTS)]
        talking += [work_until_killed(door, told, chance) for _ in range(WORKERS)]
        tasks = [asyncio.ensure_future(each) for each in talking]
        halfway = asyncio.ensure_future(enough.wait())
        await asyncio.wait([halfway, *tasks], return_when=asyncio.FIRST_COMPLETED)
        halfway.cancel()
        await asyncio.to_thread(door.kill)
        await asyncio.gather(*tasks)
        assert len(told.inserted) < puts * CLIENTS, "it was killed too late"
        assert told.deleted
        assert told.reserved - told.asked_to_delete

        await asyncio.to_thread(door.start)
        wanted = {job for job in told.inserted if job not in told.asked_to_delete}
        taken: dict[bytes, bytes] = {}
        async with asyncio.timeout(PATIENCE + puts / 50):
            await asyncio.gather(*(take(door, wanted, taken) for _ in range(CLIENTS)))
    finally:
        door.close()
    assert not wanted - taken.keys(), f"{len(wanted - taken.keys())} jobs are lost"
    assert not told.deleted & taken.keys(), "jobs came back that were deleted"
    assert {job: body for job, body in taken.items() if job in told.inserted}.items() <= told.inserted.items()
    unheard = taken.keys() - told.inserted.keys()
    assert len(unheard) <= CLIENTS, "each client has one job at most of which it was not told"
    assert {taken[job] for job in unheard} <= told.asked_to_put


async def test_what_was_inserted_is_there_after_a_kill_on_sqlite() -> None:
    """Every INSERTED job is there after kill -9, reserved ones too, and none that was DELETED."""
    await is_killed_in_the_middle(None, puts=150)


async def test_what_was_inserted_is_there_after_a_kill_on_postgres() -> None:
    """The same on PostgreSQL."""
    await is_killed_in_the_middle(empty_url(), puts=100)


@pytest.mark.long
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_ten_thousand_puts_and_a_kill(store: str) -> None:
    """The same with 10,000 puts by 10 clients."""
    await is_killed_in_the_middle(None if store == "sqlite" else empty_url(), puts=1000)
