"""What code that acts for a tenant may say and see (Q1, Q27)."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.patience import PATIENCE
from tests.stores.all_stores.urls import STORES
from tidewheel import (
    ConfigurationError,
    Every,
    InvalidInput,
    Job,
    JobNotFound,
    NotPermitted,
    SecurityContext,
    Tidewheel,
    TidewheelError,
    WrongState,
    acting_as,
)

ACME = SecurityContext("acme", user_id="ada", service_id="web", correlation_id="request-1")
GLOBEX = SecurityContext("globex")


@pytest.fixture(params=STORES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    async with Tidewheel(STORES[request.param](tmp_path), poll_interval=0.05) as app:
        yield app


@pytest.fixture
async def memory() -> AsyncIterator[Tidewheel]:
    """For what no store can make a difference to."""
    async with Tidewheel("memory://", poll_interval=0.05) as app:
        yield app


# -- the context itself -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tenant": ""}, "tenant is ''"),
        ({"tenant": "a b"}, "tenant is 'a b'"),
        ({"tenant": None}, "tenant is None"),
        ({"tenant": "a" * 201}, "1 to 200"),
        ({"tenant": "acme", "user_id": ""}, "user_id is empty"),
        ({"tenant": "acme", "service_id": 7}, "service_id is 7"),
        (
            {"tenant": "acme", "correlation_id": "x" * 256},
            "correlation_id has 256 characters; the limit is 255",
        ),
    ],
)
def test_a_context_is_checked_when_it_is_made(given: dict[str, Any], words: str) -> None:
    """By the same rules as a job's options."""
    with pytest.raises(InvalidInput, match=words):
        SecurityContext(**given)


def test_a_context_does_not_change() -> None:
    """Whoever was let in as one tenant stays that tenant."""
    with pytest.raises(FrozenInstanceError):
        ACME.tenant = "globex"  # type: ignore[misc]


def test_contexts_nest_and_end_with_their_block() -> None:
    """Also when it is left by an error; None is the system."""
    assert SecurityContext.current() is None
    with acting_as(ACME) as acting:
        assert acting is SecurityContext.current() is ACME
        with pytest.raises(ZeroDivisionError), acting_as(GLOBEX):
            _ = 1 / (SecurityContext.current() is not GLOBEX)
        with acting_as(None):
            assert SecurityContext.current() is None
        assert SecurityContext.current() is ACME
    assert SecurityContext.current() is None


def test_only_a_context_can_be_acted_as() -> None:
    """A tenant's name alone is refused, with what to give instead."""
    with pytest.raises(InvalidInput, match=r"'acme' \(str\); give a SecurityContext"):
        acting_as("acme")  # type: ignore[arg-type]


def test_it_does_not_decorate() -> None:
    """A decorated coroutine function would have left the context before its first line ran."""
    with pytest.raises(TypeError):
        acting_as(ACME)(lambda: None)  # type: ignore[operator]


def test_a_context_that_is_left_elsewhere_says_so() -> None:
    """A framework that enters on one thread and leaves on another ran the code between without it."""
    acting = acting_as(ACME)
    contextvars.copy_context().run(acting.__enter__)
    with pytest.raises(WrongState, match="did not act as told"):
        acting.__exit__(None, None, None)


# -- enqueueing ---------------------------------------------------------------------------------------------


async def test_new_jobs_are_the_tenants(app: Tidewheel) -> None:
    """However they are enqueued, with whatever task or options were made before; what the call says itself
    about user, service and correlation stays.
    """

    @app.task
    async def send(word: str = "") -> None: ...

    bound = send.options(priority=3, user_id="eve")
    with acting_as(ACME):
        jobs = [
            await app.enqueue("mail"),
            await app.enqueue(send, {"word": "x"}),
            *await app.enqueue_many("mail", [1, 2]),
            await send.enqueue(),
            *await send.enqueue_many([{}, {}]),
            await send.options(tenant="acme").enqueue(),
        ]
        own = [await bound.enqueue(), *await bound.enqueue_many([{}])]
    for job in (*jobs, *own):
        await job.refresh()
        assert (job.tenant, job.service_id, job.correlation_id) == ("acme", "web", "request-1")
    assert {job.user_id for job in jobs} == {"ada"}
    assert {(job.user_id, job.priority) for job in own} == {("eve", 3)}
    outside = await bound.enqueue()
    assert (outside.tenant, outside.service_id, outside.correlation_id) == ("root", None, None)


