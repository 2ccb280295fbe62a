"""AWS Cloud Control: the calls that ``sync_aws`` needs, and what their errors mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidewheel.errors import TaskError
from tidewheel.tasks.exchange import Address, Request, exchange
from tidewheel.tasks.signing import Credentials, signed_headers

MAX_ANSWER_BYTES: Final = 4 * 2**20
_SERVICE: Final = "cloudcontrolapi"

_PASSING: Final = frozenset(
    {
        "ConcurrentModification", "ConcurrentOperation", "ExpiredToken", "GeneralService",
        "GeneralServiceException", "HandlerFailure", "HandlerInternalFailure", "InternalFailure",
        "InvalidCredentials", "NetworkFailure", "NotStabilized", "RequestExpired", "RequestLimitExceeded",
        "ResourceConflict", "ServiceInternalError", "ServiceLimitExceeded", "ServiceTimeout",
        "ServiceUnavailable", "Throttled", "Throttling", "TooManyRequests",
    }
)  # fmt: skip
"""Errors that another try may not meet again, of calls and of requests."""


class CloudError(TaskError):
    """AWS refused a call, or could not do what was requested."""

    def __init__(self, what: str, code: str, message: str, *, retryable: bool | None = None) -> None:
        self.aws_code = code
        super().__init__(
            f"{what}: {code}: {message}" if message else f"{what}: {code}",
            code="aws_error",
            details={"aws_code": code},
            retryable=code in _PASSING if retryable is None else retryable,
        )


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """How far a request is, as Cloud Control tells it."""

    request_token: str
    status: str
    identifier: str | None
    error_code: str
    message: str
    retry_after: float | None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> ProgressEvent:
        token, retry_after = fields.get("RequestToken"), fields.get("RetryAfter")
        if not isinstance(token, str) or not token:
            raise CloudError("Cloud Control", "InternalFailure", "it answered without a RequestToken")
        return cls(
            token,
            str(fields.get("OperationStatus", "")),
            fields.get("Identifier") or None,
            str(fields.get("ErrorCode") or "InternalFailure"),
            str(fields.get("StatusMessage") or ""),
            float(retry_after) if isinstance(retry_after, int | float) else None,
        )

    @property
    def pending(self) -> bool:
        return self.status in {"PENDING", "IN_PROGRESS", "CANCEL_IN_PROGRESS"}


@dataclass(frozen=True, slots=True)
class CloudControl:
    """One region's Cloud Control, as somebody with these credentials."""

    region: str
    endpoint: Address
    credentials: Callable[[], Credentials]
    now: Callable[[], datetime]

    async def properties_of(self, type_name: str, identifier: str) -> dict[str, Any] | None:
        """A resource as it is; None when there is none."""
        try:
            answer = await self._call("GetResource", TypeName=type_name, Identifier=identifier)
        except CloudError as error:
            if error.aws_code in {"ResourceNotFound", "NotFound"}:
                return None
            raise
        try:
            properties = json.loads(answer["ResourceDescription"]["Properties"])
        except (KeyError, TypeError, ValueError):
            properties = None
        if not isinstance(properties, dict):
            raise CloudError("GetResource", "InternalFailure", "it answered without Properties")
        return properties

    async def create(self, type_name: str, desired: Mapping[str, Any], token: str) -> ProgressEvent:
        """Have a resource made. The same token again is the same request."""
        state = json.dumps(desired, sort_keys=True)
        return await self._request(
            "CreateResource", TypeName=type_name, DesiredState=state, ClientToken=token
        )

    async def update(
        self, type_name: str, identifier: str, patch: list[dict[str, Any]], token: str
    ) -> ProgressEvent:
        """Have a resource changed, by a JSON patch."""
        document = json.dumps(patch, sort_keys=True)
        return await self._request(
            "UpdateResource",
            TypeName=type_name,
            Identifier=identifier,
            PatchDocument=document,
            ClientToken=token,
        )

    async def delete(self, type_name: str, identifier: str, token: str) -> ProgressEvent:
        """Have a resource removed."""
        return await self._request(
            "DeleteResource", TypeName=type_name, Identifier=identifier, ClientToken=token
        )

    async def status_of(self, request_token: str) -> ProgressEvent:
        """How far a request is."""
        return await self._request("GetResourceRequestStatus", RequestToken=request_token)

    async def _request(self, operation: str, **arguments: str) -> ProgressEvent:
        answer = await self._call(operation, **arguments)
        event = answer.get("ProgressEvent")
        return ProgressEvent.read(event if isinstance(event, dict) else {})

    async def _call(self, operation: str, **arguments: str) -> dict[str, Any]:
        body = json.dumps(arguments).encode()
        headers = signed_headers(
            await asyncio.to_thread(self.credentials),  # whoever made them may have to ask for new ones
            method="POST",
            host=self.endpoint.authority,
            target=self.endpoint.target,
            headers={
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": f"CloudApiService.{operation}",
            },
            body=body,
            region=self.region,
            service=_SERVICE,
            now=self.now(),
        )
        async with exchange(Request(self.endpoint, "POST", headers, body), reach=None) as answer:
            text = await answer.read(MAX_ANSWER_BYTES)
            status, named = answer.status, answer.headers.get("x-amzn-errortype")
        try:
            fields = json.loads(text) if text else {}
        except ValueError:
            fields = None
        if status == 200 and isinstance(fields, dict):
            return fields
        fields = fields if isinstance(fields, dict) else {}
        # "com.amazonaws.cloudcontrol#ThrottlingException:http://…" in the longest form.
        code = str(fields.get("__type") or named or f"HTTP {status}").partition(":")[0].rpartition("#")[2]
        code = code.removesuffix("Exception")
        message = str(fields.get("message") or fields.get("Message") or "")
        # A server that is in trouble need not say so in our words.
        retryable = True if status >= 500 or status in {200, 429} else None
        raise CloudError(operation, code, message[:1000], retryable=retryable)
