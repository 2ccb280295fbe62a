"""What a copy refuses, and how it goes on after trouble."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.admin.store_transfer.mixed_jobs import all_jobs, fill
from tidewheel import Cron, Every, Rate, Tidewheel, TopicLimits
from tidewheel.admin import store_transfer, transfer_records
from tidewheel.admin.store_transfer import CopyPhase, CopyResult, copy_store
from tidewheel.admin.transfer_records import COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID, CopyMark
from tidewheel.core.model import (
    ClaimRequest,
    Completed,
    JobFilter,
    Lane,
    NewDocument,
    Settlement,
    State,
    WorkerRecord,
)
from tidewheel.errors import ConfigurationError, StoreUnavailable, TidewheelError, WrongState
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock

Apps = tuple[Tidewheel, Tidewheel]
_names = itertools.count(1)


@asynccontextmanager
async def _pair(*, clock: FrozenClock | None = None) -> AsyncIterator[Apps]:
    number = next(_names)
    async with (
        Tidewheel(f"memory://copy-from-{number}", clock=clock) as source,
        Tidewheel(f"memory://copy-to-{number}", clock=clock) as target,
    ):
        yield source, target


@pytest.fixture
async def apps() -> AsyncIterator[Apps]:
    """Two empty stores. The conformance suite tells what stores do; this is about what is asked of them."""
    async with _pair() as apps:
        yield apps


async def _copy(apps: Apps, *, live: bool = False) -> CopyResult:
    return await copy_store(*apps, watch=lambda *_: None, live=live)


async def test_an_empty_store_is_copied(apps: Apps) -> None:
    """Nothing is a number of jobs, too."""
    copied = await _copy(apps)
    assert (copied.jobs, copied.written, copied.paused) == (0, 0, ())


async def test_the_copy_has_the_same_digest_whatever_the_store(apps: Apps, tmp_path: Path) -> None:
    """Two copies of one store can be compared by what they printed."""
    await fill(apps[0].store, 300)
    first = await _copy(apps, live=True)
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal") as other:
        assert await _copy((apps[0], other), live=True) == first
        await other.delete((await other.jobs(state="pending", limit=1)).items[0].id)
        async with _pair() as (_, third):
            shorter = await _copy((other, third), live=True)
    assert shorter.jobs == first.jobs - 1
    assert shorter.digest != first.digest


async def test_what_is_watched_counts_up_to_all_jobs(apps: Apps) -> None:
    """The bar ends at its end, in each phase; a phase that has nothing to do is not shown."""
    await fill(apps[0].store, 1200)
    seen: list[tuple[CopyPhase, int, int]] = []
    await copy_store(*apps, watch=lambda *step: seen.append(step), live=True)
    ends = {phase: (done, total) for phase, done, total in seen}
    assert ends == {CopyPhase.WRITE: (1200, 1200), CopyPhase.VERIFY: (1200, 1200)}
    await copy_store(*apps, watch=lambda *step: seen.append(step), live=True)
    assert seen[-1] == (CopyPhase.VERIFY, 1200, 1200)
    assert (CopyPhase.INSPECT, 1200, 1200) in seen


# -- trouble ------------------------------------------------------------------------------------------------

WRITES = ("import_jobs", "pause", "write_documents", "remove_document")


@contextmanager
def _failing(store: Store, on: int, *, after: bool) -> Iterator[None]:
    """Let the call of this number of all that write fail, before or after it is done; back as it was then."""
    calls = itertools.count(1)

    def wrapped(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **options: Any) -> Any:
            failing = next(calls) == on
            if failing and not after:
                raise StoreUnavailable("cut off")
            answer = await verb(*arguments, **options)
            if failing:
                raise StoreUnavailable("the answer was lost")
            return answer

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(store, name, wrapped(getattr(store, name)))
        yield


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_copy_goes_on_wherever_it_was_cut_off(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each write in turn, done or not: the next run ends with the same jobs, and each is there once."""
    monkeypatch.setattr(store_transfer, "PAGE_JOBS", 40)
    cut_off = 0
    for on in range(1, 30):
        async with _pair() as (source, target):
            await fill(source.store, 150)
            with _failing(target.store, on, after=after):
                try:
                    await _copy((source, target), live=True)
                except StoreUnavailable:
                    cut_off += 1
                else:
                    assert cut_off == on - 1 > 5  # one after the other, until there was none left
                    return
            copied = await _copy((source, target), live=True)
            assert await all_jobs(target.store) == await all_jobs(source.store)
            assert copied.jobs == 150
            assert await target.store.check() == []
    pytest.fail("a copy of 150 jobs takes fewer writes than that")


