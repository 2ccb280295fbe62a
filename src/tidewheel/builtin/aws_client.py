"""AWS Cloud Control: the calls that ``sync_aws`` needs, their errors, and signed requests.

Requests are signed with Signature Version 4 here instead of with AWS's own library: 40 lines of HMAC replace
80 MB.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tidewheel.builtin.http_client import HttpAddress, HttpRequest, send_request
from tidewheel.errors import TaskError


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks. ``repr`` hides the secrets, because objects end up in logs."""

    access_key: str
    secret_key: str
    session_token: str | None = None

    def __repr__(self) -> str:
        return f"<Credentials {self.access_key[:4]}…>"


def credentials_from_environment() -> Credentials:
    """Those of ``AWS_ACCESS_KEY_ID`` and its sisters, read anew for every request: they are replaced."""
    access_key = os.environ.get("AWS_ACCESS_KEY_ID", "")
    secret_key = os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if not access_key or not secret_key:
        raise TaskError(
            "the worker has no credentials for AWS; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or include tidewheel.builtin with aws_credentials=",
            code="no_credentials",
        )
    return Credentials(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN") or None)


def signed_headers(
    credentials: Credentials,
    *,
    method: str,
    host: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    region: str,
    service: str,
    now: datetime,
) -> dict[str, str]:
    """``headers`` and those that prove who asks. The target has no escapes in its path."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    signed = {**headers, "Host": host, "X-Amz-Date": moment}
    if credentials.session_token:
        signed["X-Amz-Security-Token"] = credentials.session_token
    canonical = sorted((name.lower(), " ".join(value.split())) for name, value in signed.items())
    names = ";".join(name for name, _ in canonical)
    path, _, query = target.partition("?")
    request = "\n".join(
        (
            method,
            path,
            "&".join(sorted(query.split("&"))),
            *(f"{name}:{value}" for name, value in canonical),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    signed["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return signed


MAX_ANSWER_BYTES: Final = 4 * 2**20
_SERVICE: Final = "cloudcontrolapi"

_TRANSIENT_ERRORS: Final = frozenset(
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
            retryable=code in _TRANSIENT_ERRORS if retryable is None else retryable,
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
    endpoint: HttpAddress
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
        async with send_request(HttpRequest(self.endpoint, "POST", headers, body), policy=None) as answer:
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
