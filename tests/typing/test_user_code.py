"""User code under a strict type checker: the types it sees, and the mistakes it is told about."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

# Each line with a "reveals:" comment is a reveal_type whose answer must contain that text; each line with
# "refused:" must be an error of that code; no other line may have one.
USER_CODE = """
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import tidewheel
from tidewheel import (
    BY_PAYLOAD,
    Alias,
    Batch,
    BatchContext,
    CallNext,
    Context,
    Cron,
    Every,
    Fail,
    Job,
    JobDraft,
    JobError,
    Middleware,
    Retry,
    SecurityContext,
    TaskError,
    Tidewheel,
    by_fields,
    acting_as,
)

app = Tidewheel("memory://", lease=30, timeout=None)
Tidewheel("memory://", leese=30)  # refused: call-arg
Tidewheel("https://queue.example.com", token="tw_…")
Tidewheel("https://queue.example.com", token=42)  # refused: arg-type

included = app.include(tidewheel.builtin, roots=["data"], options={"create_file": {"max_attempts": 5}})
reveal_type(included["create_file"])  # reveals: "tidewheel.tasks.task.Task[..., Any]"
app.include(tidewheel.builtin, rots=["data"])  # refused: call-arg
app.include(tidewheel.builtin, roots=["data"], file_mode="600")  # refused: arg-type
app.include(tidewheel.builtin, roots=["data"], allowed_hosts=["*"], max_download_bytes=10**9)
app.include(tidewheel.builtin, aws_region="eu-central-1", aws_resource_types=["AWS::S3::Bucket"])
app.include(tidewheel.builtin, roots=["data"], claude_command=["claude", "-p"])
app.include(tidewheel.builtin, roots=["data"], max_answer_bytes="many")  # refused: arg-type
app.include(tidewheel.errors)  # refused: arg-type


@app.task(schedule=Cron("0 3 * * *", zone="Europe/Berlin", missed="skip"))
async def nightly(ctx: Context) -> None:
    reveal_type(ctx.scheduled_for)  # reveals: datetime.datetime | None


app.task(schedule="0 3 * * *")  # refused: call-overload|arg-type
Cron("0 3 * * *", missed="some")  # refused: arg-type
app.schedule("nightly:2", nightly, Every(60), {"a": 1}, priority=5)
app.schedule("nightly:3", nightly, Every(60), prioritty=5)  # refused: call-arg


@app.task
async def with_alias(user_id: Annotated[str, Alias("userId")]) -> None: ...


@dataclass
class Order:
    number: int


@app.task
async def plain_async(user_id: str, count: int = 1) -> int:
    return count


@app.task
def plain_sync(user_id: str) -> list[str]:
    return []


@app.task
async def with_context(ctx: Context, user_id: str) -> None: ...


@app.task
async def with_transaction(ctx: Context) -> None:
    reveal_type(await ctx.transaction.execute("DELETE FROM t WHERE a = ?", 1))  # reveals: "int"
    reveal_type(await ctx.transaction.fetch("SELECT 1"))  # reveals: "list[Any]"
    reveal_type(ctx.sync.transaction.execute("SELECT 1"))  # reveals: "int"
    await ctx.transaction.execute(b"SELECT 1")  # refused: arg-type


@app.task
def sync_with_context(ctx: Context, order: Order) -> Order:
    return order


@app.task(max_attempts=5, timeout=60, retry=Retry.fixed(3), key=BY_PAYLOAD)
async def options_async(ctx: Context, user_id: str) -> dict[str, int]:
    return {}


@app.task(name="other", topic="t", aliases=["old"])
def options_sync(*, user_id: str) -> str:
    return user_id


@app.task(isolation="process", memory_limit="256MB")
def isolated(n: int) -> int:
    return n


@app.task(durable=False)
def in_process(ctx: Context, call: Callable[[], int], order: Order) -> Callable[[], int]:
    return call


@app.task(batch=100)
async def together(orders: list[Order]) -> list[int | Fail]:
    return []


@app.task(batch=Batch(size=10, wait=0.05), max_attempts=2)
async def together_with_context(ctx: BatchContext, orders: Sequence[Order]) -> list[str]:
    reveal_type(ctx[0])  # reveals: "tidewheel.tasks.context.Context"
    return [str(one.job.id) for one in ctx]


@app.task(batch=2)
def together_sync(numbers: list[int]) -> None: ...