async def test_jobs_that_come_in_meanwhile_are_told_and_copied_by_the_next_run(apps: Apps) -> None:
    """A producer that nobody stopped loses nothing: the command says so, and goes on when started again."""
    source, target = apps
    await fill(source.store, 600)
    place = target.store.import_jobs

    async def meanwhile(jobs: Any) -> list[bool]:
        await source.enqueue("late", {})
        return await place(jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target.store, "import_jobs", meanwhile)
        with pytest.raises(WrongState, match=r"2 jobs came to memory://.* start the same command again"):
            await _copy(apps, live=True)
    assert (await _copy(apps, live=True)).written == 2
    assert await all_jobs(target.store) == await all_jobs(source.store)


async def test_a_job_that_changes_meanwhile_fails_the_verification(apps: Apps) -> None:
    """What was written is read again and compared: a copy that is not the same is never called one."""
    source, target = apps
    job = await source.enqueue("mail", {"secret": "s3"})
    place = target.store.import_jobs

    async def meanwhile(jobs: Any) -> list[bool]:
        done = await place(jobs)
        await source.cancel(job.id)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target.store, "import_jobs", meanwhile)
        with pytest.raises(WrongState, match=f"job {job.id}: cancelled in FROM, pending in TO"):
            await _copy(apps)
    with pytest.raises(
        WrongState, match=r"changed in one of them since an earlier copy\. Nothing was copied"
    ):
        await _copy(apps)


async def _late(app: Tidewheel, job_id: Any) -> None:
    await app.enqueue("late", {})


async def _cancelled(app: Tidewheel, job_id: Any) -> None:
    await app.cancel(job_id)


async def _deleted(app: Tidewheel, job_id: Any) -> None:
    await app.delete(job_id)


