"""A handler in a process of its own can say and do what others can."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tests.worker.processes import handlers
from tests.worker.processes.process_state import is_alive
from tidewheel import Job, JobCancelled, JobFailed, Task, Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.worker.processes import pool


async def over(job: Job[Any]) -> Job[Any]:
    """The job, once its attempts are over or it waits for a later one."""

    async def settled() -> bool:
        await job.refresh()
        return job.state not in {"running", "pending"} or job.shown_state in {"delayed", "retrying"}

    await until(settled)
    return job


async def test_one_process_runs_one_job_after_another(memory_app: Tidewheel) -> None:
    """Starting an interpreter is paid once, not for every job."""
    jobs = await handlers.pid.enqueue_many([{}] * 5)
    asynchronous = await handlers.pid_of_async.enqueue()
    assert await memory_app.run_until_idle(concurrency=1) == 6
    pids = {await job.result(timeout=0) for job in [*jobs, asynchronous]}
    assert len(pids) == 1


async def test_processes_that_have_nothing_to_do_or_have_done_much_end(
    memory_app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle ones after a while, busy ones after many jobs; the next job gets a fresh one."""
    monkeypatch.setattr(pool, "MAX_JOBS_PER_PROCESS", 2)
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)
    jobs = await handlers.pid.enqueue_many([{}] * 3)
    async with working(memory_app, concurrency=1):
        pids = [await job.result(timeout=PATIENCE) for job in jobs]
        assert pids[0] == pids[1] != pids[2]
        await until(lambda: not is_alive(pids[2]))


async def test_an_error_is_kept_with_its_traceback_and_tried_again(warm: Tidewheel) -> None:
    """As if the handler had run in the worker: code, message, the handler's own lines."""
    job = await over(await handlers.explodes.enqueue())
    with pytest.raises(JobFailed):
        await job.result(timeout=PATIENCE)
    await job.refresh()
    assert [record.attempt for record in job.attempts] == [1, 2]
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("handler_error", "ValueError: boom \\ud800")
    assert job.error.traceback is not None
    assert 'raise ValueError("boom' in job.error.traceback
    assert "tidewheel/worker" not in job.error.traceback, "the worker's own frames are of no interest"


async def test_an_async_error_that_is_not_retryable_fails_at_once(warm: Tidewheel) -> None:
    """``retryable`` of the exception counts, and its traceback starts at the handler."""
    job = await over(await handlers.explodes_async.enqueue())
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert job.error.message == "tests.worker.processes.handlers.Odd: strange"
    assert job.error.traceback is not None
    assert "asyncio" not in job.error.traceback


async def test_a_retry_function_sees_the_exception_itself(warm: Tidewheel) -> None:
    """It is asked where the exception is."""
    job = await over(await handlers.chooses_its_delay.enqueue())
    assert (job.state, job.attempt) == ("pending", 1)
    assert (job.run_at - job.created_at).total_seconds() > 499


async def test_directives_work_as_elsewhere(warm: Tidewheel) -> None:
    """RetryAfter, Fail, Snooze, Cancel, and an exit that is an error of the attempt."""
    jobs = {
        how: await handlers.directs.options(max_attempts=1 if how == "exit" else 2).enqueue(how=how)
        for how in ("retry", "fail", "snooze", "cancel", "exit")
    }
    for job in jobs.values():
        await over(job)
    assert (jobs["retry"].state, jobs["retry"].attempt) == ("pending", 1)
    assert (jobs["retry"].run_at - jobs["retry"].created_at).total_seconds() > 499
    error = jobs["fail"].error
    assert error is not None
    assert (error.code, error.message, jobs["fail"].attempt) == ("declined", "card declined", 1)
    assert (jobs["snooze"].shown_state, jobs["snooze"].attempt) == ("delayed", 0)
    with pytest.raises(JobCancelled, match="order withdrawn"):
        await jobs["cancel"].result(timeout=PATIENCE)
    assert jobs["exit"].error is not None
    assert jobs["exit"].error.message == "SystemExit: 3"


@pytest.mark.parametrize(
    ("task", "on_main_thread"),
    [(handlers.steps, [True, False]), (handlers.blocking_steps, [True, True])],
    ids=["async", "plain"],
)
async def test_finished_steps_outlive_their_process(
    warm: Tidewheel, mark: Path, task: Task[..., Any], on_main_thread: list[bool]
) -> None:
    """They go through the worker as well; what the process dies of costs the step it was in, and no other."""
    job = await task.enqueue(mark=str(mark))
    first, second = await job.result(timeout=PATIENCE)
    assert [first, second] == [["first", on_main_thread[0]], ["second", on_main_thread[1]]]
    assert mark.read_text().split() == ["first", "second", "second"]
    await job.refresh()
    assert [attempt.error.code for attempt in job.attempts] == ["process_died"] * 2
    assert [(step.name, step.attempt) for step in job.steps] == [("first", 1), ("second", 2)]


async def test_a_process_in_which_a_step_goes_on_is_not_used_again(warm: Tidewheel, mark: Path) -> None:
    """Nor left alone: what its job began must not go on beside the next one."""
    job = await handlers.leaves_a_thread.enqueue(mark=str(mark))
    process = await job.result(timeout=PATIENCE)
    left = int(mark.read_text())
    assert left != process
    await until(lambda: not is_alive(left))
    assert (await job.refresh()).steps == ()


async def test_progress_and_checkpoint_are_written_while_it_runs(warm: Tidewheel, mark: Path) -> None:
    """They go through the worker, under the lease."""
    job = await handlers.reports.enqueue(mark=str(mark))

    async def reported() -> bool:
        await job.refresh()
        return job.checkpoint is not None

    await until(reported)
    assert job.progress is not None
    assert (job.progress.percent, job.progress.message, job.progress.stage) == (42.5, "rendering", "two")
    assert job.checkpoint == {"page": 7}
    mark.touch()
    assert await job.result(timeout=PATIENCE) == [None, 7]


