"""Asking Claude: through a program, or through the API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tidewheel.builtin.http_client import HttpAddress, HttpRequest, send_request
from tidewheel.errors import RetryAfter, TaskError

API_VERSION: Final = "2023-06-01"
MAX_STDERR_BYTES: Final = 2_000
"""Bytes of a program's last words that are kept."""
TERMINATE_GRACE_SECONDS: Final = 5.0
"""For a program that was asked to stop; then it is killed."""
LEFTOVER_GRACE_SECONDS: Final = 1.0
"""For what a program left behind to end by itself, where it holds the pipes that the answer comes through."""
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


class ClaudeClient(Protocol):
    """A way to have a prompt answered."""

    async def ask(self, prompt: str) -> bytes:
        """The answer. A ``TaskError`` when there is none; cancelling it ends whatever it started."""


@dataclass(frozen=True, slots=True)
class ClaudeCommand:
    """A command that reads a prompt from standard input and writes the answer to standard output."""

    command: tuple[str, ...]
    max_bytes: int

    async def ask(self, prompt: str) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            transport, exit_ = await loop.subprocess_exec(
                lambda: _Exit(loop),
                *self.command,
                start_new_session=True,  # so that what it starts can be ended along with it
            )
        except OSError as error:
            raise TaskError(f"{self.command[0]} cannot be started: {error}", code="claude_error") from None
        process = asyncio.subprocess.Process(transport, exit_, loop)
        parts = (
            asyncio.create_task(_feed(process, prompt)),
            asyncio.create_task(self._all_of(process)),
            asyncio.create_task(_stderr_tail(process)),
        )
        leftovers = asyncio.create_task(_end_leftovers(process, exit_))
        try:
            _, answer, complaint = await asyncio.gather(*parts)
            await exit_.exited.wait()
        finally:
            for part in (*parts, leftovers):  # the others go on when one of them fails
                part.cancel()
            try:
                await _end(process, exit_)
            finally:
                transport.close()
        if process.returncode != 0:
            words = complaint.decode("utf-8", "replace").strip() or "it said nothing"
            raise TaskError(
                f"{self.command[0]} ended with {process.returncode}: {words}", code="claude_error"
            )
        return answer

    async def _all_of(self, process: asyncio.subprocess.Process) -> bytes:
        answer = bytearray()
        while process.stdout is not None and (block := await process.stdout.read(65_536)):
            answer += block
            if len(answer) > self.max_bytes:
                raise too_large(self.max_bytes)
        return bytes(answer)


class _Exit(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells the end of a process itself; asyncio's own word comes only after the last of its pipes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=65_536, loop=loop)
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


async def _feed(process: asyncio.subprocess.Process, prompt: str) -> None:
    if process.stdin is None:
        return
    # A program may have read enough before the end; whether that was wrong, its exit code says.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(prompt.encode())
        await process.stdin.drain()
        process.stdin.close()


async def _stderr_tail(process: asyncio.subprocess.Process) -> bytes:
    """The last of what it complained about: that is where the reason stands."""
    complaint = b""
    while process.stderr is not None and (block := await process.stderr.read(65_536)):
        complaint = (complaint + block)[-MAX_STDERR_BYTES:]
    return complaint


async def _end_leftovers(process: asyncio.subprocess.Process, exit_: _Exit) -> None:
    """A program may leave something behind that holds its pipes: the answer would never end."""
    await exit_.exited.wait()
    await asyncio.sleep(LEFTOVER_GRACE_SECONDS)
    _signal(process, _KILL)


async def _end(process: asyncio.subprocess.Process, exit_: _Exit) -> None:
    """Nothing of it may go on when the handler does not: a second run would ask a second time beside it."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            # It may have more to say than its pipes hold, and would wait for a reader.
            readers = [asyncio.create_task(_forget(pipe)) for pipe in (process.stdout, process.stderr)]
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TERMINATE_GRACE_SECONDS):
                        await exit_.exited.wait()
            finally:
                for reader in readers:
                    reader.cancel()
    finally:  # also when whoever waits is out of patience
        # The whole group, though its first process may be gone: what that started is there all the same.
        _signal(process, _KILL)
        await exit_.exited.wait()


async def _forget(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(65_536):
        pass


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or nobody there is ours
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


@dataclass(frozen=True, slots=True)
class ClaudeApi:
    """Anthropic's Messages API."""

    url: HttpAddress
    model: str
    key: Callable[[], str]
    max_tokens: int
    max_bytes: int
    idle_seconds: float

    async def ask(self, prompt: str) -> bytes:
        body = json.dumps(
            {
                "model": self.model,
                "max_tokens": self.max_tokens,
                "messages": [{"role": "user", "content": prompt}],
            }
        ).encode()
        key = await asyncio.to_thread(self.key)
        headers = {"Content-Type": "application/json", "X-Api-Key": key, "Anthropic-Version": API_VERSION}
        request = HttpRequest(self.url, "POST", headers, body)
        # JSON escapes may make an answer six times as long on the way.
        async with send_request(request, policy=None, idle_seconds=self.idle_seconds) as reply:
            text = await reply.read(6 * self.max_bytes + 65_536)
            status, retry_after = reply.status, reply.retry_after
        if _is_transient(status) and retry_after is not None:
            raise RetryAfter(retry_after, f"the API asks for patience (HTTP {status})")
        try:
            fields = json.loads(text)
        except ValueError:
            retryable = status == 200 or _is_transient(status)
            raise _api_error(status, "it answered no JSON", retryable=retryable) from None
        if status != 200:
            error = fields.get("error") if isinstance(fields, dict) else None
            words = error.get("message") if isinstance(error, dict) else None
            raise _api_error(
                status, str(words or "no reason given")[:MAX_STDERR_BYTES], retryable=_is_transient(status)
            )
        return self._text_of(fields)

    def _text_of(self, fields: object) -> bytes:
        if not isinstance(fields, dict) or not isinstance(fields.get("content"), list):
            raise _api_error(200, "its answer has no content", retryable=True)
        reason = fields.get("stop_reason")
        if reason == "max_tokens":
            raise TaskError(
                f"the answer was cut off after {self.max_tokens:,} tokens (claude_max_tokens)",
                code="claude_error",
                retryable=False,
            )
        if reason not in {"end_turn", "stop_sequence"}:
            raise TaskError(f"no answer was given ({reason})", code="claude_error", retryable=False)
        blocks = [block for block in fields["content"] if isinstance(block, dict)]
        text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
        answer = text.encode()
        if len(answer) > self.max_bytes:
            raise too_large(self.max_bytes)
        return answer


def _is_transient(status: int) -> bool:
    return status >= 500 or status in {408, 409, 425, 429}


def _api_error(status: int, words: str, *, retryable: bool) -> TaskError:
    return TaskError(f"the API answered HTTP {status}: {words}", code="claude_error", retryable=retryable)


def too_large(limit: int) -> TaskError:
    """What to raise for an answer that is longer than allowed."""
    return TaskError(
        f"the answer has more than {limit:,} bytes (max_answer_bytes)", code="too_large", retryable=False
    )
