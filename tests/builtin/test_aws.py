"""sync_aws: one resource, as described, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tidewheel
from tests.builtin.fake_cloud_control import Cloud
from tests.builtin.network_task_apps import AT_ONCE, run
from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.worker.worker_processes import Site
from tidewheel import ConfigurationError, InvalidPayload, State, Tidewheel
from tidewheel.builtin import aws
from tidewheel.builtin.aws import patch_between
from tidewheel.builtin.aws_client import Credentials, signed_headers
from tidewheel.builtin.roots import Roots

TYPE = "AWS::Test::Thing"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "MAX_POLL_SECONDS", 0.01)


def syncing_app(cloud: Cloud, url: str = "memory://", **given: Any) -> Tidewheel:
    app = Tidewheel(url, poll_interval=0.05, lease=2)
    options: dict[str, Any] = {
        "aws_region": "eu-central-1",
        "aws_resource_types": [TYPE],
        "aws_endpoint": cloud.url,
        "aws_credentials": lambda: Credentials("AKIDEXAMPLE", "secret", "session"),
        "options": {"sync_aws": {"retry": AT_ONCE, "max_attempts": 3}},
        **given,
    }
    app.include(tidewheel.builtin, **options)
    return app


async def sync(cloud: Cloud, resource_id: str | None, config: Any, **given: Any) -> tidewheel.Job[Any]:
    payload = {"resource_type": TYPE, "resource_id": resource_id, "config": config}
    return await run(syncing_app(cloud, **given), "sync_aws", payload)


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_a_resource_is_created_updated_and_deleted(store: str, tmp_path: Path) -> None:
    """The same task does what has to be done, and nothing where nothing has to be."""
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}.get(store) or empty_url()
    with Cloud().serving() as cloud:
        async with syncing_app(cloud, url) as app:
            told = []
            for config in (
                {"Name": "a", "Size": 1},
                {"Name": "a", "Size": 2},
                {"Name": "a", "Size": 2},
                None,
                None,
            ):
                job = await app.enqueue(
                    "sync_aws", {"resourceType": TYPE, "resourceId": "a", "config": config}
                )
                await app.run_until_idle()
                told.append((await job.result(timeout=PATIENCE)).operation)
                if config is not None:
                    assert cloud.resources["a"].items() >= config.items()
        assert told == ["create", "update", "none", "delete", "none"]
        assert cloud.resources == {}


async def test_aws_chooses_the_name_of_a_resource_without_one() -> None:
    """The result says which one."""
    with Cloud().serving() as cloud:
        app = syncing_app(cloud)
        async with app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            await app.run_until_idle()
            result = await job.result()
    assert (result.identifier, result.operation) == ("thing-0", "create")


@pytest.mark.parametrize("resource_id", [None, "a"])
@pytest.mark.parametrize("lost", ["CreateResource", "GetResourceRequestStatus"])
async def test_a_lost_answer_makes_no_second_resource(lost: str, resource_id: str | None) -> None:
    """The next attempt sends the same token, or asks about the same request."""
    with Cloud(lose={lost}).serving() as cloud:
        job = await sync(cloud, resource_id, {"Name": resource_id, "Size": 1})
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert cloud.made == 1
    assert len(cloud.requests) == 1


@pytest.mark.parametrize(
    ("code", "state", "attempt"),
    [("Throttling", State.COMPLETED, 2), ("ServiceInternalError", State.COMPLETED, 2),
     ("InvalidRequest", State.FAILED, 1), ("TypeNotFound", State.FAILED, 1)],
)  # fmt: skip
async def test_a_refused_call_is_tried_again_where_that_may_help(
    code: str, state: State, attempt: int
) -> None:
    """Errors that pass are retried, those about the request fail the job at once, by AWS's own name."""
    with Cloud(refuse=[("CreateResource", code)]).serving() as cloud:
        job = await sync(cloud, "a", {"Name": "a"})
    assert (job.state, job.attempt) == (state, attempt)
    if state is State.FAILED:
        assert job.error is not None
        assert (job.error.code, job.error.details) == ("aws_error", {"aws_code": code})


