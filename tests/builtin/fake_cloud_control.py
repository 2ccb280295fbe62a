"""A Cloud Control of the tests' own: resources in a dictionary, behind real HTTP, with its real habits.

A client token it has seen is the same request again; another request with that token is a conflict. Requests
take a number of looks at them before they end. It loses answers, and refuses calls, when it is told to.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.builtin.web_server import Web
from tests.patience import PATIENCE


@dataclass
class Request:
    """One request for a change."""

    token: str
    operation: str
    arguments: dict[str, Any]
    looks: int
    error: str | None = None
    half: str | None = None
    identifier: str | None = None
    done: bool = False


@dataclass
class Cloud:
    """The resources, and what becomes of requests."""

    resources: dict[str, dict[str, Any]] = field(default_factory=dict)
    looks: int = 2  # at a request until it ends
    refuse: list[tuple[str, str]] = field(default_factory=list)  # the next call of this operation: this error
    fail: list[str] = field(default_factory=list)  # the next requests end with these errors
    # The next requests are done and end with these all the same.
    half: list[str] = field(default_factory=list)
    lose: set[str] = field(default_factory=set)  # operations whose first answer nobody hears
    hold: set[str] = field(default_factory=set)  # operations that wait before their first answer
    calls: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    requests: dict[str, Request] = field(default_factory=dict)
    made: int = 0
    identifiers: str | None = None  # what AWS calls new resources, where it chooses

    def __post_init__(self) -> None:
        self.web = Web(answer=self._answer)
        self.held = threading.Event()
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.web.port}/"

    @contextmanager
    def serving(self) -> Iterator[Cloud]:
        with self.web.serving():
            try:
                yield self
            finally:
                self.go_on.set()

    def _answer(self, handler: BaseHTTPRequestHandler) -> bool:
        operation = handler.headers["X-Amz-Target"].removeprefix("CloudApiService.")
        arguments = json.loads(self.web.requests[-1]["body"])
        with self._lock:
            self.calls.append(operation)
            self.headers.append(dict(handler.headers.items()))
            status, answer = self._call(operation, arguments)
            lost, held = operation in self.lose, operation in self.hold
            self.lose.discard(operation)
            self.hold.discard(operation)
        if held:
            self.held.set()
            self.go_on.wait(PATIENCE)
        if lost:
            handler.close_connection = True
            handler.connection.close()
            return True
        body = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/x-amz-json-1.0")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    def _call(self, operation: str, arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.refuse and self.refuse[0][0] == operation:
            code = self.refuse.pop(0)[1]
            long = f"com.amazonaws.cloudcontrol#{code}Exception:http://internal.amazon.com/coral/"
            return 400, {"__type": long, "Message": "not now"}
        if operation == "GetResource":
            properties = self.resources.get(arguments["Identifier"])
            if properties is None:
                return 400, {"__type": "ResourceNotFoundException", "Message": "no such resource"}
            described = {"Identifier": arguments["Identifier"], "Properties": json.dumps(properties)}
            return 200, {"TypeName": arguments["TypeName"], "ResourceDescription": described}
        if operation == "GetResourceRequestStatus":
            found = next(one for one in self.requests.values() if one.token == arguments["RequestToken"])
            return 200, {"ProgressEvent": self._look(found)}
        client_token = arguments["ClientToken"]
        known = self.requests.get(client_token)
        if known is None:
            error = self.fail.pop(0) if self.fail else None
            half = self.half.pop(0) if self.half else None
            known = Request(f"request-{len(self.requests)}", operation, arguments, self.looks, error, half)
            self.requests[client_token] = known
        elif (known.operation, known.arguments) != (operation, arguments):
            return 400, {"__type": "ClientTokenConflictException", "Message": "another request"}
        return 200, {"ProgressEvent": self._event(known, "PENDING" if not known.done else "SUCCESS")}

    def _look(self, request: Request) -> dict[str, Any]:
        request.looks -= 1
        if request.looks > 0:
            return self._event(request, "IN_PROGRESS")
        if not request.done and request.error is None:
            request.error = self._do(request) or request.half
            request.done = request.error is None
        return self._event(request, "FAILED" if request.error else "SUCCESS")

    def _do(self, request: Request) -> str | None:
        arguments = request.arguments
        request.identifier = arguments.get("Identifier")
        if request.operation == "CreateResource":
            desired = json.loads(arguments["DesiredState"])
            identifier = self.identifiers or desired.get("Name") or f"thing-{self.made}"
            if identifier in self.resources:
                return "AlreadyExists"
            self.made += 1
            self.resources[identifier] = {**desired, "Arn": f"arn:aws:test:::{identifier}"}
            request.identifier = identifier
        elif arguments["Identifier"] not in self.resources:
            return "NotFound"
        elif request.operation == "DeleteResource":
            del self.resources[arguments["Identifier"]]
        else:
            for change in json.loads(arguments["PatchDocument"]):
                name = change["path"][1:].replace("~1", "/").replace("~0", "~")
                if change["op"] == "remove":
                    del self.resources[arguments["Identifier"]][name]
                else:
                    self.resources[arguments["Identifier"]][name] = change["value"]
        return None

    def _event(self, request: Request, status: str) -> dict[str, Any]:
        return {
            "TypeName": request.arguments["TypeName"],
            "RequestToken": request.token,
            "Operation": request.operation,
            "OperationStatus": status,
            "Identifier": request.identifier,
            "ErrorCode": request.error,
            "StatusMessage": "as it is" if request.error else None,
        }