async def test_the_context_knows_what_it_knows_elsewhere(
    warm: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """Job, attempt, fence, whom it is for; and what it logs arrives in the worker's log."""
    with caplog.at_level(logging.INFO):
        options = handlers.tells.options(key="k", tenant="acme", user_id="u", correlation_id="c")
        job = await options.enqueue(name="Ada")
        said = await job.result(timeout=PATIENCE)
    await job.refresh()
    assert said == {
        "id": str(job.id),
        "task": "tells",
        "topic": "tells",
        "key": "k",
        "attempt": 1,
        "fence": said["fence"],
        "worker": job.worker,
        "tenant": "acme",
        "user": "u",
        "correlation": "c",
        "flags": [False, False],
        "thread": "MainThread",
    }
    assert said["fence"] > 0
    assert job.checkpoint == [1]
    (record,) = [record for record in caplog.records if record.name == "tidewheel.job"]
    assert record.getMessage() == "hello from Ada"
    assert (record.__dict__["job_id"], record.__dict__["tenant"]) == (str(job.id), "acme")


async def test_context_variables_do_not_leak_from_one_job_to_the_next(warm: Tidewheel) -> None:
    """The process is the same, the context is not."""
    seen = [await (await handlers.remembers.enqueue()).result(timeout=PATIENCE) for _ in range(3)]
    assert [variable for variable, _ in seen] == ["clean"] * 3
    assert len({pid for _, pid in seen}) == 1


@pytest.mark.parametrize("task", [handlers.acts, handlers.acts_async], ids=["plain", "async"])
async def test_a_tenants_handler_acts_for_its_tenant(warm: Tidewheel, task: Any) -> None:
    """In its process as in the worker, and not a job longer: the process may serve somebody else next."""
    owned = {"tenant": "acme", "user_id": "u", "service_id": "s", "correlation_id": "c"}
    seen = []
    for options in (owned, {}, {"tenant": "globex"}, {}):
        job = await task.options(**options).enqueue()
        seen.append(await job.result(timeout=PATIENCE))
    assert [acting for acting, _ in seen] == [
        ["acme", "u", "s", "c"],
        None,
        ["globex", None, None, None],
        None,
    ]
    assert len({pid for _, pid in seen}) == 1


async def test_large_payloads_and_results_pass(warm: Tidewheel) -> None:
    """Megabytes in both directions."""
    text = "0123456789" * 800_000
    job = await handlers.echoes.enqueue(text.encode())
    assert await job.result(timeout=PATIENCE) == text


async def test_bad_payloads_and_results_fail_at_once(warm: Tidewheel) -> None:
    """As in the worker: trying again cannot help."""
    # A newer version of the program enqueued what this one does not take.
    new = NewJob(id=new_id(), topic="prints", task="prints", payload=b'{"text":1}')
    [answer] = await warm.store.enqueue([new])
    for job, code in (
        (await warm.get(answer.job_id), "invalid_input"),
        (await handlers.returns_nonsense.enqueue(), "invalid_result"),
    ):
        await over(job)
        assert (job.state, job.attempt, job.error and job.error.code) == ("failed", 1, code)


async def test_what_a_handler_prints_goes_where_the_worker_prints(
    memory_app: Tidewheel, capfd: pytest.CaptureFixture[str]
) -> None:
    """And cannot be taken for something the process says to the worker."""
    job = await handlers.prints.enqueue(text="plain words")
    await memory_app.run_until_idle()
    await job.result(timeout=0)
    captured = capfd.readouterr()
    assert captured.out.count("plain words") == 2
    assert captured.err.count("plain words") == 1


async def test_a_fork_of_a_handler_neither_speaks_for_it_nor_outlives_terminate(
    memory_app: Tidewheel, capfd: pytest.CaptureFixture[str]
) -> None:
    """multiprocessing inside a handler works; its logs go to stderr."""
    job = await handlers.forks.enqueue()
    await memory_app.run_until_idle()
    assert await job.result(timeout=0) == "0 -15"
    assert "a fork speaks" in capfd.readouterr().err


async def test_a_fork_can_be_ended_from_its_first_moment(memory_app: Tidewheel) -> None:
    """The signal may be there before the fork has taken its first step."""
    job = await handlers.forks_and_regrets.enqueue()
    await memory_app.run_until_idle()
    assert await job.result(timeout=0) == [-15] * 50


async def test_a_handler_cannot_open_another_store_than_its_worker_has(warm: Tidewheel) -> None:
    """An app on a store in memory, as in tests, must not reach the real one from the process."""
    job = await over(await handlers.enqueues.enqueue())
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.code == "configuration_error"
    assert "isolate=False" in job.error.message


async def test_a_task_error_passes_whole(warm: Tidewheel) -> None:
    """Code, details and retryability come from the process as they were said there."""
    job = await over(await handlers.declines.enqueue())
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("card_declined", "no money")
    assert job.error.details == {"left": 2**62, "tags": ["ä"]}
    assert not job.error.retryable


async def test_callbacks_are_called_in_the_worker(warm: Tidewheel) -> None:
    """Where they can be called also for a process that died."""
    handlers.told.clear()
    await over(await handlers.calls_back.enqueue(fail=False))
    await over(await handlers.calls_back.options(max_attempts=1).enqueue(fail=True))
    await until(lambda: len(handlers.told) == 2)
    (_, first, value), (_, second, error) = handlers.told
    assert first == second == os.getpid()
    assert value == "well"
    assert error.code == "process_died"
