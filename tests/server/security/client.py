"""Asking the API without a network: one ASGI call, a hundred microseconds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from tests.patience import PATIENCE
from tidewheel.server.api import Api


@dataclass(frozen=True, slots=True)
class Got:
    """An answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem; empty for any other answer."""
        told = self.header("content-type") or ""
        return str(self.json()["code"]) if told.startswith("application/problem+json") else ""

    def header(self, name: str) -> str | None:
        for key, value in self.headers:
            if key.decode("latin-1").lower() == name:
                return value.decode("latin-1")
        return None

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


async def ask(
    api: Api,
    method: str,
    target: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    raw: bytes | None = None,
    scheme: str = "http",
    address: str = "192.0.2.7",
) -> Got:
    """One request. Of an event stream the first words are the answer, then the client hangs up."""
    path, _, query = target.partition("?")
    content = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    lines = {"host": "tidewheel.test", **(headers or {})}
    if content and "content-type" not in lines:
        lines["content-type"] = "application/json"
    lines["content-length"] = str(len(content))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode("utf-8", "surrogateescape"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in lines.items()],
        "client": (address, 40000),
        "server": ("tidewheel.test", 80),
    }
    told = False
    hung_up = asyncio.Event()
    status, answered, chunks = 0, (), []

    async def receive() -> dict[str, Any]:
        nonlocal told
        if not told:
            told = True
            return {"type": "http.request", "body": content, "more_body": False}
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status, answered
        if message["type"] == "http.response.start":
            status, answered = message["status"], tuple(message["headers"])
        elif message["type"] == "http.response.body":
            chunks.append(message.get("body", b""))
            hung_up.set()

    async with asyncio.timeout(PATIENCE):
        await api(scope, receive, send)
    return Got(status, answered, b"".join(chunks))
