"""The processes under test, as the sweep handles them: started, killed, frozen, stopped, replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

from tidewheel.errors import ConfigurationError, StoreError
from tidewheel.verification.history import ProcessEnded, ProcessFrozen, ProcessResumed, Recorder, read_history
from tidewheel.verification.process_main import READY

START_TIMEOUT_SECONDS: Final = 60.0
"""How long an interpreter may take to start and open the store; a store that is away takes its time."""
STOP_TIMEOUT_SECONDS: Final = 30.0
MAX_FAILED_STARTS: Final = 100
"""Starts in a row that may fail before there must be another reason than trouble."""

_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop()); "
    "from tidewheel.verification.process_main import main; main()"
)
"""The last argument is where Tidewheel is: this program may have found it in a place of its own."""

Role = Literal["worker", "guard", "producer"]
"""A guard is a worker that nobody harms: somebody must be there to notice that others have died."""


class ManagedProcess:
    """One process."""

    def __init__(self, name: str, role: Role, popen: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.role: Role = role
        self.popen = popen
        self.ready = False
        self.frozen = False
        self.stopping = False  # was told to stop
        self.killed = False  # by the sweep

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    @property
    def working(self) -> bool:
        """There, up, and nobody has done anything to it."""
        return self.alive and self.ready and not self.frozen and not self.stopping

    async def wait(self, seconds: float) -> bool:
        """True once it has ended, False when it does not within the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.alive:
            if loop.time() > deadline:
                return False
            await asyncio.sleep(0.01)
        return True


