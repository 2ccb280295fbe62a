"""Clients that say anything: ``python -m tests.beanstalkd.fuzzer --seconds 60``. Two servers of one store.

Half of them speak well and check every reply; the others send bytes of any kind, cut them anywhere, and leave
in the middle of anything. No server may stumble, and no job may go that nobody deleted.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.beanstalkd.conversation_player import Connection
from tests.servers.postgres import PostgresServer
from tests.servers.tidewheel_beanstalkd import Door

TUBES = (b"default", b"one", b"two", b"a-b+c/d;e.f$g_h(i)", b"x" * 200)
MANNERED, RUDE = 8, 8
MOST_IN_A_ROW = 40
MOST_JOBS = 4000
LONGEST_BODY = 3000
STRANGE = (
    *(b"\r\n", b"\n", b"\r", b"\x00", b" ", b"-1", b"99999999999999999999", b"put ", b"reserve", b"x" * 230),
    *(
        b"stats-job ",
        b"use ",
        b"\xff\xfe",
        b"GET / HTTP/1.1\r\n\r\n",
        b"kick ",
        b"pause-tube ",
        b"touch 1\r\n",
    ),
)
# What may follow a command that is well-formed. OUT_OF_MEMORY and INTERNAL_ERROR are not among it.
REPLIES = {
    b"use": b"USING",
    b"watch": b"WATCHING",
    b"ignore": b"WATCHING|NOT_IGNORED",
    b"reserve-with-timeout": b"RESERVED|TIMED_OUT|DEADLINE_SOON",
    b"reserve-job": b"RESERVED|NOT_FOUND",
    b"release": b"RELEASED|NOT_FOUND",
    b"bury": b"BURIED|NOT_FOUND",
    b"touch": b"TOUCHED|NOT_FOUND",
    b"delete": b"DELETED|NOT_FOUND",
    b"kick": b"KICKED",
    b"kick-job": b"KICKED|NOT_FOUND",
    b"peek": b"FOUND|NOT_FOUND",
    b"peek-ready": b"FOUND|NOT_FOUND",
    b"peek-delayed": b"FOUND|NOT_FOUND",
    b"peek-buried": b"FOUND|NOT_FOUND",
    b"stats": b"OK",
    b"stats-job": b"OK|NOT_FOUND",
    b"stats-tube": b"OK|NOT_FOUND",
    b"list-tubes": b"OK",
    b"list-tube-used": b"USING",
    b"list-tubes-watched": b"OK",
    b"put": b"INSERTED",
}


class Stumbled(AssertionError):
    """A server did what it must not."""


@dataclass(slots=True)
class World:
    """What is known of the jobs, and how much was said."""

    doors: list[Door]
    random: random.Random
    until: float
    connections_left: int
    kept: dict[bytes, bytes] = field(default_factory=dict)  # id: body, of jobs that nobody deletes
    doomed: list[bytes] = field(default_factory=list)
    said: int = 0
    heard: int = 0

    async def connect(self, *, mannered: bool) -> Connection | None:
        """One more client of one of the servers; None when it is enough. Those with manners are counted."""
        if self.connections_left <= 0 or time.monotonic() > self.until:
            return None
        self.connections_left -= mannered
        return await Connection.open(self.random.choice(self.doors).address)

    def some_id(self) -> bytes:
        known = list(self.kept)[-200:] + self.doomed[-200:]
        return self.random.choice(known) if known and self.random.random() < 0.9 else b"4711"


def command(world: World) -> tuple[bytes, bytes, bytes | None]:
    """One that is well-formed: its name, its bytes, and the body when it is a put."""
    pick = world.random
    number = pick.choice([b"0", b"1", b"5", b"1024", b"4294967295"])
    tube = pick.choice(TUBES)
    choices: dict[bytes, Callable[[], bytes]] = {
        b"use": lambda: tube,
        b"watch": lambda: tube,
        b"ignore": lambda: tube,
        b"reserve-with-timeout": lambda: b"0",
        b"reserve-job": world.some_id,
        b"release": lambda: b"%s %s %d" % (world.some_id(), number, pick.choice([0, 0, 1, 100])),
        b"bury": lambda: b"%s %s" % (world.some_id(), number),
        b"touch": world.some_id,
        b"kick": lambda: b"%d" % pick.choice([0, 1, 10, 1000]),
        b"kick-job": world.some_id,
        b"peek": world.some_id,
        b"stats-job": world.some_id,
        b"stats-tube": lambda: tube,
    }
    bare = (b"peek-ready", b"peek-delayed", b"peek-buried", b"stats", b"list-tubes", b"list-tube-used")
    if pick.random() < 0.35 and len(world.kept) < MOST_JOBS:
        body = pick.randbytes(int(pick.paretovariate(0.5)) % LONGEST_BODY)
        delay, ttr = pick.choice([0, 0, 0, 1, 100]), pick.choice([0, 1, 2, 60])
        return b"put", b"put %s %d %d %d\r\n%s\r\n" % (number, delay, ttr, len(body), body), body
    if pick.random() < 0.2:
        name = pick.choice([*bare, b"list-tubes-watched"])
        return name, name + b"\r\n", None
    if pick.random() < 0.15 and world.doomed:
        return b"delete", b"delete %s\r\n" % pick.choice(world.doomed), None
    name = pick.choice(list(choices))
    return name, b"%s %s\r\n" % (name, choices[name]()), None


async def be_mannered(world: World) -> None:
    """Say well-formed commands, several at once and cut anywhere, and check each reply."""
    pick = world.random
    while (connection := await world.connect(mannered=True)) is not None:
        for _ in range(pick.randrange(1, MOST_IN_A_ROW)):
            commands = [command(world) for _ in range(pick.choice([1, 1, 1, 2, 7]))]
            data = b"".join(each for _, each, _ in commands)
            cut = pick.randrange(len(data) + 1)
            await connection.say(data[:cut])
            await asyncio.sleep(0)
            await connection.say(data[cut:])
            for name, words, body in commands:
                line, _ = await connection.hear()
                world.heard += 1
                if not re.fullmatch(REPLIES[name], line.split(b" ")[0]):
                    raise Stumbled(f"{words[:300]!r} was answered with {line!r}")
                if body is not None:
                    job = line.split()[1]
                    if job in world.kept or job in world.doomed:
                        raise Stumbled(f"job {job!r} was inserted twice")
                    if pick.random() < 0.3:
                        world.doomed.append(job)
                    else:
                        world.kept[job] = body
        await leave(connection, pick)


async def be_rude(world: World) -> None:
    """Say anything, and leave in the middle of it."""
    pick = world.random
    while (connection := await world.connect(mannered=False)) is not None:
        for _ in range(pick.randrange(1, 10)):
            await connection.say(nonsense(world))
            world.said += 1
            await asyncio.sleep(pick.choice([0, 0, 0.001, 0.02]))
        if pick.random() < 0.2:
            await connection.say(b"reserve\r\n")
            await asyncio.sleep(0.01)
        await leave(connection, pick)


def nonsense(world: World) -> bytes:
    """Bytes of any kind, or a command with something wrong; never one that deletes."""
    pick = world.random
    if pick.random() < 0.3:
        return pick.randbytes(pick.randrange(1, 400))
    if pick.random() < 0.2:
        return b"put 0 0 1 %d\r\n" % pick.choice([0, 5, 65536, 70000, 4294967295]) + b"y" * pick.randrange(9)
    name, data, _ = command(world)
    while name == b"delete":
        name, data, _ = command(world)
    for _ in range(pick.randrange(3)):
        place = pick.randrange(len(data) + 1)
        data = data[:place] + pick.choice(STRANGE) + data[place + pick.randrange(4) :]
    return data[: pick.randrange(len(data) + 1)] if pick.random() < 0.3 else data


async def leave(connection: Connection, pick: random.Random) -> None:
    match pick.randrange(4):
        case 0:
            connection.reset()
        case 1:
            connection.half_close()
            await asyncio.sleep(0.005)
            await connection.close()
        case 2:
            await connection.say(b"quit\r\n")
            await connection.close()
        case _:
            await connection.close()


async def fuzz(
    doors: list[Door], seed: int, *, seconds: float = 600.0, connections: int = 1_000_000
) -> World:
    """Talk for so long, or with so many clients; then everything must be as it should."""
    world = World(doors, random.Random(seed), time.monotonic() + seconds, connections)
    talking = [be_mannered(world) for _ in range(MANNERED)] + [be_rude(world) for _ in range(RUDE)]
    async with asyncio.TaskGroup() as tasks:
        for each in talking:
            tasks.create_task(each)
    await check(world)
    return world


async def check(world: World) -> None:
    """Servers that answer and have nothing to complain about, and all jobs that nobody deleted."""
    for door in world.doors:
        if not door.running:
            raise Stumbled(f"a server has ended:\n{door.log.read_text()}")
        connection = await Connection.open(door.address)
        lost = []
        for job, body in world.kept.items():
            await connection.say(b"peek %s\r\n" % job)
            line, heard = await connection.hear()
            if line != b"FOUND %s %d" % (job, len(body)) or heard != body:
                lost.append(job)
        await connection.close()
        if lost:
            raise Stumbled(f"{len(lost)} of {len(world.kept)} jobs are lost: {lost[:10]}")
        log = door.log.read_text("utf-8", "replace")
        if "Traceback" in log or " ERROR " in log:
            raise Stumbled(f"a server complains:\n{log[-5000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.beanstalkd.fuzzer", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="instead of SQLite")
    options = parser.parse_args()
    if options.postgres:
        with PostgresServer() as server:
            run(server.url(), options.seconds, options.seed)
    else:
        run(None, options.seconds, options.seed)


def run(url: str | None, seconds: float, seed: int) -> None:
    with Door(url=url) as first, Door(url=first.url) as second:
        world = asyncio.run(fuzz([first, second], seed, seconds=seconds))
    print(
        f"{world.heard:,} replies checked, {world.said:,} strange things said, {len(world.kept):,} jobs kept"
    )


if __name__ == "__main__":
    main()