async def test_the_setting_is_for_the_system_only(tmp_path: Path) -> None:
    """A tenant set for the app is the default where nobody acts; it is no reason to refuse others."""
    async with Tidewheel("memory://", tenant="house") as app:
        assert (await app.enqueue("mail")).tenant == "house"
        assert (await app.enqueue("mail", tenant="other")).tenant == "other"
        with acting_as(ACME):
            assert (await app.enqueue("mail")).tenant == "acme"


async def test_another_tenant_is_refused_wherever_it_is_named(memory: Tidewheel) -> None:
    """In options made now or before, in filters, in statistics; nothing is written."""

    @memory.task
    async def send() -> None: ...

    bound = send.options(tenant="globex")
    with acting_as(ACME):
        calls: list[Callable[[], Any]] = [
            lambda: memory.enqueue("mail", tenant="globex"),
            lambda: memory.enqueue(send, {}, tenant="globex"),
            lambda: memory.enqueue_many("mail", [1], tenant="globex"),
            bound.enqueue,
            lambda: bound.enqueue_many([{}]),
            lambda: bound.options(priority=1).enqueue(),
            lambda: memory.jobs(tenant="globex"),
            lambda: memory.count(tenant="globex"),
            lambda: memory.stats(tenant="globex"),
            lambda: memory.topics(tenant="globex"),
            lambda: memory.cancel_all(tenant="globex"),
            lambda: memory.requeue_all(tenant="globex"),
            lambda: memory.take_back_all(tenant="globex"),
            lambda: memory.delete_all(tenant="globex"),
            lambda: memory.jobs(tenant="root"),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match=r"but this code acts as tenant 'acme'.*acting_as\(None\)"):
                await call()
    assert (await memory.count()).total == 0


async def _through(door: Callable[[], Any]) -> None:
    found = door()
    if inspect.isawaitable(found):
        await found


async def test_the_root_tenant_is_given_to_nobody(memory: Tidewheel) -> None:
    """Its jobs run for all tenants, so its name is refused at every door; leaving it out makes such jobs."""

    @memory.task
    async def send() -> None: ...

    made = await memory.enqueue("mail")
    doors: list[Callable[[], Any]] = [
        lambda: SecurityContext("root"),
        lambda: replace(ACME, tenant="root"),
        lambda: memory.enqueue("mail", tenant="root"),
        lambda: memory.enqueue_many("mail", [1], tenant="root"),
        lambda: send.options(tenant="root"),
        lambda: memory.schedules.create("nightly", "mail", Every(60), tenant="root"),
        lambda: memory.access.create_key("ci", tenant="root"),
    ]
    for door in doors:
        with pytest.raises(InvalidInput, match="tenant is root, which is reserved"):
            await _through(door)
    assert (await memory.count()).total == 1
    assert (await memory.enqueue_copy(made.id)).tenant == "root"
    assert (await memory.access.create_key("ci")).info.tenant == "root"
    assert {job.tenant for job in await memory.jobs(tenant="root")} == {"root"}


async def test_the_own_tenant_may_be_named(memory: Tidewheel) -> None:
    """It says nothing new."""
    with acting_as(ACME):
        job = await memory.enqueue("mail", tenant="acme")
        assert [found.id for found in await memory.jobs(tenant="acme")] == [job.id]
        assert (await memory.stats(tenant="acme")).pending == 1
        assert len(await memory.topics(tenant="acme")) == 1
        assert await memory.delete_all(tenant="acme") == 1