@pytest.mark.parametrize("side", [0, 1], ids=["source", "target"])
@pytest.mark.parametrize("change", [_late, _cancelled, _deleted])
async def test_what_changes_behind_the_comparison_is_noticed(
    apps: Apps,
    side: int,
    change: Callable[[Tidewheel, Any], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verifying reads the newest first: a job that comes or changes above that spoils the copy, too."""
    monkeypatch.setattr(store_transfer, "PAGE_JOBS", 5)
    jobs = await apps[0].enqueue_many("mail", [{}] * 20)
    whole_jobs = apps[0].store.export_jobs
    verifying = changed = False

    def watch(phase: CopyPhase, *_: int) -> None:
        nonlocal verifying
        verifying = phase is CopyPhase.VERIFY

    async def meanwhile(*, limit: int, before: int | None = None) -> Any:
        nonlocal changed
        if verifying and not changed:
            changed = True
            await change(apps[side], jobs[-1].id)
        return await whole_jobs(limit=limit, before=before)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apps[0].store, "export_jobs", meanwhile)
        with pytest.raises(WrongState, match="changed while it was compared"):
            await copy_store(*apps, watch=watch)


async def test_a_worker_that_began_meanwhile_is_told_at_the_end(apps: Apps) -> None:
    """It would run at the source what is copied."""
    await apps[0].enqueue("mail", {})
    place = apps[1].store.import_jobs

    async def meanwhile(jobs: Any) -> list[bool]:
        await apps[0].store.heartbeat(_worker())
        return await place(jobs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apps[1].store, "import_jobs", meanwhile)
        with pytest.raises(WrongState, match="workers are at work on memory://copy-from"):
            await _copy(apps)


@pytest.mark.parametrize("cut_off", [False, True], ids=["copied", "cut off"])
async def test_a_job_that_ran_in_the_target_and_is_gone_does_not_come_again(
    apps: Apps, cut_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the copy before was done or not: what is missing may be missing because it is done."""
    monkeypatch.setattr(store_transfer, "PAGE_JOBS", 5)
    source, target = apps
    await source.enqueue_many("mail", [{}] * 20, retention=0)
    if cut_off:
        with _failing(target.store, 6, after=False), pytest.raises(StoreUnavailable):
            await _copy(apps)
    else:
        await _copy(apps)
    before = await all_jobs(target.store)
    assert 0 < len(before) < 20 if cut_off else len(before) == 20
    [ran] = (await target.store.claim(ClaimRequest("early", (Lane("mail"),), 1, 30.0))).jobs
    await target.store.settle([Settlement(ran.lease, Completed(), 0.1)])
    await target.store.prune()
    await _refused(apps, WrongState, f"an earlier copy put into memory://.* {len(before) - 1} are left")
    await target.delete_all(topic="mail")  # an empty store that was not always
    await _refused(apps, WrongState, "0 are left. They have run or were deleted")


async def test_a_lease_that_holds_is_found_behind_a_thousand_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a crash many leases have ended; one that a client of beanstalkd has still counts."""
    monkeypatch.setattr(store_transfer, "MAX_BATCH", 2)
    clock = FrozenClock()
    async with _pair(clock=clock) as apps:
        await apps[0].enqueue_many("mail", [{}] * 4)
        await apps[0].store.claim(ClaimRequest("gone", (Lane("mail"),), 3, 30.0))
        clock.advance(1)
        await apps[0].store.claim(ClaimRequest("there", (Lane("mail"),), 1, 60.0))
        clock.advance(30)
        await _refused(
            apps, WrongState, "1 job of memory://.* may still be running: leases hold for up to 30 s"
        )


async def test_much_in_the_target_is_looked_at_a_part_at_a_time(
    apps: Apps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs are above those of the source, they are not held in memory all at once."""
    monkeypatch.setattr(store_transfer, "PAGE_JOBS", 5)
    await apps[0].enqueue("mail", {})
    await apps[1].enqueue_many("mine", [{}] * 100)
    async with aclosing(store_transfer.pair_jobs(apps[0].store, apps[1].store)) as pages:
        sizes = [len(pairs) async for pairs in pages]
    assert sum(sizes) == 100
    assert max(sizes) <= 10


async def test_values_are_not_told_where_jobs_differ(apps: Apps) -> None:
    """An error goes to logs and tickets; a payload does not belong there."""
    source, _ = apps
    await source.enqueue("mail", {"secret": "s3"}, key="k")
    await _copy(apps)
    await source.enqueue("mail", {"secret": "s4"}, key="k", on_duplicate="replace")
    with pytest.raises(WrongState, match=r"another .*payload") as caught:
        await _copy(apps)
    assert "s3" not in str(caught.value)
    assert "s4" not in str(caught.value)


# -- refused ------------------------------------------------------------------------------------------------


async def _refused(apps: Apps, kind: type[TidewheelError], match: str, *, live: bool = False) -> None:
    """Nothing is changed in either."""
    before = [(await all_jobs(app.store), await app.store.topics()) for app in apps]
    with pytest.raises(kind, match=match):
        await _copy(apps, live=live)
    assert [(await all_jobs(app.store), await app.store.topics()) for app in apps] == before


async def test_a_target_with_jobs_of_its_own_is_refused(apps: Apps) -> None:
    """Whether their numbers are in the way or far above: jobs of two queues are not mixed."""
    source, target = apps
    await fill(source.store, 700)
    own = await target.enqueue("mine", {})
    await _refused(apps, WrongState, f"is not empty: job {own.id} .*not a job of memory://", live=True)
    await target.enqueue_many("mine", [{}] * 1000)
    await target.delete_all(topic="mine")
    far = await target.enqueue("mine", {})
    assert far.number > 700
    await _refused(apps, WrongState, "goes to an empty store, or on with an earlier copy", live=True)


async def test_a_store_is_not_copied_into_itself(tmp_path: Path) -> None:
    """Also under another name, such as a symbolic link."""
    url = f"sqlite:///{tmp_path}/jobs.db?synchronous=normal"
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    async with Tidewheel(url) as source, Tidewheel(f"sqlite:///{tmp_path}/link/jobs.db") as target:
        await source.enqueue("mail", {})
        await _refused((source, target), ConfigurationError, "the same store, under two names")
        assert await source.store.document(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID) is None


def _worker(seen_at: int = 0) -> WorkerRecord:
    return WorkerRecord(name="anna", host="here", pid=1, version="1", started_at=1, seen_at=seen_at)


async def test_workers_at_work_on_the_source_are_a_reason_to_refuse() -> None:
    """Unless told; those that were not seen for long are none."""
    clock = FrozenClock()
    async with _pair(clock=clock) as apps:
        await apps[0].enqueue("mail", {})
        await apps[0].store.heartbeat(_worker())
        await _refused(apps, WrongState, r"workers are at work on memory://copy-from.*anna on here")
        assert (await _copy(apps, live=True)).jobs == 1
        clock.advance(21)
        assert (await _copy(apps)).jobs == 1


async def test_workers_at_work_on_the_target_are_refused_whatever_is_told(apps: Apps) -> None:
    """They would run what has not been verified yet."""
    await apps[1].store.heartbeat(_worker())
    for live in (False, True):
        await _refused(apps, WrongState, "workers are at work on memory://copy-to", live=live)


async def test_a_job_that_may_be_running_is_refused_until_its_lease_has_ended() -> None:
    """Nobody knows who holds it; after that it goes on at the copy, as a job of a lost worker."""
    clock = FrozenClock()
    async with _pair(clock=clock) as apps:
        job = await apps[0].enqueue("mail", {})
        request = ClaimRequest("gone", (Lane("mail"),), 1, 30.0)
        [claimed] = (await apps[0].store.claim(request)).jobs
        await apps[0].store.mark_started([claimed.lease])
        await _refused(
            apps, WrongState, "1 job of memory://.* may still be running: leases hold for up to 30 s"
        )
        clock.advance(30)
        assert (await _copy(apps)).states == {State.RUNNING: 1}
        [again] = (await apps[1].store.claim(request)).jobs
        assert (again.lease.job_id, again.attempt) == (job.id, 2)


async def test_two_copies_into_one_store_do_not_meet(apps: Apps) -> None:
    """The second is told who is at work; a mark whose process has ended holds nobody up."""
    mark = b'{"token": "t", "source": "sqlite:///other.db", "host": "%s", "pid": %d}'
    far = NewDocument(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID, mark % (b"elsewhere", 7), None)
    await apps[1].store.write_documents([far])
    await _refused(apps, WrongState, r"another copy .* from sqlite:///other.db, .*process 7 on elsewhere")
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    near = NewDocument(
        COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID, mark % (socket.gethostname().encode(), ended.pid), None
    )
    await apps[1].store.write_documents([near])
    assert (await _copy(apps)).jobs == 0
    assert await apps[1].store.document(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID) is None


async def test_a_mark_that_expired_is_set_again_at_once(apps: Apps) -> None:
    """A process that was stopped for a while and goes on keeps others out from its first page on."""
    mark = CopyMark(apps[1].store, "memory://")
    await mark.set(apps[0].store)
    await apps[1].store.remove_document(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer_records, "RENEW_SECONDS", 0.0)
        await mark.renew()
    assert await apps[1].store.document(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID) is not None


async def test_a_source_that_is_not_up_to_date_is_left_as_it_is(tmp_path: Path) -> None:
    """A copy changes nothing in its source, not even its schema."""
    path = tmp_path / "other.db"
    async with Tidewheel(f"sqlite:///{path}", migrate=False) as source, _pair() as (_, target):
        with pytest.raises(WrongState, match="run `tidewheel migrate"):
            await copy_store(source, target, watch=lambda *_: None)
        assert await source.store.pending_migrations() != []


async def test_pauses_are_there_before_the_first_job(apps: Apps) -> None:
    """A worker that is started too early finds paused what was paused; pauses of the target's own stay."""
    source, target = apps
    await source.enqueue("mail", {})
    await source.pause("mail")
    await source.pause("later", 3600)
    await target.pause("mine")

    async def cut(_: Any) -> list[bool]:
        raise StoreUnavailable("cut off")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target.store, "import_jobs", cut)
        with pytest.raises(StoreUnavailable):
            await _copy(apps)
    assert [one.topic for one in await target.topics()] == ["later", "mail", "mine"]
    assert (await _copy(apps)).paused == ("later", "mail")
    assert (await target.store.count(JobFilter())).total == 1


# -- schedules ----------------------------------------------------------------------------------------------


async def test_schedules_come_along_as_far_as_they_have_come() -> None:
    """The copy makes neither a firing again nor none: it goes on where the source has stopped."""
    clock = FrozenClock()
    async with _pair(clock=clock) as (source, target):
        await source.schedules.create("hourly", "pile", Every(3600, missed="all"), {"n": 1}, priority=2)
        await source.schedules.create("off", "pile", Cron("0 3 * * *"))
        await source.schedules.pause("off")
        source.task(name="other")(_nothing)
        clock.advance(2 * 3600)
        await source.run_until_idle(handle_signals=False)
        for _ in range(2):  # again, as after a kill
            assert (await _copy((source, target))).schedules == ("hourly", "off")
        before, after = await source.schedules.all(), await target.schedules.all()
        for mine, theirs in zip(before, after, strict=True):
            assert replace(theirs, created_at=mine.created_at, updated_at=mine.updated_at) == mine
        clock.advance(3600)
        target.task(name="other")(_nothing)
        await target.run_until_idle(handle_signals=False)
        assert (await target.schedules.get("hourly")).fired == 3


async def test_schedules_of_a_source_that_goes_on_are_paused_in_the_copy() -> None:
    """Or both would fire."""
    async with _pair() as (source, target):
        await source.schedules.create("hourly", "pile", Every(3600))
        await _copy((source, target), live=True)
        assert [one.paused for one in await target.schedules.all()] == [True]
        assert [one.paused for one in await source.schedules.all()] == [False]


async def _nothing() -> None:
    pass


async def test_limits_come_along_and_hold_what_runs(apps: Apps) -> None:
    """As they were set, with who set them; jobs that came over running count."""
    source, target = apps
    await source.limits.set("mail", TopicLimits(concurrency=1, rate=Rate(5, 60)))
    await source.store.set_limits("code", TopicLimits(fair=True).as_declared())
    await source.enqueue_many("mail", [{}] * 2)
    request = ClaimRequest("w", (Lane("mail"),), 5, 600.0)
    assert len((await source.store.claim(request)).jobs) == 1
    await _copy(apps, live=True)
    assert await target.limits.list() == await source.limits.list()
    assert (await target.store.claim(request)).jobs == ()