async def test_a_request_that_failed_is_made_anew_with_another_token() -> None:
    """Its token would only bring the failure back."""
    with Cloud(fail=["ServiceTimeout"]).serving() as cloud:
        job = await sync(cloud, None, {"Size": 1})
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert cloud.made == 1
    assert list(cloud.requests) == [f"{job.id}-1", f"{job.id}-2"]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_resource_that_was_made_though_its_request_failed_is_not_made_twice(gone: bool) -> None:
    """AWS chose its name and told it with the failure: the next attempt looks after that one."""
    with Cloud(half=["NotStabilized"]).serving() as cloud:
        async with syncing_app(cloud) as app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            if gone:  # somebody cleaned up after AWS
                look = cloud._look

                def clean(request: Any) -> Any:
                    event = look(request)
                    if event["OperationStatus"] == "FAILED":
                        cloud.resources.clear()
                    return event

                cloud._look = clean  # type: ignore[method-assign]
            await app.run_until_idle()
            result = await job.result()
            job = await app.get(job.id)
    assert job.attempt == 2
    assert (cloud.made, len(cloud.resources)) == (2 if gone else 1, 1)
    assert (result.identifier, result.operation) == ("thing-1" if gone else "thing-0", "create")


async def test_somebody_else_s_resource_is_not_taken_for_one_s_own() -> None:
    """AlreadyExists names one that this job did not make; a requeue leaves that alone, too."""
    with Cloud({"taken": {"Size": 7}}, identifiers="taken").serving() as cloud:
        async with syncing_app(cloud) as app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            for _ in range(2):
                await app.run_until_idle()
                job = await app.get(job.id)
                assert job.error is not None
                assert job.error.details == {"aws_code": "AlreadyExists"}
                await app.requeue(job.id)
    assert cloud.resources == {"taken": {"Size": 7}}


async def test_credentials_are_asked_for_on_a_thread() -> None:
    """Whoever answers them may have to ask a server for new ones, and other jobs go on meanwhile."""

    def slow() -> Credentials:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return Credentials("AKIDEXAMPLE", "secret")

    with Cloud().serving() as cloud:
        job = await sync(cloud, None, {"Size": 1}, aws_credentials=slow)
    assert job.state is State.COMPLETED, job.error


async def test_expired_credentials_are_read_anew() -> None:
    """A token that ran out is an error that passes: the next attempt has the next one."""
    tokens = ["old", "new"]
    with Cloud(refuse=[("CreateResource", "ExpiredToken")]).serving() as cloud:
        job = await sync(
            cloud,
            None,
            {"Size": 1},
            aws_credentials=lambda: Credentials("AKIDEXAMPLE", "secret", tokens.pop(0) if tokens else "new"),
        )
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert [sent["X-Amz-Security-Token"] for sent in cloud.headers[:2]] == ["old", "new"]


