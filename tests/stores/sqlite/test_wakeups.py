"""Wake-ups between processes: hints that anybody may send and nobody may rely on."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Completed, Lane, NewJob, Settlement, State
from tidewheel.stores.sqlite import SqliteStore
from tidewheel.stores.sqlite import wakeups as process_wakeup


async def test_an_enqueue_rings_at_other_processes_that_listen_to_its_topic(store: SqliteStore) -> None:
    """A sibling has a port of its own, as another process has."""
    sibling = store.sibling()
    await sibling.open()
    async with sibling.wakeups(topics=["mail"]) as wakeups:
        await store.enqueue([NewJob(id=new_id(), topic="other")])
        assert await wakeups.wait(0.05) is False
        await store.enqueue([NewJob(id=new_id(), topic="mail")])
        assert await wakeups.wait(PATIENCE) is True
        assert await wakeups.wait(0.02) is False
    await sibling.close()


async def test_a_subscription_that_was_given_up_leaves_the_next_one_not_deaf(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A port counts as registered when it is written: who was cancelled before has not written it."""
    sibling = store.sibling()
    await sibling.open()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    async def subscribe() -> None:
        async with sibling.wakeups(topics=["mail"]):
            raise AssertionError("nothing was registered")

    with monkeypatch.context() as stuck:
        stuck.setattr(sibling._writer, "run", never)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(subscribe(), 0.05)
    async with sibling.wakeups(topics=["mail"]) as wakeups:
        await store.enqueue([NewJob(id=new_id(), topic="mail")])
        assert await wakeups.wait(PATIENCE) is True
    await sibling.close()


async def test_a_finished_job_rings_at_those_who_wait_for_results(store: SqliteStore) -> None:
    """And only at them."""
    sibling = store.sibling()
    await sibling.open()
    await store.enqueue([NewJob(id=new_id(), topic="mail")])
    [job] = (await store.claim(ClaimRequest("w", (Lane("mail"),), 1, 60))).jobs
    async with sibling.wakeups(finished=True) as finished, sibling.wakeups(topics=["mail"]) as ready:
        await store.settle([Settlement(job.lease, Completed(), 0.0)])
        assert await finished.wait(PATIENCE) is True
        assert await ready.wait(0.02) is False
    await sibling.close()


async def test_a_claim_that_follows_a_hint_finds_the_job(store: SqliteStore) -> None:
    """The hint is sent before the commit, and the claim waits for its end, however early it comes."""
    sibling = store.sibling()
    await sibling.open()
    async with sibling.wakeups(topics=["mail"]) as wakeups:
        for _ in range(50):
            enqueueing = asyncio.create_task(store.enqueue([NewJob(id=new_id(), topic="mail")]))
            assert await wakeups.wait(PATIENCE) is True
            assert len((await sibling.claim(ClaimRequest("w", (Lane("mail"),), 10, 60))).jobs) == 1
            await enqueueing
    await sibling.close()


async def test_a_look_that_follows_a_hint_finds_the_result(store: SqliteStore) -> None:
    """A reader waits for no lock, so this hint must not be given before the commit."""
    sibling = store.sibling()
    await sibling.open()
    async with sibling.wakeups(finished=True) as wakeups:
        for _ in range(50):
            await store.enqueue([NewJob(id=new_id(), topic="mail")])
            [job] = (await store.claim(ClaimRequest("w", (Lane("mail"),), 1, 60))).jobs
            settling = asyncio.create_task(store.settle([Settlement(job.lease, Completed(), 0.0)]))
            assert await wakeups.wait(PATIENCE) is True
            assert await sibling.states([job.lease.job_id]) == [State.COMPLETED]
            await settling
    await sibling.close()


async def test_who_waits_long_to_write_knocks_at_those_who_write(store: SqliteStore, path: Path) -> None:
    """A worker that drains has the lock again before anybody else notices that it was free."""
    connection = sqlite3.connect(path, isolation_level=None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inbox:
        inbox.bind((process_wakeup.LOOPBACK, 0))
        inbox.setblocking(False)
        port = inbox.getsockname()[1]
        connection.execute("INSERT INTO tidewheel_wakeup_listeners VALUES (?, 1, 0, ?)", (port, 2**60))
        connection.execute("BEGIN IMMEDIATE")
        enqueueing = asyncio.create_task(store.enqueue([NewJob(id=new_id(), topic="mail")]))
        knock = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(inbox, 1400), PATIENCE)
        connection.execute("ROLLBACK")
        assert len(await enqueueing) == 1
    connection.close()
    assert json.loads(knock)[process_wakeup.WAITING] is True