@app.task(batch="many")  # refused: call-overload|arg-type
def too_many(orders: list[Order]) -> None: ...


async def enqueue_together() -> None:
    reveal_type(await together.enqueue(Order(1)))  # reveals: "tidewheel.client.job_handle.Job[int]"
    reveal_type(await together_with_context.enqueue(Order(1)))  # reveals: "tidewheel.client.job_handle.Job[str]"
    reveal_type(together_sync.sync.enqueue(1))  # reveals: BlockingJob[None]
    await together.enqueue([Order(1)])  # refused: arg-type
    await together_sync.options(delay=1).enqueue("one")  # refused: arg-type


@app.middleware
async def around(ctx: Context | BatchContext, call_next: CallNext) -> Any:
    return await call_next()


@app.middleware
def coming_in(job: JobDraft) -> None:
    job.change(priority=5, payload={"number": 1}, headers={"a": "b"})
    job.change(prioritty=5)  # refused: call-arg
    job.change(headers={"a": 1})  # refused: dict-item


class Both(Middleware):
    def enqueue(self, job: JobDraft) -> None: ...


reveal_type(app.middleware(Both()))  # reveals: Both"
request_id: ContextVar[str] = ContextVar("request_id")
level: ContextVar[int] = ContextVar("level")
app.carry(request_id)
app.carry(level, dump=str, load=int)
app.carry(level)  # refused: call-overload|arg-type


@app.task(durable="no")  # refused: call-overload|arg-type
def not_durable() -> None: ...


@app.task(isolation="thread")  # refused: call-overload|arg-type
def misplaced() -> None: ...


async def told(ctx: Context, result: int) -> None: ...


def failed(error: JobError) -> None:
    reveal_type(error.details)  # reveals: Mapping


def three(a: int, b: int, c: int) -> None: ...


@app.task(on_success=told, on_failure=failed, fallback=lambda: None)
async def calling() -> int:
    raise TaskError("no", code="refused", details={"a": 1}, retryable=False)


@app.task(on_failure=three)  # refused: call-overload|arg-type
def miscalling() -> None: ...


@app.task()
def empty() -> bytes:
    return b""


@app.task
def loose(payload: Any) -> int:
    return 1


@app.task(max_attempt=5)  # refused: call-overload
def misspelt() -> None: ...


async def fetch(url: str, *, pages: int = 1) -> list[Order]:
    return []


def total(orders: list[Order]) -> int:
    return len(orders)


@app.task
async def stepwise(ctx: Context, url: str) -> int:
    orders = await ctx.step("fetch", fetch, url, pages=2)
    reveal_type(orders)  # reveals: list[Order]
    reveal_type(await ctx.step("total", total, orders))  # reveals: int
    reveal_type(await ctx.step("length", lambda: len(url)))  # reveals: int
    reveal_type(await ctx.step("again", lambda: fetch(url)))  # reveals: list[Order]
    await ctx.step("fetch", fetch, 1)  # refused: call-overload|arg-type
    await ctx.step("fetch", fetch)  # refused: call-overload|call-arg
    await ctx.step("fetch", fetch, url, page=2)  # refused: call-overload|call-arg
    await ctx.step(fetch, url)  # refused: call-overload
    return await ctx.step("total", total, orders)


@app.task
def stepwise_sync(ctx: Context, orders: list[Order]) -> int:
    reveal_type(ctx.sync.step("total", total, orders))  # reveals: int
    ctx.sync.step("total", total, 1)  # refused: arg-type
    return 1


