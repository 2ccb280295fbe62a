"""Plays a conversation on a server, and writes down what it hears."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

from tests.beanstalkd.conversation import Conversation, Step, to_bytes, to_text
from tests.beanstalkd.unequal_fields import OURS, without_the_unequal
from tests.patience import PATIENCE

MOST_ASKED: Final = 2000
"""How often a question is repeated until it has the answer that is waited for."""
MOST_READ: Final = 1 << 24
_FOLLOWED = (b"RESERVED ", b"FOUND ", b"OK ")
_LINGER_NOT: Final = struct.pack("ii", 1, 0)


class Server(Protocol):
    """What is talked to."""

    @property
    def address(self) -> tuple[str, int]: ...

    def signal(self, number: int) -> None: ...


class Misheard(AssertionError):
    """A reply is not one of the protocol, or there is none."""


class Connection:
    """One client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Connection:
        return cls(*await asyncio.open_connection(*address, limit=MOST_READ))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):  # it hung up on us: the next reply tells
            await self.writer.drain()

    async def hear(self) -> tuple[bytes, bytes | None]:
        """A line of reply and what follows it; the line is empty when the server has hung up."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._hear()
        except TimeoutError:
            said = bytes(self.reader._buffer)  # type: ignore[attr-defined]
            raise Misheard(f"no whole reply within {PATIENCE:.0f} s, only {said[:200]!r}") from None

    async def _hear(self) -> tuple[bytes, bytes | None]:
        try:
            line = await self.reader.readuntil(b"\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Misheard(f"hung up in the middle of a reply: {error.partial!r}") from None
            return b"", None
        except ConnectionError:
            return b"", None
        if not line.startswith(_FOLLOWED):
            return line[:-2], None
        body = await self.reader.readexactly(int(line.split()[-1]) + 2)
        if not body.endswith(b"\r\n"):
            raise Misheard(f"{line!r} is followed by {body[-20:]!r}, which ends without a CR LF")
        return line[:-2], body[:-2]

    def half_close(self) -> None:
        with suppress(OSError):  # it hung up on us before
            self.writer.write_eof()

    def reset(self) -> None:
        if self.writer.is_closing():
            return
        own: socket.socket = self.writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


class Player:
    """Plays one conversation once; ``cut`` is the place in all its bytes where they are sent in two parts."""

    def __init__(self, conversation: Conversation, server: Server, cut: int | None = None) -> None:
        self.conversation = conversation
        self.server = server
        self.cut = cut
        self.said = 0
        self._names: dict[bytes, str] = {}
        self._connections: dict[str, Connection] = {}
        self._using: set[str] = set()
        self._passer_by: Connection | None = None

    async def play(self, heard: list[Step]) -> None:
        """Adds its replies in order, in words that are the same on every server."""
        try:
            for step in self.conversation.steps:
                if isinstance(step, Step):
                    heard += await self._do(step)
            for who, connection in self._connections.items():
                if left := bytes(connection.reader._buffer):  # type: ignore[attr-defined]
                    raise Misheard(f"{who} was told more than it asked for: {left[:200]!r}")
        finally:
            for connection in (*self._connections.values(), *filter(None, [self._passer_by])):
                await connection.close()

    async def _do(self, step: Step) -> list[Step]:
        """What was heard by that."""
        if step.who == "*":
            self.server.signal(signal.Signals[step.act])
            return []
        if step.who not in self._connections:
            self._connections[step.who] = await Connection.open(self.server.address)
        connection = self._connections[step.who]
        match step.act:
            case ">" | ">>":
                await self._say(step, connection)
            case "<":
                return [await self._reply(step.who, connection)]
            case "~":
                await self._ask_until(step, connection)
            case "|":
                connection.half_close()
            case "x":
                await connection.close()
            case "!":
                connection.reset()
            case _:
                raise ValueError(f"no such act: {step}")
        return []

    async def _say(self, step: Step, connection: Connection) -> None:
        self._mind_the_others(step)
        data = to_bytes(self._with_ids(step.text)) + b"\r\n" * (step.act == ">")
        if self.cut is not None and self.said < self.cut < self.said + len(data):
            place = self.cut - self.said
            await connection.say(data[:place])
            await self._pass_by()
            await connection.say(data[place:])
        else:
            await connection.say(data)
        self.said += len(data)

    def _mind_the_others(self, step: Step) -> None:
        """Conversations that share a server have tubes of their own; the default tube is everybody's."""
        if step.text.startswith("use "):
            self._using.add(step.who)
        if step.text.startswith("put ") and not self.conversation.alone and step.who not in self._using:
            raise ValueError(f"{self.conversation.title!r} is not alone and puts into the default tube")

    async def _pass_by(self) -> None:
        """Returns when the server has had time to read what came before: it answered somebody later."""
        if self._passer_by is None:
            self._passer_by = await Connection.open(self.server.address)
        await self._passer_by.say(b"list-tube-used\r\n")
        await self._passer_by.hear()

    def _with_ids(self, text: str) -> str:
        ids = {name: number.decode() for number, name in self._names.items()}
        return re.sub(r"#\d+", lambda match: ids[match[0]], text)

    async def _reply(self, who: str, connection: Connection) -> Step:
        line, body = await connection.hear()
        if not line:
            return Step(who, "<", "(closed)")
        word, *rest = line.split(b" ")
        if word == b"INSERTED":
            self._names.setdefault(rest[0], f"#{len(self._names) + 1}")
        if word in {b"INSERTED", b"RESERVED", b"FOUND"}:
            rest[0] = self._names.get(rest[0], "#?").encode()
        if word == b"OK":
            assert body is not None
            return Step(who, "<", "OK", self._yaml(body))
        more = () if body is None else (to_text(body),)
        return Step(who, "<", to_text(b" ".join([word, *rest])), more)

    def _yaml(self, body: bytes) -> tuple[str, ...]:
        lines = body.decode("latin-1").split("\n")
        if lines[-1]:
            raise Misheard(f"the last line has no end: {lines[-1]!r}")
        is_job = any(line.startswith("ttr: ") for line in lines)
        return tuple(
            f"id: {self._names.get(line[4:].encode(), '#?')}"
            if is_job and line.startswith("id: ")
            else to_text(without_the_unequal(line).encode("latin-1"))
            for line in lines[:-1]
            if line.partition(":")[0] not in OURS
        )

    async def _ask_until(self, step: Step, connection: Connection) -> None:
        question, _, awaited = step.text.partition(" ~ ")
        for _ in range(MOST_ASKED):
            await connection.say(self._with_ids(question).encode() + b"\r\n")
            line, body = await connection.hear()
            if awaited in [line.decode("latin-1"), *(body or b"").decode("latin-1").split("\n")]:
                return
            await asyncio.sleep(0.002)
        raise Misheard(f"{question!r} was never answered with {awaited!r}, last {(line, body)!r}")