async def test_closing_a_store_closes_the_socket_that_its_last_writes_opened(
    store: SqliteStore, path: Path
) -> None:
    """A commit that was still in the writer's queue sends after the port was closed."""
    sibling = store.sibling()
    await sibling.open()
    async with sibling.wakeups(topics=["mail"]):
        pass
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("INSERT INTO tidewheel_wakeup_listeners VALUES (9, 1, 1, ?)", (2**60,))
    connection.execute("BEGIN IMMEDIATE")
    enqueueing = asyncio.create_task(sibling.enqueue([NewJob(id=new_id(), topic="mail")]))
    await asyncio.sleep(0)
    closing = asyncio.create_task(sibling.close())
    while sibling._process_wakeup._inbox is not None:
        await asyncio.sleep(0.001)
    connection.execute("ROLLBACK")
    connection.close()
    await enqueueing
    await closing
    assert sibling._process_wakeup._outbox is None


async def test_a_knock_is_no_hint(store: SqliteStore, path: Path) -> None:
    """It is heard, and leads to no claim."""
    async with store.wakeups(topics=None, finished=True) as wakeups:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        sibling = store.sibling()
        await sibling.open()
        going = asyncio.create_task(sibling.deregister_worker("nobody", 0))
        while not store._process_wakeup.lock_requested:
            await asyncio.sleep(0.001)
        connection.execute("ROLLBACK")
        connection.close()
        await going
        await sibling.close()
        assert await wakeups.wait(0.02) is False


@pytest.mark.parametrize(
    "nonsense",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"r": 5}',
        b'{"r": [1, {"a": []}], "f": "yes"}',
        b"[" * 1300,
        b"\xff\xfe",
        b"null",
    ],
)
async def test_nonsense_from_a_stranger_is_at_most_a_hint(
    store: SqliteStore, path: Path, nonsense: bytes
) -> None:
    """Any local process can send to the port; it can make us look, nothing else."""
    async with store.wakeups(topics=None) as wakeups:
        connection = sqlite3.connect(path)
        [(port,)] = connection.execute("SELECT port FROM tidewheel_wakeup_listeners").fetchall()
        connection.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(nonsense, (process_wakeup.LOOPBACK, port))
        await wakeups.wait(5)
        await store.enqueue([NewJob(id=new_id(), topic="mail")])
        assert await wakeups.wait(PATIENCE) is True


async def test_many_topics_become_one_hint_about_everything(store: SqliteStore) -> None:
    """A datagram has a maximum; a hint without names is still a hint."""
    sibling = store.sibling()
    await sibling.open()
    async with sibling.wakeups(topics=["the-one"]) as wakeups:
        await store.enqueue([NewJob(id=new_id(), topic=f"topic-{n:04}-with-a-long-name") for n in range(200)])
        assert await wakeups.wait(PATIENCE) is True
    await sibling.close()


async def test_listeners_that_died_are_forgotten(store: SqliteStore, path: Path) -> None:
    """Their ports may belong to somebody else by now."""
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO tidewheel_wakeup_listeners VALUES (9, 1, 1, 0)")
    connection.commit()
    async with store.wakeups(topics=["mail"]):
        ports = connection.execute("SELECT port FROM tidewheel_wakeup_listeners").fetchall()
        assert len(ports) == 1
        assert (9,) not in ports
    await store.close()
    assert connection.execute("SELECT port FROM tidewheel_wakeup_listeners").fetchall() == []
    connection.close()


async def test_without_loopback_sockets_polling_is_left(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sandbox that forbids sockets makes it slower, not broken."""

    def refused(*_: object) -> None:
        raise OSError("not permitted")

    monkeypatch.setattr(socket, "socket", refused)
    async with store.wakeups(topics=["mail"]) as wakeups:
        assert "falling back to polling" in caplog.text
        task = asyncio.create_task(wakeups.wait(5))
        await store.enqueue([NewJob(id=new_id(), topic="mail")])
        assert await task is True  # within one process no socket is needed
