"""The tracing itself: logs are read in a careful order, and a refusal is loud."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.faults.sqlite.fork_server import nursery
from tests.faults.sqlite.strace import Tracing, TracingRefused, points, read_log

FILE = "/disk/jobs.db"


def test_a_log_with_interrupted_lines_is_read_in_the_order_that_promises_least(tmp_path: Path) -> None:
    """A sync counts from its end, a write from its beginning; a killed process's last call has failed."""
    log = tmp_path / "strace.log"
    path = "".join(f"\\x{byte:02x}" for byte in FILE.encode())
    log.write_text(
        f'7 pwrite64(3<{path}>, "\\x61\\x62", 2, 4096) = 2\n'
        f"7 fdatasync(3<{path}> <unfinished ...>\n"
        f'8 write(4<{path}>, "\\x63", 1) = 1\n'
        "7 <... fdatasync resumed>)          = 0\n"
        f"7 ftruncate(3<{path}>, 100 <unfinished ...>\n"
        "7 +++ killed by SIGKILL +++\n"
    )
    calls = read_log(log)
    assert [(call.name, call.data, call.offset, call.failed) for call in calls] == [
        ("pwrite64", b"ab", 4096, False),
        ("write", b"c", 0, False),
        ("fdatasync", b"", 0, False),
        ("ftruncate", b"", 100, True),
    ]
    assert {call.path for call in calls} == {FILE}
    assert list(map(str, points([call for call in calls if call.thread == 7]))) == [
        "pwrite64 1",
        "fdatasync 1",
        "ftruncate 1",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")
def test_a_system_that_refuses_tracing_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a skipped test: the promises would go untried, and nobody would notice."""
    program = tmp_path / "strace"
    program.write_text(
        "#!/bin/sh\necho 'strace: attach: ptrace(PTRACE_SEIZE, 7): not permitted' >&2; exit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    tracing = Tracing((tmp_path,), tmp_path / "strace.log")
    with nursery() as running, pytest.raises(TracingRefused, match=r"not permitted.*cap-add=SYS_PTRACE"):
        running.run("enqueue_one", f"sqlite:///{tmp_path}/jobs.db", tracing)
