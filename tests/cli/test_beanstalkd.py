"""``tidewheel beanstalkd``: what it can be told, where it listens, what it says."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

import greenstalk
import pytest

import tidewheel
from tests.cli.conftest import Run
from tests.cli.processes import Process, Project
from tests.patience import PATIENCE

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and sockets of other systems")


def port_of(process: Process) -> int:
    return int(process.wait_for(r"on 127\.0\.0\.1:(\d+)")[1])


def stop(process: Process) -> None:
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(PATIENCE) == 0


@posix
def test_a_script_that_starts_beanstalkd_can_start_us(project: Project) -> None:
    """All its options are taken; -b is where the jobs are, and a restart finds them."""
    (project.directory / "wal").mkdir()
    options = ["-l", "127.0.0.1", "-p0", "-z", "100", "-b", "wal", "-f0", "-F", "-s", "4096", "-V"]
    with project.start("beanstalkd", *options) as process:
        client = greenstalk.Client(("127.0.0.1", port_of(process)))
        number = client.put("x" * 100)
        with pytest.raises(greenstalk.JobTooBigError):
            client.put("x" * 101)
        stats = client.stats()
        assert (stats["max-job-size"], stats["binlog-max-size"]) == (100, 4096)
        assert (project.directory / "wal" / "tidewheel.db").exists()
        client.close()
        stop(process)
    with project.start("beanstalkd", *options) as process:
        client = greenstalk.Client(("127.0.0.1", port_of(process)))
        assert client.peek(number).body == "x" * 100
        client.close()


@posix
def test_it_listens_on_a_path_and_leaves_nothing_there(project: Project) -> None:
    """Also where a killed one left its socket."""
    path = project.directory / "queue.sock"
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with project.start("beanstalkd", "-l", f"unix:{path}", "--url", project.url) as process:
            process.wait_for("serves beanstalkd clients on unix:")
            with greenstalk.Client(str(path)) as client:
                assert client.using() == "default"
            process.popen.send_signal(number)
            process.popen.wait(PATIENCE)
    assert not path.exists()


@posix
@pytest.mark.parametrize("options", [["--bogus"], ["-Vv"], ["--url", "mysql://nowhere"], ["-p", "1"]])
def test_a_command_that_serves_nothing_leaves_no_socket(project: Project, options: list[str]) -> None:
    """It listens before it has read its options, and takes that back when they are wrong."""
    path = project.directory / "queue.sock"
    with project.start("beanstalkd", "--listen", f"unix:{path}", *options) as process:
        assert process.popen.wait(PATIENCE) == (0 if options == ["-Vv"] else 2)
    assert not path.exists()


@posix
def test_jobs_are_kept_in_a_directory_of_any_name(project: Project) -> None:
    """It becomes part of a URL, where some characters mean something else."""
    place = project.directory / "50%25 of #1?"
    place.mkdir()
    with project.start("beanstalkd", "-p0", "-b", str(place), "-c", "-n") as process:
        port_of(process)
        assert (place / "tidewheel.db").exists()
        stop(process)


@posix
def test_too_few_open_files_for_any_client_are_told(project: Project) -> None:
    """It does not start, instead of hanging up on everybody."""
    import resource
    import subprocess

    from tests.cli.processes import COMMAND

    answer = subprocess.run(
        [*COMMAND, "beanstalkd", "-p0", "--url", "memory://"],
        cwd=project.directory,
        env=project.environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 2
    assert "too few open files" in answer.stderr


@posix
def test_it_says_where_it_listens_on_stderr_and_nothing_on_stdout(project: Project) -> None:
    """beanstalkd is silent; scripts may depend on it."""
    import subprocess

    from tests.cli.processes import COMMAND

    with subprocess.Popen(
        [*COMMAND, "beanstalkd", "--listen", "127.0.0.1:0", "--url", "memory://"],
        cwd=project.directory,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as popen:
        assert popen.stderr is not None
        assert b"127.0.0.1:" in popen.stderr.readline()
        popen.send_signal(signal.SIGTERM)
        out, errors = popen.communicate(timeout=PATIENCE)
    assert (out, errors, popen.returncode) == (b"", b"", 0)


@posix
def test_clients_may_connect_before_it_is_ready(project: Project) -> None:
    """It listens first: whoever connects while the store is opened waits a moment, and is served."""
    with socket.socket() as placeholder:
        placeholder.bind(("127.0.0.1", 0))
        port = placeholder.getsockname()[1]
    with project.start("beanstalkd", "-p", str(port), "--url", project.url) as process:
        while True:
            try:
                client = greenstalk.Client(("127.0.0.1", port))
            except ConnectionRefusedError:
                assert process.popen.poll() is None
            else:
                break
        assert client.put("early") > 0
        client.close()


@posix
def test_the_store_and_settings_may_be_an_apps(project: Project) -> None:
    """Jobs of its tasks are the jobs that clients see."""
    project.write(
        "shop.py",
        'from tidewheel import Tidewheel\napp = Tidewheel("sqlite:///jobs.db", max_jobs_per_topic=1)\n',
    )
    with project.start("beanstalkd", "--listen", "127.0.0.1:0", "--app", "shop:app") as process:
        client = greenstalk.Client(("127.0.0.1", port_of(process)))
        client.put("one")
        with pytest.raises(greenstalk.OutOfMemoryError):
            client.put("two")
        client.close()
    assert (project.directory / "jobs.db").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--url", "memory://", "--app", "jobs:app"], "--app and --url both name a store"),
        (["--listen", "127.0.0.1:0", "-p", "1"], "--listen and -l or -p both say where"),
        (["--listen", "nowhere:port"], "HOST:PORT"),
        (["-b", "not-there"], "not-there"),
        (["-z", "many"], "many"),
        (["-p", "0", "-u", "nobody-of-this-name"], "there is no such user"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, options: list[str], says: str) -> None:
    """With a reason, and the code for wrong usage."""
    answer = run("beanstalkd", *options)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.errors
    assert gc.isenabled()


def test_the_version_is_shown_as_beanstalkd_shows_it(run: Run) -> None:
    """Scripts look for the number."""
    answer = run("beanstalkd", "-v")
    assert (answer.code, answer.out) == (0, f"beanstalkd 1.12 (tidewheel {tidewheel.__version__})\n")


@posix
def test_an_address_that_others_can_reach_is_warned_about(project: Project) -> None:
    """It has no passwords, and that has to be known."""
    with project.start("beanstalkd", "-l", "::", "-p", "0", "-z", str(2**31), "--url", "memory://") as one:
        one.wait_for("at most 1,073,741,824 bytes")
        one.wait_for("reached from other machines.*no passwords")
        one.wait_for("serves beanstalkd clients")
        stop(one)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another")
def test_root_becomes_the_user_it_is_told(project: Project) -> None:
    """After it listens, and before it opens the store."""
    import pwd

    for place in (sys.base_prefix, sys.prefix, tidewheel.__file__):
        for parent in Path(place).resolve().parents:
            if not parent.stat().st_mode & 0o001:
                pytest.skip(f"Python or Tidewheel is in {parent}, where nobody but its owner can run it")
    entry = pwd.getpwnam("nobody")
    # Not below pytest's directories, which are for their owner alone.
    with tempfile.TemporaryDirectory(prefix="tidewheel-nobody-") as place:
        os.chown(place, entry.pw_uid, entry.pw_gid)
        with project.start("beanstalkd", "-p0", "-u", "nobody", "-b", place) as process:
            client = greenstalk.Client(("127.0.0.1", port_of(process)))
            client.put("x")
            assert (Path(place) / "tidewheel.db").stat().st_uid == entry.pw_uid
            client.close()
            stop(process)
