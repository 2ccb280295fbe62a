"""Plays many conversations at once on one kind of server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from tests.beanstalkd.conversation import Conversation, Step
from tests.beanstalkd.conversation_player import Player, Server

AT_ONCE: Final = 24
SERVERS_AT_ONCE: Final = 3

Open = Callable[[tuple[str, ...]], AbstractContextManager[Server]]
"""A server with these options."""


@dataclass(slots=True)
class Played:
    """What was heard, or why that ended early; and the same for every place the bytes were cut."""

    heard: list[Step] = field(default_factory=list)
    trouble: Exception | None = None
    splits: dict[int, Played] = field(default_factory=dict)


async def play_all(conversations: Iterable[Conversation], open_server: Open) -> dict[str, Played]:
    """By title."""
    listed = list(conversations)
    together = [conversation for conversation in listed if not conversation.alone]
    alone = [conversation for conversation in listed if conversation.alone]
    played: dict[str, Played] = {}
    talking, starting = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(SERVERS_AT_ONCE)

    async def on(server: Server, conversation: Conversation) -> None:
        async with talking:
            played[conversation.title] = await _play(conversation, server)

    async def by_itself(conversation: Conversation) -> None:
        async with starting:
            opened = open_server(conversation.options)
            server = await asyncio.to_thread(opened.__enter__)
            try:
                await on(server, conversation)
            finally:
                await asyncio.to_thread(opened.__exit__, None, None, None)

    async def shared() -> None:
        opened = open_server(())
        server = await asyncio.to_thread(opened.__enter__)
        try:
            await asyncio.gather(*(on(server, conversation) for conversation in together))
        finally:
            await asyncio.to_thread(opened.__exit__, None, None, None)

    parts = [by_itself(conversation) for conversation in alone]
    await asyncio.gather(*([shared()] if together else []), *parts)
    return played


async def _play(conversation: Conversation, server: Server) -> Played:
    played, said = await _play_once(conversation, server, None)
    if conversation.every_split and played.trouble is None:
        for cut in range(1, said):
            played.splits[cut], _ = await _play_once(conversation, server, cut)
    return played


async def _play_once(conversation: Conversation, server: Server, cut: int | None) -> tuple[Played, int]:
    player, played = Player(conversation, server, cut), Played()
    try:
        await player.play(played.heard)
    except (AssertionError, OSError, asyncio.IncompleteReadError, KeyError) as error:
        played.trouble = error  # the test of this conversation says so, and the others go on
    return played, player.said
