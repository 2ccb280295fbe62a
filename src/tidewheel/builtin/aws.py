"""``sync_aws``: a resource of AWS is made, changed or removed until it is as described.

Every request carries a token that is derived from the job, so that Cloud Control knows it again when a worker
died before it heard the answer. What was decided is saved before it is sent, and the answer after it: whoever
goes on with the job asks how far that very request is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NoReturn, TypedDict

from msgspec import Meta

from tidewheel.builtin.aws_client import (
    CloudControl,
    CloudError,
    Credentials,
    ProgressEvent,
    credentials_from_environment,
)
from tidewheel.builtin.http_client import HttpAddress
from tidewheel.builtin.roots import Roots
from tidewheel.builtin.task_group import BuiltinTask, TaskGroup
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, Fail, Snooze, TaskError
from tidewheel.tasks.annotations import Alias
from tidewheel.tasks.context import Context

MAX_REQUESTS_PER_RUN: Final = 10
"""Requests that one run may make of AWS, the failed ones included."""
TOKEN_SECONDS: Final = 36 * 3600
"""For so long Cloud Control knows a client token again."""
WAIT_SECONDS: Final = 30.0
"""A run waits so long for a request; then it gives its slot to others and comes back."""
SNOOZE_SECONDS: Final = 15.0
MAX_POLL_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 3600.0

ResourceType = Annotated[
    str, Alias("resourceType"), Meta(pattern=r"^[A-Za-z0-9]{2,64}(::[A-Za-z0-9]{2,64}){2,3}$")
]
ResourceId = Annotated[str, Meta(min_length=1, max_length=1024)]


class AwsOptions(TypedDict, total=False):
    """What may be said about AWS."""

    aws_region: str
    aws_resource_types: Collection[str]
    aws_credentials: Callable[[], Credentials]
    aws_endpoint: str
    aws_patience: float


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of it: ``operation`` is create, update, delete, or none when nothing was to be done."""

    identifier: str | None
    operation: str


@dataclass(frozen=True, slots=True)
class SyncCheckpoint:
    """How far a job is: its checkpoint."""

    round: int = 1
    operation: str | None = None  # decided, and perhaps sent
    began: float = 0.0  # when that was
    request: str | None = None  # Cloud Control's name for it, once it answered
    identifier: str | None = None  # of a resource that was made, though its request failed


