"""Whatever is said to it, the server goes on, and keeps its jobs."""

from __future__ import annotations

import random

import pytest

from tests.beanstalkd.fuzzer import Stumbled, World, check, fuzz
from tests.servers.shared import empty_url
from tests.servers.tidewheel_beanstalkd import Door


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_anything_may_be_said_to_two_servers_of_one_store(store: str) -> None:
    """Random bytes, random commands cut anywhere, clients that leave in the middle: every reply to a good
    command is one of its own, no job is lost, no server has anything to complain about.
    """
    url = empty_url() if store == "postgres" else None
    with Door(url=url) as first, Door(url=first.url) as second:
        world = await fuzz([first, second], seed=10, connections=60)
    assert world.heard > 500
    assert world.said > 100
    assert len(world.kept) > 100


async def test_what_is_looked_for_would_be_seen() -> None:
    """A job that is gone, and a complaint in the log, are noticed."""
    with Door() as door:
        world = World([door], random.Random(1), 0.0, 0)
        await check(world)
        world.kept[b"4711"] = b"never put"
        with pytest.raises(Stumbled, match="1 of 1 jobs are lost"):
            await check(world)
        world.kept.clear()
        with door.log.open("a") as log:
            log.write("Traceback (most recent call last):\n")
        with pytest.raises(Stumbled, match="complains"):
            await check(world)