async def test_a_bulk_verb_still_has_to_say_which_jobs(memory: Tidewheel) -> None:
    """The tenant in force is nobody's choice: "all of mine" has to be said."""
    with acting_as(ACME):
        await memory.enqueue("mail")
        for verb in (memory.cancel_all, memory.requeue_all, memory.take_back_all, memory.delete_all):
            with pytest.raises(InvalidInput, match="without a filter means every job"):
                await verb()
            with pytest.raises(InvalidInput, match="without a filter means every job"):
                await verb(state=None)


# -- reading and managing -----------------------------------------------------------------------------------


async def _told(verb: Callable[..., Any], job_id: UUID, *more: float) -> tuple[type, str]:
    with pytest.raises(TidewheelError) as caught:
        await asyncio.wait_for(verb(job_id, *more), PATIENCE)
    return type(caught.value), str(caught.value).replace(str(job_id), "…")


async def test_another_tenants_job_is_as_one_that_never_was(app: Tidewheel) -> None:
    """The same error in the same words, at once: also where an own job would be waited for."""
    foreign = await app.enqueue("mail", tenant="globex")
    nobodys = uuid4()
    with acting_as(ACME):
        calls: list[tuple[Any, ...]] = [(app.get,), (app.cancel,), (app.requeue,), (app.delete,)]
        for verb, *more in (*calls, (app.take_back,), (app.result,), (app.result, 0), (app.result, 30)):
            told = [await _told(verb, wanted, *more) for wanted in (foreign.id, nobodys)]
            words = "there is no job …; it may have been deleted, or pruned after its retention"
            assert told == [(JobNotFound, words)] * 2
    assert (await app.get(foreign.id)).state == "pending"


async def test_a_handle_obeys_the_context_of_the_moment(app: Tidewheel) -> None:
    """Not that of its making: a handle that is passed on opens nothing."""
    job = await app.enqueue("mail", tenant="globex")
    with acting_as(ACME):
        for verb in (job.refresh, job.cancel, job.requeue, job.take_back, job.delete, job.result):
            with pytest.raises(JobNotFound):
                await verb()
    with acting_as(GLOBEX):
        assert await job.cancel() is True
        await job.requeue()
        await job.refresh()
        await job.delete()
    with pytest.raises(JobNotFound):
        await job.refresh()


async def test_a_result_is_waited_for_under_the_context_of_the_call(memory: Tidewheel) -> None:
    """Two tenants and the system wait at once, for the same jobs: each hears what is its own."""

    @memory.task
    async def send() -> str:
        return "sent"

    with acting_as(ACME):
        job = await send.enqueue()
        own = asyncio.create_task(job.result(timeout=PATIENCE))
    system = asyncio.create_task(memory.result(job.id, timeout=PATIENCE))
    with acting_as(GLOBEX):
        foreign = asyncio.create_task(memory.result(job.id, timeout=PATIENCE))
    with pytest.raises(JobNotFound):
        await foreign
    assert not own.done()
    await memory.run_until_idle(handle_signals=False)
    assert (await own, await system) == ("sent", "sent")


async def test_what_is_about_all_tenants_is_refused(memory: Tidewheel) -> None:
    """As such, with the way out; in the system context it works."""
    memory.task(name="t")(lambda: None)
    calls: list[Callable[[], Any]] = [
        lambda: memory.pause("mail"),
        lambda: memory.resume("mail"),
        memory.workers,
        memory.migrate,
        memory.check,
        lambda: memory.run_until_idle(handle_signals=False),
    ]
    for call in calls:
        with (
            acting_as(ACME),
            pytest.raises(NotPermitted, match=r"all tenants.*'acme'.*acting_as\(None\)") as no,
        ):
            await call()
        assert isinstance(no.value, PermissionError)
        assert no.value.code == "not_permitted"
        with acting_as(ACME), acting_as(None):
            await call()


# -- one spelling of a tenant -------------------------------------------------------------------------------