async def main() -> None:
    reveal_type(plain_async)  # reveals: Task[[user_id: str, count: int =], int]
    reveal_type(plain_sync)  # reveals: Task[[user_id: str], list[str]]
    reveal_type(with_context)  # reveals: Task[[user_id: str], None]
    reveal_type(sync_with_context)  # reveals: Task[[order: Order], Order]
    reveal_type(options_async)  # reveals: Task[[user_id: str], dict[str, int]]
    reveal_type(options_sync)  # reveals: Task[[*, user_id: str], str]
    reveal_type(isolated)  # reveals: Task[[n: int], int]
    reveal_type(in_process)  # reveals: Task[[call: def () -> int, order: Order], def () -> int]
    reveal_type(app.lane.stats().waiting)  # reveals: int
    reveal_type(empty)  # reveals: Task[[], bytes]

    job = await plain_async.enqueue(user_id="42")
    reveal_type(job)  # reveals: Job[int]
    reveal_type(await job.result(timeout=10))  # reveals: int
    reveal_type(job.created_at)  # reveals: datetime
    for step in job.steps:
        reveal_type(step)  # reveals: tidewheel.client.job_handle.Step
        reveal_type(step.seconds)  # reveals: float
    for entry in job.timeline:
        reveal_type(entry)  # reveals: tidewheel.core.timeline.TimelineEntry
        reveal_type(entry.at)  # reveals: datetime | None
    await plain_async.enqueue("42", 2)
    await plain_async.enqueue(user_id=42)  # refused: arg-type
    await plain_async.enqueue()  # refused: call-arg
    await plain_async.enqueue(user="42")  # refused: call-arg
    await with_context.enqueue(user_id="42")
    await with_context.enqueue(user_id=42)  # refused: arg-type
    await sync_with_context.enqueue(Order(1))
    await sync_with_context.enqueue("order")  # refused: arg-type
    await options_sync.enqueue("42")  # refused: call-arg|misc
    await empty.enqueue(1)  # refused: call-arg
    await loose.enqueue(payload=1)

    bound = options_async.options(delay=60, priority=150, key="42")
    reveal_type(bound)  # reveals: BoundTask[[user_id: str], dict[str, int]]
    reveal_type(await bound.enqueue(user_id="42"))  # reveals: Job[dict[str, int]]
    await bound.enqueue(user_id=42)  # refused: arg-type
    options_async.options(dealy=60)  # refused: call-arg
    options_async.options(delay="60")  # refused: typeddict-item|arg-type
    options_async.options(until="never")  # refused: arg-type
    options_async.options(run_at=datetime.now(UTC), timeout=None, key=BY_PAYLOAD)
    options_async.options(key=by_fields("a"))
    options_async.options(key=7)  # refused: arg-type
    many = await options_async.enqueue_many([{"user_id": "1"}])
    reveal_type(many)  # reveals: list[tidewheel.client.job_handle.Job[dict[str, int]]]

    named = await app.enqueue("plain_async", {"user_id": "42"}, run_at=datetime.now(UTC))
    reveal_type(named)  # reveals: Job[Any]
    await app.enqueue(plain_async, {"user_id": "42"}, priority=1)
    await app.enqueue("plain_async", {}, prioritty=1)  # refused: call-overload
    page = await app.jobs(state="failed", topic="mail", limit=50)
    reveal_type(page)  # reveals: JobPage[tidewheel.client.job_handle.Job[Any]]
    for listed in page:
        reveal_type(listed)  # reveals: Job[Any]
    await app.jobs(sate="failed")  # refused: call-arg
    await app.requeue_all(where='error:"timed out" age>1h')
    await app.count(where=5)  # refused: arg-type
    reveal_type((await app.stats()).pending)  # reveals: int
    reveal_type(await app.task_stats())  # reveals: list[tidewheel.core.reports.TaskStats]
    reveal_type(await app.questions.stuck())  # reveals: StuckJobs
    reveal_type((await app.questions.failed(topic="mail")).groups[0].where)  # reveals: str
    await app.questions.failed(tpoic="mail")  # refused: call-arg
    reveal_type(app.sync.questions.outstanding().due)  # reveals: int
    reveal_type((await app.questions.attention()).findings[0].severity)  # reveals: Severity
    reveal_type(await app.enqueue_copy(job.id, patch={"a": None}, priority=3))  # reveals: Job[Any]
    await app.enqueue_copy(job.id, topic="mail")  # refused: call-arg
    reveal_type(app.sync.enqueue_copy(job.id, payload={}))  # reveals: BlockingJob[Any]
    reveal_type(await app.migrate(rls=True))  # reveals: list[str]
    reveal_type(await app.cancel(job.id))  # reveals: bool
    for worker in await app.workers():
        reveal_type(worker)  # reveals: WorkerInfo
        reveal_type(worker.missing)  # reveals: bool
    reveal_type(await app.schedules.create("a", nightly, Every(60)))  # reveals: Schedule
    reveal_type((await app.schedules.all())[0].next_runs)  # reveals: tuple[datetime.datetime, ...]
    reveal_type(await app.schedules.run("a"))  # reveals: Job[Any]
    reveal_type(app.sync.schedules.run("a"))  # reveals: BlockingJob[Any]
    await app.run_worker(concurrency=10, topics=["mail"])
    await app.run_until_idle(isolate=False)
    await app.run_worker(concurency=10)  # refused: call-arg