class AwsTasks:
    """The task, and what it was configured with."""

    def __init__(
        self, cloud: CloudControl, resource_types: tuple[str, ...], patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._cloud = cloud
        self._resource_types = resource_types
        self._patience_seconds = patience_seconds

    async def sync_aws(
        self,
        ctx: Context,
        resource_type: ResourceType,
        resource_id: Annotated[ResourceId | None, Alias("resourceId")],
        config: dict[str, Any] | None,
    ) -> Synced:
        """Make a resource of AWS be as ``config`` says; null removes it.

        ``resource_id`` is its primary identifier; null lets AWS choose one for a new resource. A property
        that is null in ``config`` is taken away, one that is not mentioned stays as it is.
        """
        if "*" not in self._resource_types and resource_type not in self._resource_types:
            raise Fail(f"{resource_type} is not among aws_resource_types", code="forbidden_resource_type")
        if resource_id is None and config is None:
            raise Fail(
                "resource_id and config are both null; nothing says what to remove", code="invalid_input"
            )
        course = SyncCheckpoint(**ctx.checkpoint.value) if ctx.checkpoint else SyncCheckpoint()
        for _ in range(MAX_REQUESTS_PER_RUN):
            identifier = resource_id or course.identifier
            if course.operation is None:
                operation = await self._decide(resource_type, identifier, config)
                if operation is None:
                    return Synced(identifier, "none" if resource_id is not None else "create")
                course = replace(course, operation=operation, began=self._seconds())
                await ctx.checkpoint(asdict(course))
            try:
                event = await self._send_request(ctx, course, resource_type, identifier, config)
                if event is None:
                    return Synced(identifier, "none")
                if course.request is None:
                    course = replace(course, request=event.request_token)
                    await ctx.checkpoint(asdict(course))
                event = await self._wait_for_request(ctx, course, event)
            except CloudError as error:
                if course.request is not None or error.aws_code not in _CHANGED_SINCE_DECISION:
                    raise
                code, refusal, made = error.aws_code, error, None
            else:
                if event.status == "SUCCESS":
                    return _synced(course, event, resource_id, identifier)
                made = event.identifier if course.operation == "create" else None
                code = event.error_code if event.status == "FAILED" else "Cancelled"
                refusal = CloudError(f"{course.operation} of {resource_type}", code, event.message)
            if course.operation == "delete" and code in {"NotFound", "ResourceNotFound"}:
                return Synced(resource_id, "delete")  # somebody was faster, or an earlier round was
            # This request has ended: the next one is another one, and says so.
            # One that was made and did not get ready is there, and the next round must not make another.
            # AlreadyExists is about somebody else's.
            made = None if code in _CHANGED_SINCE_DECISION else made
            course = SyncCheckpoint(course.round + 1, identifier=made or course.identifier)
            await ctx.checkpoint(asdict(course))
            if code not in _CHANGED_SINCE_DECISION or identifier is None:
                raise refusal
        raise Fail(
            f"gave up after {MAX_REQUESTS_PER_RUN} requests to AWS, none of which did it", code="aws_error"
        )

    async def _decide(
        self, resource_type: str, resource_id: str | None, config: dict[str, Any] | None
    ) -> str | None:
        """What has to be done; None for nothing."""
        if resource_id is None:
            return "create"
        properties = await self._cloud.properties_of(resource_type, resource_id)
        if config is None:
            return None if properties is None else "delete"
        if properties is None:
            return "create"
        return "update" if patch_between(properties, config) else None

    async def _send_request(
        self,
        ctx: Context,
        course: SyncCheckpoint,
        resource_type: str,
        resource_id: str | None,
        config: dict[str, Any] | None,
    ) -> ProgressEvent | None:
        """The request, made now or in an earlier run; None where there is nothing left to change."""
        if course.request is not None:
            return await self._cloud.status_of(course.request)
        token = f"{ctx.job.id}-{course.round}"
        if course.operation == "create" or resource_id is None:
            if self._seconds() - course.began > TOKEN_SECONDS:
                raise Fail(
                    f"a {resource_type} was asked for more than {TOKEN_SECONDS // 3600} hours ago and nobody "
                    "heard the answer; AWS would make a second one. Look whether it exists",
                    code="outcome_unknown",
                )
            desired = {name: value for name, value in (config or {}).items() if value is not None}
            return await self._cloud.create(resource_type, desired, token)
        if config is None:
            return await self._cloud.delete(resource_type, resource_id, token)
        properties = await self._cloud.properties_of(resource_type, resource_id)
        if properties is None:
            raise CloudError("update", "ResourceNotFound", f"{resource_type} {resource_id} is gone")
        patch = patch_between(properties, config)
        return await self._cloud.update(resource_type, resource_id, patch, token) if patch else None

    async def _wait_for_request(
        self, ctx: Context, course: SyncCheckpoint, event: ProgressEvent
    ) -> ProgressEvent:
        """The request's last word. Long waits are spent outside: the job is put off, and comes back."""
        held = asyncio.get_running_loop().time() + WAIT_SECONDS
        pause = 0.25
        while event.pending:
            if self._seconds() - course.began > self._patience_seconds:
                # Whoever requeues the job waits as long once more, for the same request.
                await ctx.checkpoint(asdict(replace(course, began=self._seconds())))
                raise Fail(
                    f"request {course.request} is {event.status} after {self._patience_seconds:g} s "
                    "(aws_patience)",
                    code="aws_timeout",
                )
            await ctx.progress(50, f"{course.operation}: {event.status}")
            if ctx.shutting_down:
                ctx.release()
            if asyncio.get_running_loop().time() > held:
                raise Snooze(SNOOZE_SECONDS)
            pause = min(MAX_POLL_SECONDS, pause * 1.5)
            wanted = pause if event.retry_after is None else event.retry_after - self._seconds()
            await asyncio.sleep(min(MAX_POLL_SECONDS, max(pause, wanted)))
            event = await self._cloud.status_of(event.request_token)
        return event

    def _seconds(self) -> float:
        return self._cloud.now().timestamp()


_CHANGED_SINCE_DECISION: Final = frozenset(
    {"AlreadyExists", "NotFound", "ResourceNotFound", "ClientTokenConflict"}
)
"""Refusals that mean: since it was decided, the resource changed. Decide again."""


def _synced(
    course: SyncCheckpoint, event: ProgressEvent, resource_id: str | None, identifier: str | None
) -> Synced:
    operation = course.operation or ""
    if operation == "create" and resource_id is not None and event.identifier not in (None, resource_id):
        raise Fail(
            f"the new resource is {shorten(event.identifier)}, not {shorten(resource_id)}; config has to "
            "name it, or resource_id has to be null where AWS chooses",
            code="identifier_mismatch",
        )
    return Synced(event.identifier or identifier, operation)


def patch_between(properties: Mapping[str, Any], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch from a resource as it is to one as described.

    What ``config`` does not mention is left alone: AWS tells read-only properties and its own defaults along
    with the rest, and refuses a patch that takes those away.
    """
    patch: list[dict[str, Any]] = []
    for name, value in sorted(config.items()):
        path = "/" + name.replace("~", "~0").replace("/", "~1")
        if value is None:
            if name in properties:
                patch.append({"op": "remove", "path": path})
        elif name not in properties:
            patch.append({"op": "add", "path": path, "value": value})
        elif properties[name] != value:
            patch.append({"op": "replace", "path": path, "value": value})
    return patch


def build(given: Mapping[str, Any], roots: Roots) -> Iterable[BuiltinTask]:  # noqa: ARG001 - no files here
    """The task, where a region and types of resources are configured."""
    region, types = given.get("aws_region"), given.get("aws_resource_types")
    if region is None and types is None:
        return
    if not isinstance(region, str) or not region.replace("-", "").isalnum():
        raise ConfigurationError(f"aws_region is {shorten(region)}; give a region such as eu-central-1")
    if types is None or isinstance(types, str) or not all(isinstance(name, str) for name in types):
        raise ConfigurationError(
            f"aws_resource_types is {shorten(types)}; give a list such as ['AWS::S3::Bucket'], or ['*']"
        )
    patience = given.get("aws_patience", PATIENCE_SECONDS)
    if isinstance(patience, bool) or not isinstance(patience, int | float) or not patience > 0:
        raise ConfigurationError(f"aws_patience is {shorten(patience)}; give seconds, more than 0")
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    cloud = CloudControl(
        region,
        _endpoint(given.get("aws_endpoint") or f"https://cloudcontrolapi.{region}.{domain}/"),
        given.get("aws_credentials", credentials_from_environment),
        lambda: datetime.now(UTC),
    )
    yield BuiltinTask(
        "sync_aws", AwsTasks(cloud, tuple(types), patience).sync_aws, {"max_attempts": 10, "timeout": 300}
    )


def _endpoint(url: str) -> HttpAddress:
    try:
        return HttpAddress.parse(url)
    except TaskError as error:
        _refuse(f"aws_endpoint is {shorten(url)}: {error}")


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message) from None


TASKS: Final = TaskGroup(("sync_aws",), build, "aws_region and aws_resource_types")
