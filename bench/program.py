"""One adapter process, as the harness sees it: asked in JSON lines, never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from bench.environments import Environment

PATIENCE = 60.0
"""Seconds an answer may take that should come at once."""


class AdapterFailed(Exception):
    """An adapter said so, fell silent or died."""


class Program:
    """An adapter that was started. One question at a time."""

    def __init__(self, environment: Environment, log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                environment.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**_inherited(), **environment.variables},
                start_new_session=True,  # a Ctrl-C is for the harness, which ends its programs in order
            )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def tell(self, do: str, **arguments: Any) -> None:
        """Ask without waiting; ``answer`` comes next."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise AdapterFailed(f"the adapter is gone: {self._last_words()}") from None

    def answer(self, patience: float = PATIENCE) -> dict[str, Any]:
        try:
            message = self._answers.get(timeout=patience)
        except queue.Empty:
            raise AdapterFailed(f"no answer within {patience:.0f} s") from None
        if message is None:
            self._answers.put(None)
            raise AdapterFailed(f"the adapter ended: {self._last_words()}")
        if "error" in message:
            raise AdapterFailed(message["error"].strip())
        return message

    def ask(self, do: str, patience: float = PATIENCE, **arguments: Any) -> dict[str, Any]:
        self.tell(do, **arguments)
        return self.answer(patience)

    def _last_words(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-5:]) or "(it said nothing)"

    def close(self) -> None:
        """End it, gently for a moment: adapters end by themselves when the harness hangs up."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _inherited() -> dict[str, str]:
    """What adapters may know of our environment: settings of a queue must not come from outside."""
    mine = ("PATH", "HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME", "SYSTEMROOT")
    return {name: os.environ[name] for name in mine if name in os.environ}
