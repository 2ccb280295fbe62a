"""Sessions without a socket, as tests talk to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.app.conftest import app, clock, url
from tidewheel import Tidewheel
from tidewheel.beanstalkd.client_session import ClientSession, PendingReply
from tidewheel.beanstalkd.commands import Command, CommandParser
from tidewheel.beanstalkd.server_state import ServerState

__all__ = ["Talk", "app", "clock", "other", "shared", "talk", "url"]


class Talk:
    """One client: lines in, replies out. Numbers of jobs are the store's own, so tests ask for them."""

    def __init__(self, shared: ServerState) -> None:
        self.session = ClientSession(shared)
        self._parser = CommandParser(shared.counters.max_job_size)

    def command(self, line: str, body: bytes | None = None) -> Command:
        self._parser.feed(line.encode() + b"\r\n" + (b"" if body is None else body + b"\r\n"))
        command = self._parser.next()
        assert command is not None
        return command

    async def say(self, line: str, body: bytes | None = None) -> str:
        answer = self.session.answer(self.command(line, body))
        while isinstance(answer, PendingReply):
            await asyncio.wait((answer.future,))
            answer = self.session.finish(answer)
        return answer.decode().removesuffix("\r\n")

    async def put(self, body: bytes = b"x", *, priority: int = 0, delay: int = 0, ttr: int = 60) -> int:
        reply = await self.say(f"put {priority} {delay} {ttr} {len(body)}", body)
        word, number = reply.split()
        assert word == "INSERTED"
        return int(number)

    async def stats(self, line: str) -> dict[str, str]:
        reply = await self.say(line)
        first, mark, *lines = reply.split("\n")
        assert (first[:3], mark) == ("OK ", "---")
        assert int(first[3:].strip()) == len(reply) - len(first) - 1
        return dict(line.split(": ", 1) for line in lines if line)


@pytest.fixture
def shared(app: Tidewheel) -> ServerState:
    return ServerState(app)


@pytest.fixture
async def talk(shared: ServerState) -> AsyncIterator[Talk]:
    talk = Talk(shared)
    yield talk
    await talk.session.close()


@pytest.fixture
async def other(shared: ServerState) -> AsyncIterator[Talk]:
    other = Talk(shared)
    yield other
    await other.session.close()