async def test_a_description_that_makes_no_sense_is_asked_for_again() -> None:
    """Nothing is decided by it: not an update, and surely not a creation."""
    with Cloud({"a": {"Size": 1}}).serving() as cloud:
        call = cloud._call

        def garbled(operation: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            return (200, {"ResourceDescription": {}}) if len(cloud.calls) == 1 else call(operation, arguments)

        cloud._call = garbled  # type: ignore[method-assign]
        job = await sync(cloud, "a", {"Size": 1})
    assert (job.state, job.attempt) == (State.COMPLETED, 2), job.error
    assert cloud.calls == ["GetResource", "GetResource"]


@pytest.mark.parametrize(
    ("region", "host"),
    [("eu-central-1", "cloudcontrolapi.eu-central-1.amazonaws.com"),
     ("cn-north-1", "cloudcontrolapi.cn-north-1.amazonaws.com.cn")],
)  # fmt: skip
def test_a_region_has_an_endpoint(region: str, host: str) -> None:
    """China has a domain of its own."""
    (task,) = aws.build({"aws_region": region, "aws_resource_types": ["*"]}, Roots([]))
    assert getattr(task.fn, "__self__")._cloud.endpoint.url == f"https://{host}/"  # noqa: B009


async def test_a_request_that_cannot_work_fails_the_job() -> None:
    """AccessDenied is not tried again."""
    with Cloud(fail=["AccessDenied"]).serving() as cloud:
        job = await sync(cloud, None, {"Size": 1})
    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert job.error is not None
    assert job.error.details == {"aws_code": "AccessDenied"}


async def test_a_resource_that_somebody_made_meanwhile_is_updated() -> None:
    """AlreadyExists means: look again. There is still one of it."""
    cloud = Cloud(fail=["AlreadyExists"])

    def appear() -> None:
        cloud.resources["a"] = {"Name": "a", "Size": 1}

    with cloud.serving():
        original: Callable[..., Any] = cloud._event

        def event(request: Any, status: str) -> Any:
            if status == "FAILED":
                appear()
            return original(request, status)

        cloud._event = event  # type: ignore[method-assign]
        job = await sync(cloud, "a", {"Name": "a", "Size": 2})
    assert (job.state, job.attempt) == (State.COMPLETED, 1), job.error
    assert cloud.resources["a"]["Size"] == 2
    assert cloud.made == 0


async def test_a_resource_that_is_gone_already_is_deleted() -> None:
    """Somebody was faster; that is what was wanted."""
    with Cloud({"a": {}}, fail=["NotFound"]).serving() as cloud:
        job = await sync(cloud, "a", None)
    assert job.state is State.COMPLETED, job.error


async def test_another_name_than_asked_for_is_an_error_with_that_name() -> None:
    """Or the next sync would make one more."""
    with Cloud(identifiers="b").serving() as cloud:
        job = await sync(cloud, "a", {"Size": 1})
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.code == "identifier_mismatch"
    assert "'b'" in job.error.message


async def test_a_type_that_is_not_allowed_is_not_touched() -> None:
    """aws_resource_types is what jobs may touch; nothing is asked of AWS."""
    with Cloud().serving() as cloud:
        job = await sync(cloud, "a", {"Name": "a"}, aws_resource_types=["AWS::S3::Bucket"])
    assert job.error is not None
    assert job.error.code == "forbidden_resource_type"
    assert cloud.calls == []


async def test_long_requests_are_waited_for_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job gives its slot back, comes back to the same request, and no attempt is counted for it."""
    monkeypatch.setattr(aws, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(aws, "SNOOZE_SECONDS", 0.01)
    with Cloud(looks=6).serving() as cloud:
        async with syncing_app(cloud) as app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            working = asyncio.create_task(app.run_worker())
            await job.result(timeout=PATIENCE)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            job = await app.get(job.id)
    assert job.attempt == 1
    assert cloud.made == 1


async def test_a_request_without_end_is_given_up_and_a_requeue_waits_for_it_anew() -> None:
    """aws_patience is how long a job waits altogether; who requeues it finds the same request."""
    with Cloud(looks=10_000).serving() as cloud:
        async with syncing_app(cloud, aws_patience=0.2) as app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            await app.run_until_idle()
            job = await app.get(job.id)
            assert job.state is State.FAILED
            assert job.error is not None
            assert job.error.code == "aws_timeout"
            assert "request-0" in job.error.message
            cloud.requests[f"{job.id}-1"].looks = 2
            await app.requeue(job.id)
            await app.run_until_idle()
            assert (await app.get(job.id)).state is State.COMPLETED
    assert cloud.made == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("where", ["CreateResource", "GetResourceRequestStatus"])
async def test_a_worker_killed_in_the_middle_leaves_one_resource(
    where: str, store: str, tmp_path: Path
) -> None:
    """Killed while AWS has the request and nobody heard the answer, or while it is waited for."""
    url = empty_url() if store == "postgres" else None
    site = Site(tmp_path, store_url=url, program="tests.builtin.network_task_victim")
    with Cloud(hold={where}).serving() as cloud:
        async with syncing_app(cloud, site.url) as app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            environment = {"ROOT": str(tmp_path), "AWS_ENDPOINT": cloud.url}
            process = await asyncio.to_thread(site.start, **environment)
            try:
                assert await asyncio.to_thread(cloud.held.wait, 30)
                process.kill()
                process.communicate()
                cloud.go_on.set()
                process = await asyncio.to_thread(site.start, **environment)
                result = await job.result(timeout=PATIENCE)
            finally:
                process.kill()
                process.communicate()
    assert result.identifier == "thing-0"
    assert cloud.made == 1
    assert list(cloud.requests) == [f"{job.id}-1"]


async def test_a_create_that_was_not_heard_of_for_days_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cloud Control forgets tokens after 36 hours; sending one again then could make a second resource."""
    later = timedelta()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + later

    monkeypatch.setattr(aws, "datetime", Clock)
    with Cloud(lose={"CreateResource"}).serving() as cloud:
        options: dict[str, Any] = {
            "options": {"sync_aws": {"retry": tidewheel.Retry.fixed(3600), "max_attempts": 3}}
        }
        async with syncing_app(cloud, **options) as app:
            payload = {"resource_type": TYPE, "resource_id": None, "config": {"Size": 1}}
            job = await app.enqueue("sync_aws", payload)
            await app.run_until_idle()
            later = timedelta(hours=37)
            await app.cancel(job.id)
            await app.requeue(job.id)
            await app.run_until_idle()
            job = await app.get(job.id)
    assert job.error is not None
    assert job.error.code == "outcome_unknown"
    assert cloud.calls.count("CreateResource") == 1


def test_a_patch_touches_only_what_is_described() -> None:
    """What AWS tells beyond that stays; null takes away; names are escaped."""
    properties = {"Name": "a", "Size": 1, "Old": True, "Arn": "arn", "a/b~c": 1}
    config = {"Name": "a", "Size": 2, "Old": None, "New": [1], "Missing": None, "a/b~c": 2}
    assert patch_between(properties, config) == [
        {"op": "add", "path": "/New", "value": [1]},
        {"op": "remove", "path": "/Old"},
        {"op": "replace", "path": "/Size", "value": 2},
        {"op": "replace", "path": "/a~1b~0c", "value": 2},
    ]


@pytest.mark.parametrize(
    ("method", "signature"),
    [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ],
)
def test_requests_are_signed_as_aws_wants_it(method: str, signature: str) -> None:
    """The vectors get-vanilla and post-vanilla of AWS's own test suite."""
    headers = signed_headers(
        Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
        method=method,
        host="example.amazonaws.com",
        target="/",
        headers={},
        body=b"",
        region="us-east-1",
        service="service",
        now=datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
    )
    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}"
    )