async def counted(tenant: str) -> int:
    with acting_as(SecurityContext(tenant, user_id="ada")) as context:
        reveal_type(context)  # reveals: SecurityContext | None
        reveal_type(SecurityContext.current())  # reveals: SecurityContext | None
        reveal_type(await app.topics(tenant=tenant))  # reveals: list[tidewheel.core.reports.TopicStats]
        acting_as(tenant)  # refused: arg-type
        return (await app.count()).total


class Driver:
    def execute(self, statement: str) -> int:
        return 1


class AsyncDriver:
    async def execute(self, statement: str) -> int:
        return 1


async def in_a_transaction(driver: Driver, async_driver: AsyncDriver) -> None:
    reveal_type(plain_async.using(driver).enqueue(user_id="42"))  # reveals: BlockingJob[int]
    reveal_type(plain_async.using(driver).enqueue_many([{}])[0])  # reveals: BlockingJob[int]
    reveal_type(await plain_async.using(async_driver).enqueue(user_id="42"))  # reveals: Job[int]
    reveal_type(await plain_async.options(delay=3).using(async_driver).enqueue("42"))  # reveals: Job[int]
    plain_async.using(driver).enqueue(user_id=42)  # refused: arg-type
    await plain_async.using(async_driver).enqueue(user_id=42)  # refused: arg-type
    reveal_type(app.enqueue("plain_async", {}, using=driver))  # reveals: BlockingJob[Any]
    reveal_type(await app.enqueue("plain_async", {}, using=async_driver))  # reveals: Job[Any]


def blocking() -> None:
    job = plain_async.sync.enqueue(user_id="42")
    reveal_type(job)  # reveals: BlockingJob[int]
    reveal_type(job.result(timeout=10))  # reveals: int
    plain_async.sync.enqueue(user_id=42)  # refused: arg-type
    reveal_type(plain_async.sync.options(delay=3).enqueue("42"))  # reveals: BlockingJob[int]
    reveal_type(plain_async.options(delay=3).sync.enqueue("42"))  # reveals: BlockingJob[int]
    reveal_type(app.sync.get(job.id))  # reveals: BlockingJob[Any]
    reveal_type(app.sync.jobs(state="failed"))  # reveals: JobPage[tidewheel.client.sync.blocking_jobs.BlockingJob[Any]]
    app.sync.jobs(sate="failed")  # refused: call-arg
    reveal_type(app.telemetry.prometheus())  # reveals: str
    with app.sync as queue:
        reveal_type(queue.count(topic="t").total)  # reveals: int
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What mypy says about each line."""
    directory = tmp_path_factory.mktemp("typing")
    path = directory / "user_code.py"
    path.write_text(USER_CODE, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    ran = subprocess.run(
        [*command, "--config-file=", f"--cache-dir={directory / 'cache'}", str(path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=directory,
    )
    assert not ran.stderr
    said: dict[int, list[str]] = {}
    for line in ran.stdout.splitlines():
        match = re.search(r"user_code\.py:(\d+): (error|note): (.*)", line)
        assert match, line
        said.setdefault(int(match[1]), []).append(f"{match[2]}: {match[3]}")
    return said


def test_a_type_checker_knows_payloads_and_results(checked: dict[int, list[str]]) -> None:
    """Handlers with and without context, sync and async, bare and with options keep their types."""
    for number, line in enumerate(USER_CODE.splitlines(), 1):
        if "# reveals: " in line:
            expected = line.split("# reveals: ")[1]
            answers = " ".join(checked.get(number, [])).replace("builtins.", "").replace("user_code.", "")
            assert expected in answers, f"line {number}: {line.strip()} answered {answers}"


def test_a_type_checker_refuses_wrong_payloads_and_options(checked: dict[int, list[str]]) -> None:
    """A mistake is found before the program runs, and correct code is left in peace."""
    for number, line in enumerate(USER_CODE.splitlines(), 1):
        errors = [said for said in checked.get(number, []) if said.startswith("error")]
        if "# refused: " in line:
            codes = line.split("# refused: ")[1].split("|")
            assert any(f"[{code}]" in error for error in errors for code in codes), f"line {number}: {errors}"
        else:
            assert not errors, f"line {number}: {line.strip()}: {errors}"
