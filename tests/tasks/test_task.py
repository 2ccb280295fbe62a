from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidewheel import BY_PAYLOAD, ConfigurationError, Context, InvalidInput, Retry, Tidewheel, by_fields
from tidewheel.core.model import KeyLifetime, NewJob, OnDuplicate
from tidewheel.tasks.task import BoundTask, Task


@pytest.fixture
def app() -> Tidewheel:
    """Not opened: these tests look at what would be written."""
    return Tidewheel("memory://")


def wait_for(attempt: int, error: BaseException) -> float:
    return 1.0


def written(bound: BoundTask[Any, Any] | Task[Any, Any], **kwargs: Any) -> NewJob:
    """The job this call would write."""
    task = bound if isinstance(bound, Task) else bound._task
    return task.job_for_call(bound._template, (), kwargs)


def test_a_tasks_options_lie_over_the_settings_and_a_calls_over_the_tasks() -> None:
    """The nearest word wins, field by field."""
    app = Tidewheel("memory://", max_attempts=9, timeout=99, retention=999, tenant="acme")

    @app.task
    def plain() -> None: ...

    @app.task(max_attempts=5, timeout=60, priority=7, retention=50)
    def chosen() -> None: ...

    job = written(plain)
    assert (job.max_attempts, job.timeout, job.priority, job.retention, job.tenant) == (9, 99, 0, 999, "acme")
    job = written(chosen)
    assert (job.max_attempts, job.timeout, job.priority, job.retention) == (5, 60, 7, 50)
    job = written(chosen.options(max_attempts=1, priority=-3, tenant="other"))
    assert (job.max_attempts, job.timeout, job.priority, job.tenant) == (1, 60, -3, "other")


def test_none_means_unlimited_where_that_is_a_value(app: Tidewheel) -> None:
    """No timeout, no end of attempts, kept for ever: each can be said for one job."""

    @app.task(max_attempts=5)
    def task() -> None: ...

    job = written(task.options(timeout=None, max_attempts=None, retention=None))
    assert (job.timeout, job.max_attempts, job.retention, job.retention_failed) == (None, None, None, None)


def test_none_means_not_given_for_the_rest(app: Tidewheel) -> None:
    """Values can be passed through without asking whether there are any."""

    @app.task(key="k")
    def task() -> None: ...

    options = task.options(
        run_at=None, delay=None, expires=None, tenant=None, topic=None, retry=None, correlation_id=None
    )
    assert written(options).key == "k"
    assert written(options).tenant == "root"


def test_failed_jobs_are_kept_as_long_as_others_unless_told() -> None:
    """``retention_failed`` defaults to ``retention``, on every level."""
    app = Tidewheel("memory://", retention=10)
    strict = Tidewheel("memory://", retention=10, retention_failed=77)

    def task() -> None: ...

    assert written(app.task(task)).retention_failed == 10
    assert written(app.task(name="b", retention=20)(task)).retention_failed == 20
    assert written(strict.task(task)).retention_failed == 77
    assert written(strict.task(name="b", retention_failed=5)(task)).retention_failed == 5


def test_times_become_microseconds_and_seconds(app: Tidewheel) -> None:
    """Any time zone and any way to say a duration; one unit below."""

    @app.task
    def task() -> None: ...

    when = datetime(2030, 1, 1, 12, tzinfo=UTC)
    shifted = when.astimezone(tz=None)
    assert written(task.options(run_at=when)).run_at == 1_893_499_200_000_000
    assert written(task.options(run_at=shifted)).run_at == 1_893_499_200_000_000
    assert written(task.options(delay=timedelta(minutes=1))).delay == 60
    assert written(task.options(expires=when)).expires_at == 1_893_499_200_000_000
    assert written(task.options(expires=30)).expires_in == 30


def test_later_options_replace_earlier_ones(app: Tidewheel) -> None:
    """``options`` can be chained; the last word on when a job is due counts."""

    @app.task
    def task() -> None: ...

    bound = task.options(delay=60, priority=5).options(run_at=datetime(2030, 1, 1, tzinfo=UTC))
    job = written(bound)
    assert (job.delay, job.priority, job.run_at is not None) == (0, 5, True)
    assert written(bound.options(delay=3)).run_at is None


def test_a_key_by_payload_is_the_same_for_equal_payloads(app: Tidewheel) -> None:
    """The order in which fields were given does not matter, their values do."""

    @app.task(key=BY_PAYLOAD)
    def task(a: int, b: int) -> None: ...

    @app.task(key=BY_PAYLOAD)
    def raw(data: bytes) -> None: ...

    first, second, third = written(task, a=1, b=2), written(task, b=2, a=1), written(task, a=1, b=3)
    assert first.key == second.key != third.key
    assert written(raw, data=b"x").key == hashlib.sha256(b"x").hexdigest()
    assert written(task.options(key="mine"), a=1, b=2).key == "mine"


def test_a_key_by_fields_looks_at_those_alone(app: Tidewheel) -> None:
    """Other fields may differ; one that is left out is null; a key given with the call wins."""

    @app.task(key=by_fields("a", "b"))
    def task(a: int, b: int | None = None, c: int = 0) -> None: ...

    first = written(task, a=1, c=5)
    assert first.key is not None
    assert first.key == written(task, b=None, a=1, c=6).key
    assert first.key not in {written(task, a=1, b=1).key, written(task, a=2).key}
    assert written(task.options(key="mine"), a=1).key == "mine"
    assert (
        written(task.options(key=by_fields("c")), a=1).key
        == written(task.options(key=by_fields("c")), a=2).key
    )


