"""What happens to a PostgreSQL server and to the way there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from tests.faults.network import Network
from tests.patience import PATIENCE
from tests.servers import PostgresServer
from tests.servers.postgres import StopMode
from tests.stores.postgres.proxy import Proxy
from tidewheel.verification.faults import Fault, FaultContext
from tidewheel.verification.history import StoreReachable, StoreUnreachable

STATEMENTS = {"enqueue": "enqueued_events", "claim": ".claim(", "settle": ".settle(", "extend": ".extend("}
"""How to recognise what a statement does."""


SERVER_AWAY = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Then it has trouble enough."""


class ServerTroubles:
    """Every kind, for one server and one network."""

    def __init__(self, server: PostgresServer, network: Network, schema: str) -> None:
        self._server = server
        self._network = network
        self._schema = schema
        self._restarting = asyncio.Lock()

    def all(self) -> list[Fault]:
        return [
            Fault("crash server", 0.6, lambda scene: self._restart(scene, "immediate")),
            Fault("restart server", 0.3, lambda scene: self._restart(scene, "fast")),
            Fault("terminate backends", 1, self._terminate),
            Fault("lock table", 0.6, self._lock_table),
            Fault("cut connections", 1.5, self._cut),
            Fault("blackhole", 1, self._blackhole),
            Fault("half-open", 1, self._half_open),
            Fault("slow network", 1, self._delay),
            Fault("cut after bytes", 1.5, self._cut_after),
            Fault("refuse connections", 0.6, self._refuse),
            *(
                Fault(f"lose {what}", 1, self._losing(verb, what))
                for verb in STATEMENTS
                for what in ("reply", "request")
            ),
        ]

    # -- the server -------------------------------------------------------------------------------------

    async def _restart(self, scene: FaultContext, mode: StopMode) -> None:
        if self._restarting.locked():
            return
        async with self._restarting, away(scene):
            scene.record_fault({"immediate": "server crashed", "fast": "server restarted"}[mode])
            await asyncio.to_thread(self._server.stop, mode)
            await asyncio.sleep(scene.choose.uniform(0.0, 1.5) * scene.lease)
            await asyncio.to_thread(self._server.start)

    async def _terminate(self, scene: FaultContext) -> None:
        with contextlib.suppress(*SERVER_AWAY):
            session = await self._session()
            await session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE starts_with(application_name, 'tidewheel') AND random() < 0.5"
                " AND pid <> pg_backend_pid()"
            )
            scene.record_fault("backends terminated")
            session.terminate()

    async def _lock_table(self, scene: FaultContext) -> None:
        with contextlib.suppress(*SERVER_AWAY):
            session = await self._session()
            async with away(scene):
                await self._hold_lock(session, scene)

    async def _hold_lock(self, session: Any, scene: FaultContext) -> None:
        try:
            await session.execute("BEGIN")
            await session.execute(f"LOCK TABLE {self._schema}.jobs IN ACCESS EXCLUSIVE MODE")
            scene.record_fault("table locked")
            await asyncio.sleep(scene.choose.uniform(0.2, 1.5) * scene.lease)
        finally:
            session.terminate()

    async def _session(self) -> Any:
        """One of our own, straight to the server."""
        return await asyncpg.connect(self._server.url(), timeout=PATIENCE)

    # -- the network ------------------------------------------------------------------------------------

    def _victim(self, scene: FaultContext) -> tuple[str, Proxy] | None:
        member = scene.pick_process(scene.choose.choice(("worker", "worker", "producer")))
        proxy = None if member is None else self._network.to(member.name)
        return None if member is None or proxy is None else (member.name, proxy)

    async def _cut(self, scene: FaultContext) -> None:
        if (victim := self._victim(scene)) is not None and victim[1].cut():
            scene.record_fault("connections cut")

    async def _blackhole(self, scene: FaultContext) -> None:
        """Nothing arrives for a while, then all of it."""
        if (victim := self._victim(scene)) is not None:
            name, proxy = victim
            async with away(scene, name):
                scene.record_fault("network silent, then back")
                proxy.blackhole()
                await asyncio.sleep(scene.choose.uniform(0.3, 3.0) * scene.lease)
                proxy.restore()

    async def _half_open(self, scene: FaultContext) -> None:
        """Nothing arrives for a while, then the connections turn out to be dead."""
        if (victim := self._victim(scene)) is not None:
            name, proxy = victim
            async with away(scene, name):
                scene.record_fault("connections half-open, then reset")
                proxy.blackhole()
                await asyncio.sleep(scene.choose.uniform(0.3, 3.0) * scene.lease)
                proxy.cut()
                proxy.restore()

    async def _delay(self, scene: FaultContext) -> None:
        if (victim := self._victim(scene)) is not None:
            scene.record_fault("network slow")
            victim[1].delay = scene.choose.uniform(0.02, 0.3)
            await asyncio.sleep(2 * scene.lease)
            victim[1].delay = 0.0

    async def _cut_after(self, scene: FaultContext) -> None:
        if (victim := self._victim(scene)) is not None:
            scene.record_fault("cut in the middle of an answer")
            victim[1].cut_after(scene.choose.randrange(1, 3000))

    async def _refuse(self, scene: FaultContext) -> None:
        if (victim := self._victim(scene)) is not None:
            name, proxy = victim
            async with away(scene, name):
                scene.record_fault("connections refused")
                proxy.refuse = True
                proxy.cut()
                await asyncio.sleep(scene.choose.uniform(0.2, 2.0) * scene.lease)
                proxy.refuse = False

    def _losing(self, verb: str, what: str) -> Callable[[FaultContext], Coroutine[Any, Any, None]]:
        async def lose(scene: FaultContext) -> None:
            if (victim := self._victim(scene)) is None:
                return
            proxy = victim[1]
            plan = proxy.lose_reply if what == "reply" else proxy.lose_request
            happened = plan(STATEMENTS[verb])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(happened.wait(), 5.0)
                scene.record_fault(f"{what} of {verb} lost")

        return lose


@asynccontextmanager
async def away(scene: FaultContext, by: str = "") -> AsyncIterator[None]:
    """Nobody, or one process, can reach the store meanwhile."""
    me = scene.recorder
    me.write(StoreUnreachable(at=me.now(), process=by))
    try:
        yield
    finally:
        me.write(StoreReachable(at=me.now(), process=by))