async def test_tenants_can_be_required_to_be_uuids() -> None:
    """With ``tenant_uuids``, in one spelling each; the root tenant is the system's own."""
    good = "0190a5b2-7c3d-7e4f-8a9b-0c1d2e3f4a5b"
    async with Tidewheel("memory://", tenant_uuids=True) as app:
        assert (await app.enqueue("mail")).tenant == "root"
        assert (await app.enqueue("mail", tenant=good)).tenant == good
        with acting_as(SecurityContext(good)):
            assert (await app.enqueue("mail")).tenant == good
            assert (await app.count()).total == 2
        for bad in ("acme", good.upper(), good.replace("-", ""), f"{good}x"):
            for call in _uses(app, bad):
                with pytest.raises(InvalidInput, match=r"a UUID in lower case with hyphens \(tenant_uuids\)"):
                    await call()
    with pytest.raises(ConfigurationError, match="tenant_uuids"):
        Tidewheel("memory://", tenant_uuids=True, tenant="acme")


def _uses(app: Tidewheel, tenant: str) -> list[Callable[[], Any]]:
    def acting(call: Callable[[], Any]) -> Callable[[], Any]:
        async def run() -> None:
            with acting_as(SecurityContext(tenant)):
                await call()

        return run

    return [
        lambda: app.enqueue("mail", tenant=tenant),
        lambda: app.count(tenant=tenant),
        lambda: app.stats(tenant=tenant),
        acting(lambda: app.enqueue("mail")),
        acting(lambda: app.enqueue_many("mail", [1])),
        acting(app.count),
        acting(lambda: app.get(uuid4())),
    ]


# -- at once ------------------------------------------------------------------------------------------------


async def test_tenants_at_once_on_one_event_loop_do_not_mix(app: Tidewheel) -> None:
    """Requests of many tenants take turns at every await."""

    async def request(number: int) -> None:
        tenant = f"tenant-{number % 5}"
        with acting_as(SecurityContext(tenant, correlation_id=f"request-{number}")):
            for _ in range(5):
                job = await app.enqueue("mail", {"tenant": tenant})
                await job.refresh()
                assert (job.tenant, job.correlation_id) == (tenant, f"request-{number}")
                assert {found.tenant for found in await app.jobs(limit=200)} == {tenant}
                assert (await app.topics())[0].pending <= 20

    await asyncio.gather(*(request(number) for number in range(20)))
    assert (await app.count()).total == 100
    for number in range(5):
        assert (await app.count(tenant=f"tenant-{number}")).total == 20


def test_tenants_at_once_on_threads_do_not_mix(tmp_path: Path) -> None:
    """The same for blocking code: all threads share the one behind ``.sync``."""
    app = Tidewheel(f"sqlite:///{(tmp_path / 'jobs.db').as_posix()}?synchronous=normal")
    together = threading.Barrier(8)

    def request(number: int) -> None:
        tenant = f"tenant-{number % 4}"
        with acting_as(SecurityContext(tenant, user_id=f"user-{number}")):
            together.wait(PATIENCE)
            for _ in range(10):
                job = app.sync.enqueue("mail")
                job.refresh()
                assert (job.tenant, job.user_id) == (tenant, f"user-{number}")
                assert {found.tenant for found in app.sync.jobs(limit=200)} == {tenant}
                with pytest.raises(NotPermitted):
                    app.sync.pause("mail")
        assert SecurityContext.current() is None

    try:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(request, range(8)))
        assert app.sync.count().total == 80
        assert {app.sync.count(tenant=f"tenant-{number}").total for number in range(4)} == {20}
    finally:
        app.sync.close()


async def test_what_a_context_starts_stays_in_it(memory: Tidewheel) -> None:
    """Tasks and threads made inside keep acting for the tenant after the block has ended."""
    go = asyncio.Event()

    async def later() -> Job[Any]:
        await go.wait()
        return await memory.enqueue("mail")

    with acting_as(ACME):
        task = asyncio.create_task(later())
        on_a_thread = asyncio.create_task(asyncio.to_thread(SecurityContext.current))
    go.set()
    assert (await task).tenant == "acme"
    assert await on_a_thread == ACME
    assert (await memory.enqueue("mail")).tenant == "root"