def test_a_call_of_cloud_control_is_signed_as_aws_s_own_library_does() -> None:
    """With a session's token; what botocore 1.44 makes of the same request."""
    headers = signed_headers(
        Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/+=token"),
        method="POST",
        host="cloudcontrolapi.eu-central-1.amazonaws.com",
        target="/",
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": "CloudApiService.GetResource",
        },
        body=b'{"TypeName": "AWS::S3::Bucket"}',
        region="eu-central-1",
        service="cloudcontrolapi",
        now=datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
    )
    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-central-1/cloudcontrolapi/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, "
        "Signature=767e8684778bf577a5656516decba255e9c0cd6b2d440b64b2b63859ee56f5f5"
    )


async def test_a_call_carries_its_proof_and_no_secret() -> None:
    """Session tokens of temporary credentials are part of what is signed."""
    with Cloud().serving() as cloud:
        await sync(cloud, None, {"Size": 1})
    sent = cloud.headers[0]
    assert sent["X-Amz-Security-Token"] == "session"
    assert "x-amz-security-token" in sent["Authorization"]
    assert "secret" not in str(sent)
    assert "secret" not in repr(Credentials("AKIDEXAMPLE", "secret", "secret"))


async def test_a_worker_without_credentials_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing and where to put it; nothing is sent."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    from tidewheel.builtin.aws_client import credentials_from_environment

    with Cloud().serving() as cloud:
        job = await sync(cloud, None, {"Size": 1}, aws_credentials=credentials_from_environment)
    assert job.error is not None
    assert job.error.code == "no_credentials"
    assert cloud.calls == []


@pytest.mark.parametrize(
    "payload",
    [
        {"resource_type": "Bucket", "resource_id": "a", "config": {}},
        {"resource_type": TYPE, "resource_id": "", "config": {}},
        {"resource_type": TYPE, "resource_id": "a"},  # a config that was forgotten must not delete
        {"resource_type": TYPE, "resource_id": "a", "config": "x"},
    ],
)
async def test_a_bad_payload_is_refused_at_enqueue(payload: dict[str, Any]) -> None:
    """Nothing is written."""
    async with syncing_app(Cloud()) as app:
        with pytest.raises(InvalidPayload):
            await app.enqueue("sync_aws", payload)
        assert (await app.stats()).pending == 0


@pytest.mark.parametrize(
    "wrong",
    [{"aws_region": "eu central"}, {"aws_resource_types": TYPE}, {"aws_resource_types": None},
     {"aws_endpoint": "cloud"}, {"aws_patience": 0}],
)  # fmt: skip
def test_configuration_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    """When the tasks are included."""
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        syncing_app(Cloud(), **wrong)
