"""Handlers that start or open things and never look after them again, and handlers that fork."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.sites import of_kind
from tests.patience import PATIENCE
from tests.worker.helpers import until
from tests.worker.worker_processes import Site, stop
from tidewheel import Tidewheel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="fork and limits as tested here are POSIX")


@contextmanager
def few_descriptors(number: int) -> Iterator[None]:
    """For the processes that are started meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def is_listed(app: Tidewheel) -> bool:
    return bool(await app.workers())


async def test_leaked_threads_and_children_disturb_neither_the_worker_nor_its_end(
    site: Site, app: Tidewheel
) -> None:
    """Fifty threads and five processes later jobs complete as before, and one SIGTERM ends the worker."""
    leaking = [await app.enqueue("leaks", {"what": what}) for what in ("threads", "children")]
    children: list[int] = []
    try:
        with site.workers(1) as [worker]:
            assert [await job.result(timeout=PATIENCE) for job in leaking] == ["threads", "children"]
            children = of_kind(site.events(), "children")[0]["children"]
            for job in await app.enqueue_many("work", [{}] * 20):
                await job.result(timeout=PATIENCE)
            code, said = stop(worker)
        assert (code, '"lost": 0' in said) == (0, True)
    finally:
        for child in children:  # nobody else's business: not even the worker knows of them
            os.kill(child, signal.SIGKILL)


# On SQLite everything is open from the start; on PostgreSQL connections come and go.
@pytest.mark.parametrize("site", ["postgres"], indirect=True)
async def test_a_worker_without_a_free_descriptor_goes_on_with_those_it_has(
    site: Site, app: Tidewheel
) -> None:
    """A handler has opened files until there was no number left for another: only its own job suffers."""
    first = await app.enqueue("work")
    with few_descriptors(80):
        worker = site.start(SLOTS="2")
    try:
        await first.result(timeout=PATIENCE)
        await until(lambda: is_listed(app))  # by its keeper, which has its own connection by then
        leaking = await app.enqueue("leaks", {"what": "descriptors"})
        jobs = await app.enqueue_many("work", [{"seconds": 0.01}] * 50)
        slow = await app.enqueue("work", {"seconds": 1.1 * site.lease})  # has to be extended meanwhile
        for job in [*jobs, slow]:
            await job.result(timeout=PATIENCE)
            await job.refresh()
            assert (job.state, job.attempt) == ("completed", 1)
        await leaking.refresh()
        assert leaking.error is not None
        assert "Too many open files" in leaking.error.message
        code, said = stop(worker)
        assert (code, '"lost": 0' in said) == (0, True), site.complaints()
    finally:
        worker.kill()
        worker.communicate()


@pytest.mark.parametrize("task", ["forks_on_the_loop", "forks_on_a_thread"])
async def test_a_child_forked_by_a_handler_ends_where_it_comes_back_to_the_worker(
    site: Site, app: Tidewheel, task: str
) -> None:
    """It shares its parent's event loop with the kernel; the parent goes on, and still hears SIGTERM."""
    ways = {"return": 1, "exit": 7, **({"await": 1} if task == "forks_on_the_loop" else {})}
    with site.workers(1) as [worker]:
        for how, code in ways.items():
            job = await app.enqueue(task, {"how": how})
            assert await job.result(timeout=PATIENCE) == code
            await job.refresh()
            assert job.attempt == 1
        for later in await app.enqueue_many("work", [{}] * 20):
            await later.result(timeout=PATIENCE)
        code, said = stop(worker)
    assert (code, '"lost": 0' in said) == (0, True)
    assert {event["pid"] for event in of_kind(site.events(), "start")} == {worker.pid}
    assert worker.pid not in {event["pid"] for event in of_kind(site.events(), "child")}
    assert site.complaints().count("was forked by a handler and came back") == len(ways) - 1