class ProcessGroup:
    """All processes of a sweep. A worker that dies is replaced by one with another name."""

    def __init__(
        self,
        directory: Path,
        recorder: Recorder,
        *,
        url_for: Callable[[str], Awaitable[str]],
        lease: float,
        seed: int,
        pause: float,
    ) -> None:
        self._directory = directory
        self._recorder = recorder
        self._url_for = url_for
        self._lease = lease
        self._choose = random.Random(seed)  # noqa: S311 - guards nothing
        self._pause = pause
        self._started = 0
        self._missing: list[Role] = []  # to be started as soon as that works
        self._failed_starts = 0  # starts in a row that did not
        self.processes: list[ManagedProcess] = []
        self.problems: list[str] = []

    @property
    def histories(self) -> list[Path]:
        """The files in which members wrote down what they did."""
        return sorted(self._directory.glob("*.jsonl"))

    def working(self, role: Role) -> list[ManagedProcess]:
        return [member for member in self.processes if member.role == role and member.working]

    def log_tail(self, name: str) -> str:
        """The last lines a process wrote to its log."""
        log = self._directory / f"{name}.log"
        lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
        return "\n".join(lines[-5:]) or "it said nothing"

    async def start(self, role: Role) -> ManagedProcess:
        """One more process, up and running."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigurationError(
                "workers are started in Python interpreters of their own, and this program has none; run it "
                "with Python itself"
            )
        self._started += 1
        name = f"{role}-{self._started}"
        orders = {
            "role": role,
            "name": name,
            "url": await self._url_for(name),
            "history": str(self._directory / f"{name}.jsonl"),
            "lease": self._lease,
            "seed": self._choose.randrange(2**32),
            "pause": self._pause,
        }
        member = ManagedProcess(name, role, self._spawn(name))
        self.processes.append(member)
        popen = member.popen
        assert popen.stdin is not None  # noqa: S101 - asked for in _spawn
        with contextlib.suppress(BrokenPipeError):  # dead already, which is seen below
            popen.stdin.write(json.dumps(orders).encode() + b"\n")
            popen.stdin.flush()
        await self._until_ready(member)
        return member

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        options: dict[str, Any] = {}
        # A group of its own: Ctrl-C is for the sweep alone, which then stops the others.
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
        else:
            options["process_group"] = 0
        # For its owner alone, as histories are: an error may quote the URL of the store.
        descriptor = os.open(self._directory / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with open(descriptor, "ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter
                # -P: nothing is imported from the working directory.
                [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                **options,
            )

    async def _until_ready(self, member: ManagedProcess) -> None:
        assert member.popen.stdout is not None  # noqa: S101 - asked for in _spawn
        output = member.popen.stdout
        os.set_blocking(output.fileno(), False)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_SECONDS
        while output.read(len(READY)) != READY:
            if member.killed:
                return
            if not member.alive or loop.time() > deadline:
                why = "ended" if not member.alive else f"was not ready within {START_TIMEOUT_SECONDS:g} s"
                self.kill(member)
                self.processes.remove(member)
                raise StoreError(f"{member.name} {why}: {self.log_tail(member.name)}")
            await asyncio.sleep(0.02)
        member.ready = True

    # -- what can be done to them -------------------------------------------------------------------------

    def kill(self, member: ManagedProcess) -> None:
        """SIGKILL: nothing of it runs any more."""
        member.killed = True
        member.popen.kill()
        member.popen.wait()
        self._remove(member)
        self._recorder.write(ProcessEnded(at=self._recorder.now(), process=member.name))

    def freeze(self, member: ManagedProcess) -> None:
        """SIGSTOP: it is there, and does nothing."""
        member.frozen = True
        member.popen.send_signal(signal.SIGSTOP)
        self._recorder.write(ProcessFrozen(at=self._recorder.now(), process=member.name))

    def thaw(self, member: ManagedProcess) -> None:
        if member.frozen and member.alive:
            self._recorder.write(ProcessResumed(at=self._recorder.now(), process=member.name))
            member.popen.send_signal(signal.SIGCONT)
        member.frozen = False

    async def stop(self, member: ManagedProcess) -> None:
        """Ask it to end, as a deployment does, and see that it does."""
        member.stopping = True
        self.thaw(member)
        if member.role == "producer" and member.popen.stdin is not None:
            member.popen.stdin.close()
        else:
            member.popen.terminate()
        if not await member.wait(STOP_TIMEOUT_SECONDS):
            self.problems.append(f"{member.name} did not stop within {STOP_TIMEOUT_SECONDS:g} s")
            self.kill(member)
            return
        self._remove(member)
        # What it could not give back is as good as orphaned.
        self._recorder.write(ProcessEnded(at=self._recorder.now(), process=member.name))

    def _remove(self, member: ManagedProcess) -> None:
        for pipe in (member.popen.stdin, member.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    async def replace_ended(self) -> None:
        """Start a process for each that is gone. One that ended by itself is a problem."""
        gone = [member for member in self.processes if not member.alive]
        for member in gone:
            self.processes.remove(member)
            code = member.popen.returncode
            if not (member.killed or member.stopping):
                if not self._announced_its_end(member):
                    self.problems.append(
                        f"{member.name} ended with code {code}: {self.log_tail(member.name)}"
                    )
                self._recorder.write(ProcessEnded(at=self._recorder.now(), process=member.name))
            self._remove(member)
            self._missing.append(member.role)
        while self._missing:
            try:
                await self.start(self._missing[-1])
            except StoreError:
                # The store is away as well. Whoever watches over processes tries again, and so does this.
                self._failed_starts += 1
                if self._failed_starts > MAX_FAILED_STARTS:
                    raise
                return
            self._failed_starts = 0
            self._missing.pop()

    def _announced_its_end(self, member: ManagedProcess) -> bool:
        """A deadly job writes down that it kills its worker; nobody else but the sweep does that."""
        history = self._directory / f"{member.name}.jsonl"
        return any(
            isinstance(event, ProcessEnded) for event in read_history([history] if history.exists() else [])
        )

    def retire_role(self, role: Role) -> None:
        """Nobody of this role is replaced any more; those there were have ended."""
        self.processes = [member for member in self.processes if member.role != role]
        self._missing = [missing for missing in self._missing if missing != role]

    def kill_all(self) -> None:
        """Whatever happens, nobody is left behind."""
        for member in self.processes:
            if member.alive:
                self.kill(member)
            else:
                self._remove(member)