def test_a_key_by_fields_that_nobody_has_is_refused(app: Tidewheel) -> None:
    """All jobs would have the same key, and only the first would be let in."""
    with pytest.raises(ConfigurationError, match=r"takes no 'z'; it takes a"):

        @app.task(key=by_fields("z"))
        def one(a: int) -> None: ...

    with pytest.raises(ConfigurationError, match="takes no 'a'"):

        @app.task(key=by_fields("a"))
        def raw(a: bytes) -> None: ...

    with pytest.raises(ConfigurationError, match="not durable"):

        @app.task(key=by_fields("a"), durable=False)
        def lane(a: int) -> None: ...

    @app.task
    def two(a: int) -> None: ...

    @app.task(key=by_fields("anything"))
    def open_ended(**fields: int) -> None: ...

    assert written(open_ended, anything=1, other=2).key == written(open_ended, anything=1).key
    with pytest.raises(InvalidInput, match="takes no 'z'"):
        two.options(key=by_fields("z"))
    for names in ((), ("",), (1,)):
        with pytest.raises(InvalidInput, match="by_fields is given"):
            by_fields(*names)


def test_key_lifetime_and_replacement_are_carried(app: Tidewheel) -> None:
    """Words become the store's own terms."""

    @app.task(until="finished", on_duplicate="replace")
    def task() -> None: ...

    job = written(task.options(key="k"))
    assert (job.key_until, job.on_duplicate) == (KeyLifetime.FINISHED, OnDuplicate.REPLACE)


def test_a_jobs_own_retry_policy_is_stored_with_it(app: Tidewheel) -> None:
    """A task's policy is looked up when the job runs; one given to a job travels with it."""

    @app.task(retry=Retry.fixed(7))
    def task() -> None: ...

    assert written(task).retry is None
    assert task.retry == Retry.fixed(7)
    stored = written(task.options(retry=Retry.sequence([1, 2]))).retry
    assert stored is not None
    assert Retry.load(stored) == Retry.sequence([1, 2])
    with pytest.raises(InvalidInput, match="cannot be stored"):
        task.options(retry=Retry.call(wait_for))


def test_calling_a_task_calls_the_function(app: Tidewheel) -> None:
    """A task stays testable without any queue."""

    @app.task
    def add(a: int, b: int = 2) -> int:
        """Add them."""
        return a + b

    assert add(1) == 3
    assert add.__doc__ == "Add them."
    assert add.fn(1, b=1) == 2


async def test_calling_an_async_task_gives_its_coroutine(app: Tidewheel) -> None:
    """The context is an ordinary argument then."""

    @app.task
    async def task(ctx: Context, a: int) -> Any:
        return ctx, a

    assert await task("context", 1) == ("context", 1)


def test_a_name_that_is_no_topic_needs_one(app: Tidewheel) -> None:
    """Task names are freer than topics."""
    with pytest.raises(ConfigurationError, match=r"'mail.send' is no legal topic .* give topic="):
        app.task(name="mail.send")(lambda: None)
    task = app.task(name="mail.send", topic="mail")(lambda: None)
    assert (task.name, task.topic) == ("mail.send", "mail")


def test_nameless_functions_need_a_name(app: Tidewheel) -> None:
    """A lambda has nothing to be found by."""
    with pytest.raises(ConfigurationError, match="give it name="):
        app.task(lambda: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "a b"}, "topic is 'a b'"),
        ({"max_attempts": 0}, "max_attempts is 0; 1 to"),
        ({"timeout": -1}, "timeout is -1 seconds"),
        ({"retry": 3}, "retry is 3; give a policy"),
        ({"delay": 3}, "'delay' is no option"),
        ({"max_attempt": 3}, r"did you mean max_attempts\?"),
        ({"aliases": ["a\n"]}, "control characters"),
        ({"key": ""}, "key is empty"),
        ({"expires": datetime(2030, 1, 1, tzinfo=UTC)}, "expires is .* give seconds"),
    ],
)
def test_bad_task_options_are_refused_when_registered(
    app: Tidewheel, options: dict[str, Any], message: str
) -> None:
    """The error names the task and where it is written."""

    def task() -> None: ...

    with pytest.raises(ConfigurationError, match=f"task 'task' .*test_task.*{message}"):
        app.task(**options)(task)
    assert len(app.registry) == 0


def test_a_job_is_not_routed_to_a_topic_where_no_worker_looks_for_it(app: Tidewheel) -> None:
    """Another task's home topic would keep the job waiting for ever; a topic of its own is fine."""

    @app.task
    def report() -> None: ...

    @app.task(topic="mail")
    def send() -> None: ...

    with pytest.raises(InvalidInput, match="'mail', which is home to send"):
        report.options(topic="mail")
    assert written(report.options(topic="slow")).topic == "slow"
    assert written(send.options(topic="mail")).topic == "mail"


def test_results_are_encoded_within_their_own_limit(app: Tidewheel) -> None:
    """A result that is too large names its own setting."""

    @app.task
    def task() -> None: ...

    assert task.encode_result(None, 10) is None
    assert task.encode_result({"a": 1}, 10) == b'{"a":1}'
    with pytest.raises(InvalidInput, match=r"result is 12 bytes; the limit is 10 \(max_result_bytes\)"):
        task.encode_result("x" * 10, 10)
