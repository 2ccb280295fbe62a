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

from windlass.errors import RetryAfter, TaskError
from windlass.tasks.exchange import Address, Request, exchange

VERSION: Final = "2023-06-01"
MAX_COMPLAINT: Final = 2_000
"""Bytes of a program's last words that are kept."""
LAST_WORDS_SECONDS: Final = 5.0
"""For a program that was asked to stop; then it is killed."""


class Asking(Protocol):
    """A way to have a prompt answered."""

    async def answer(self, prompt: str) -> bytes:
        """The answer. A ``TaskError`` when there is none; cancelling it ends whatever it started."""


@dataclass(frozen=True, slots=True)
class Program:
    """A command that reads a prompt from standard input and writes the answer to standard output."""

    command: tuple[str, ...]
    max_bytes: int

    async def answer(self, prompt: str) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # so that what it starts can be ended along with it
            )
        except OSError as error:
            raise TaskError(f"{self.command[0]} cannot be started: {error}", code="claude_error") from None
        feeding = asyncio.create_task(_feed(process, prompt))
        reading = asyncio.create_task(self._all_of(process))
        listening = asyncio.create_task(_end_of(process))
        try:
            _, answer, complaint = await asyncio.gather(feeding, reading, listening)
            code = await process.wait()
        finally:
            for part in (feeding, reading, listening):  # the others go on when one of them fails
                part.cancel()
            await _end(process)
        if code != 0:
            words = complaint.decode("utf-8", "replace").strip() or "it said nothing"
            raise TaskError(f"{self.command[0]} ended with {code}: {words}", code="claude_error")
        return answer

    async def _all_of(self, process: asyncio.subprocess.Process) -> bytes:
        answer = bytearray()
        while process.stdout is not None and (block := await process.stdout.read(65_536)):
            answer += block
            if len(answer) > self.max_bytes:
                raise too_large(self.max_bytes)
        return bytes(answer)


async def _feed(process: asyncio.subprocess.Process, prompt: str) -> None:
    if process.stdin is None:
        return
    # A program may have read enough before the end; whether that was wrong, its exit code says.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(prompt.encode())
        await process.stdin.drain()
        process.stdin.close()


async def _end_of(process: asyncio.subprocess.Process) -> bytes:
    """The last of what it complained about: that is where the reason stands."""
    complaint = b""
    while process.stderr is not None and (block := await process.stderr.read(65_536)):
        complaint = (complaint + block)[-MAX_COMPLAINT:]
    return complaint


async def _end(process: asyncio.subprocess.Process) -> None:
    """Nothing of it may go on when the handler does not: a second run would ask a second time beside it."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_SECONDS):
                    # An end is not seen before the pipes are empty.
                    await asyncio.gather(_forget(process.stdout), _forget(process.stderr), process.wait())
    finally:  # also when whoever waits is out of patience
        if process.returncode is None:
            _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
            await process.wait()
        # Nobody reads its pipes any more, and something it started may hold their other ends for long.
        process._transport.close()  # type: ignore[attr-defined] # asyncio has no other way to


async def _forget(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(65_536):
        pass


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


@dataclass(frozen=True, slots=True)
class Api:
    """Anthropic's Messages API."""

    url: Address
    model: str
    key: Callable[[], str]
    max_tokens: int
    max_bytes: int
    idle_seconds: float

    async def answer(self, prompt: str) -> bytes:
        body = json.dumps(
            {
                "model": self.model,
                "max_tokens": self.max_tokens,
                "messages": [{"role": "user", "content": prompt}],
            }
        ).encode()
        headers = {"Content-Type": "application/json", "X-Api-Key": self.key(), "Anthropic-Version": VERSION}
        request = Request(self.url, "POST", headers, body)
        # JSON escapes may make an answer six times as long on the way.
        async with exchange(request, reach=None, idle_seconds=self.idle_seconds) as reply:
            text = await reply.read(6 * self.max_bytes + 65_536)
            status, retry_after = reply.status, reply.headers.get("retry-after", "")
        if status == 429 and retry_after.isdecimal():
            raise RetryAfter(min(float(retry_after), 3600.0), "the API asks for patience (HTTP 429)")
        try:
            fields = json.loads(text)
        except ValueError:
            raise _refused(status, "it answered no JSON", retryable=True) from None
        if status != 200:
            error = fields.get("error") if isinstance(fields, dict) else None
            words = error.get("message") if isinstance(error, dict) else None
            raise _refused(
                status, str(words or "no reason given")[:MAX_COMPLAINT], retryable=_passing(status)
            )
        return self._text_of(fields)

    def _text_of(self, fields: object) -> bytes:
        if not isinstance(fields, dict) or not isinstance(fields.get("content"), list):
            raise _refused(200, "its answer has no content", retryable=True)
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


def _passing(status: int) -> bool:
    return status >= 500 or status in {408, 409, 425, 429}


def _refused(status: int, words: str, *, retryable: bool) -> TaskError:
    return TaskError(f"the API answered HTTP {status}: {words}", code="claude_error", retryable=retryable)


def too_large(limit: int) -> TaskError:
    """What to raise for an answer that is longer than allowed."""
    return TaskError(
        f"the answer has more than {limit:,} bytes (max_answer_bytes)", code="too_large", retryable=False
    )
