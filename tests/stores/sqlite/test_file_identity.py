"""One file under two names: refused, because each name has a log of its own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tidewheel import Tidewheel
from tidewheel.errors import ConfigurationError, StoreUnavailable
from tidewheel.stores.sqlite import SqliteStore, file_identity
from tidewheel.stores.sqlite.location import check_location, is_mount_point, is_network_file_system, parse_url

ENQUEUE = """
import asyncio, sys
from tidewheel import Tidewheel

async def main(path):
    async with Tidewheel(f"sqlite:///{path}") as app:
        @app.task
        def mail(number: int) -> None: ...
        print("open", flush=True)
        sys.stdin.readline()
        for number in range(20):
            await mail.enqueue(number)
    print("enqueued", flush=True)

asyncio.run(main(sys.argv[1]))
"""
"""A process that opens the file, waits for a line, and enqueues 20 jobs."""
BORROW = """
import sqlite3, sys
from tidewheel import Tidewheel

app = Tidewheel(f"sqlite:///{sys.argv[1]}")

@app.task
def mail(number: int) -> None: ...

with sqlite3.connect(sys.argv[1]) as connection:
    mail.using(connection).enqueue(number=1)
"""
"""A program that enqueues on a connection of its own, and never opens the store."""
IN_CONTAINER = 'mount --bind "$1" "$2" && shift && exec "$0" -c "$PROGRAM" "$@"'
"""The same in a mount namespace of its own, with the file mounted as ``docker run -v file:file`` does."""


_USER = [] if os.name == "posix" and os.geteuid() == 0 else ["--map-root-user"]


@pytest.fixture
def mount_namespaces() -> None:
    """For root, and for others where user namespaces are allowed."""
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        pytest.skip("there are no mount namespaces on this system")
    tried = subprocess.run(
        ["unshare", *_USER, "--mount", "mount", "--bind", "/", "/mnt"],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
    )
    if tried.returncode != 0:
        pytest.skip(f"this user may make no mount namespaces here: {tried.stderr.strip()}")


@contextmanager
def process(*command: str, program: str = ENQUEUE) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone after the block."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PROGRAM": program},
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def container(file: Path, at: Path) -> tuple[str, ...]:
    at.parent.mkdir()
    at.touch()
    return ("unshare", *_USER, "--mount", "sh", "-c", IN_CONTAINER, sys.executable, str(file), str(at))


async def make(path: Path) -> None:
    async with Tidewheel(f"sqlite:///{path}"):
        pass


def jobs_in(path: Path) -> int:
    connection = sqlite3.connect(path)
    [count] = connection.execute("SELECT count(*) FROM tidewheel_jobs").fetchone()
    connection.close()
    return int(count)


@pytest.mark.usefixtures("mount_namespaces")
async def test_two_containers_with_the_file_mounted_are_refused(tmp_path: Path) -> None:
    """Both would acknowledge jobs, each in its own log, and lose those of the other. The remedy is told."""
    path = tmp_path / "jobs.db"
    await make(path)
    inside = [tmp_path / name / "jobs.db" for name in ("one", "two")]
    with process(*container(path, inside[0])) as one, process(*container(path, inside[1])) as two:
        for started, place in ((one, inside[0]), (two, inside[1])):
            out, errors = started.communicate("go\n", timeout=120)
            assert started.returncode == 1, (out, errors)
            assert f"{place} is a mount point" in errors
            assert "mount the directory into containers" in errors
            assert out == ""
    assert jobs_in(path) == 0


@pytest.mark.usefixtures("mount_namespaces")
async def test_a_container_that_enqueues_in_its_own_transactions_is_refused(tmp_path: Path) -> None:
    """It never opens the store; its connection has a log of its own all the same."""
    path, inside = tmp_path / "jobs.db", tmp_path / "one" / "jobs.db"
    await make(path)
    with process(*container(path, inside), program=BORROW) as started:
        out, errors = started.communicate(timeout=120)
    assert started.returncode == 1, (out, errors)
    assert f"{inside} is a mount point" in errors
    assert "mount the directory into containers" in errors
    assert jobs_in(path) == 0


@pytest.mark.usefixtures("mount_namespaces")
async def test_containers_that_mount_the_directory_share_the_log(tmp_path: Path) -> None:
    """As the refusal advises: every acknowledged job is there, in whichever process it was enqueued."""
    directory, other = tmp_path / "data", tmp_path / "other"
    directory.mkdir()
    other.mkdir()
    path = directory / "jobs.db"
    await make(path)
    script = 'mount --bind "$1" "$2" && exec "$0" -c "$PROGRAM" "$2/jobs.db"'
    inside = ("unshare", *_USER, "--mount", "sh", "-c", script, sys.executable, str(directory), str(other))
    with process(*inside) as one, process(sys.executable, "-c", ENQUEUE, str(path)) as two:
        for started in (one, two):
            assert started.stdout is not None
            assert started.stdout.readline() == "open\n", started.stderr and started.stderr.read()
        for started in (one, two):
            out, errors = started.communicate("go\n", timeout=120)
            assert (out, started.returncode) == ("enqueued\n", 0), errors
    assert jobs_in(path) == 40


async def test_a_hard_link_is_refused_under_both_names(tmp_path: Path) -> None:
    """Also for a file that is opened for the first time; without the second name it is a good file."""
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    await make(path)
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(ConfigurationError, match=r"has 2 hard links, .* mount the directory"):
            await SqliteStore(f"sqlite:///{name}").open()
    other.unlink()
    await make(path)


@pytest.mark.parametrize("name", ["jobs.db", "other.db"])
async def test_a_connection_to_a_file_with_a_hard_link_takes_no_jobs(tmp_path: Path, name: str) -> None:
    """Under either name, also where both names are the same file for the app; without the link it does."""
    path = tmp_path / "jobs.db"
    await make(path)
    os.link(path, tmp_path / "other.db")
    app = Tidewheel(f"sqlite:///{path}")

    @app.task
    def mail(number: int) -> None: ...

    with closing(sqlite3.connect(tmp_path / name)) as connection:
        with pytest.raises(ConfigurationError, match=r"has 2 hard links, .* mount the directory"):
            mail.using(connection).enqueue(number=1)
        assert not connection.in_transaction
    (tmp_path / "other.db").unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        mail.using(connection).enqueue(number=1)
    assert jobs_in(path) == 1


async def test_a_symbolic_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    """SQLite follows it, so the log is beside the file; all checks look there, too."""
    (tmp_path / "real").mkdir()
    path, link = tmp_path / "real" / "jobs.db", tmp_path / "link.db"
    link.symlink_to(path)
    assert parse_url(f"sqlite:///{link}").path == str(path)
    store = SqliteStore(f"sqlite:///{link}")
    await store.open()
    await store.migrate()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link.db", "real"]
    await store.pause("mail", 1)
    os.rename(f"{path}-wal", tmp_path / "away")
    with pytest.raises(StoreUnavailable, match=r"real/jobs\.db-wal was removed"):
        await store.pause("mail", 1)
    os.rename(tmp_path / "away", f"{path}-wal")
    await store.close()


@pytest.mark.parametrize("asks", [True, False], ids=["asked for locks", "locked for a moment"])
async def test_a_file_in_use_with_another_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """Whatever gave it the second name: the lock is seen, and that nobody is at our log."""
    if not asks:  # as on systems that do not tell of locks
        monkeypatch.setattr(file_identity, "_is_locked", lambda _: None)
    monkeypatch.setattr(file_identity, "SETTLE_SECONDS", 0.2)
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    await make(path)
    with process(sys.executable, "-c", ENQUEUE, str(path)) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "open\n"
        os.link(path, other)  # after it was opened, so that only the locks can tell
        with pytest.raises(StoreUnavailable, match=r"other\.db stayed locked .* is not other\.db-wal"):
            file_identity.check_shared_wal(parse_url(f"sqlite:///{other}"))
        file_identity.check_shared_wal(parse_url(f"sqlite:///{path}"))
        other.unlink()
        out, errors = started.communicate("go\n", timeout=120)
        assert (out, started.returncode) == ("enqueued\n", 0), errors
    assert jobs_in(path) == 20


@pytest.fixture
def no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not asked about any file yet."""
    monkeypatch.setattr(file_identity, "_looked_at", {})


@pytest.mark.usefixtures("no_descriptors")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of locks without taking one")
async def test_a_process_with_many_files_keeps_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file for each customer must not use up the descriptors; beyond the maximum the check is weaker."""
    monkeypatch.setattr(file_identity, "MAX_DESCRIPTORS", 3)
    for number in range(6):
        await make(tmp_path / f"{number}.db")
        file_identity.check_shared_wal(parse_url(f"sqlite:///{tmp_path / f'{number}.db'}"))
    assert len(file_identity._looked_at) == 3
    for descriptor in file_identity._looked_at.values():
        os.close(descriptor)


@pytest.mark.usefixtures("no_descriptors")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of locks without taking one")
async def test_what_a_killed_process_left_does_not_hide_another_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``-shm`` under our name on which nobody has locks proves nothing: the other log is still seen."""
    monkeypatch.setattr(file_identity, "SETTLE_SECONDS", 0.2)
    path, other = tmp_path / "jobs.db", tmp_path / "other.db"
    await make(path)
    with process(sys.executable, "-c", ENQUEUE, str(path)) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "open\n"
        os.link(path, other)
        shutil.copy(f"{path}-shm", f"{other}-shm")
        with pytest.raises(StoreUnavailable, match=r"other\.db stayed locked .* is not other\.db-wal"):
            file_identity.check_shared_wal(parse_url(f"sqlite:///{other}"))
        other.unlink()
        started.kill()
        started.wait()
        assert Path(f"{path}-shm").exists()
        file_identity.check_shared_wal(parse_url(f"sqlite:///{path}"))  # nobody has the file
        with process(sys.executable, "-c", ENQUEUE, str(path)) as after:
            out, errors = after.communicate("go\n", timeout=120)
            assert (out, after.returncode) == ("open\nenqueued\n", 0), errors
    assert jobs_in(path) == 20


@pytest.mark.usefixtures("no_descriptors")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of locks without taking one")
async def test_looking_for_another_log_leaves_the_locks_of_this_process_alone(tmp_path: Path) -> None:
    """Another process still finds the log in use, and opens the file, after any number of looks here."""
    location = parse_url(f"sqlite:///{tmp_path / 'jobs.db'}")
    ask = "import sys; from tidewheel.stores.sqlite import file_identity as log; "
    ask += "sys.exit(not log._is_in_use(sys.argv[1]))"
    async with Tidewheel(f"sqlite:///{location.path}"):
        for _ in range(3):
            file_identity.check_shared_wal(location)
        with process(sys.executable, "-c", ask, f"{location.path}-shm") as started:
            _, errors = started.communicate(timeout=120)
            assert started.returncode == 0, errors
    assert not Path(f"{location.path}-shm").exists()


async def test_many_processes_that_open_a_new_file_at_once_all_may(tmp_path: Path) -> None:
    """Each holds the file for a moment before its log is there; the others wait for that."""
    path = tmp_path / "jobs.db"
    with ExitStack() as stack:
        started = [stack.enter_context(process(sys.executable, "-c", ENQUEUE, str(path))) for _ in range(4)]
        for one in started:
            out, errors = one.communicate("go\n", timeout=300)
            assert (out, one.returncode) == ("open\nenqueued\n", 0), errors
    assert jobs_in(path) == 80


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
63 22 254:0 /srv/jobs.db /data/jobs.db rw,relatime - ext4 /dev/vda rw
64 22 254:0 /srv/x /mnt/größe/a\\040b.db rw - ext4 /dev/vda rw
"""


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("/data/jobs.db", True), ("/data/jobs.db2", False), ("/data", False), ("/mnt/größe/a b.db", True)],
)
def test_a_mounted_file_is_known_by_its_name(path: str, is_one: bool) -> None:
    """Linux lists it; a bind mount within one file system cannot be told otherwise."""
    assert is_mount_point(Path(path), MOUNTS) is is_one


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("ext4", False), ("xfs", False), ("btrfs", False), ("zfs", False), ("overlay", False),
        ("apfs", False), ("tmpfs", False), ("fuseblk", False), ("fuse.fuse-overlayfs", False), (None, False),
        ("nfs4", True), ("cifs", True), ("9p", True), ("virtiofs", True), ("vboxsf", True), ("gcsfuse", True),
        ("juicefs", True), ("fuse", True), ("fuse.gcsfuse", True), ("fuse.juicefs", True),
        ("fuse.sshfs", True), ("fuse.anything-new", True), ("fuse.grpcfuse", True), ("fakeowner", True),
        ("vmhgfs", True),
    ],
)  # fmt: skip
def test_file_systems_without_shared_locks_are_known(kind: str | None, refused: bool) -> None:
    """Also shares of virtual machines, and every file system in user space that is not known as local."""
    assert is_network_file_system(kind) is refused


def test_a_link_to_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is where the file is, not where its name is."""
    (tmp_path / "share").mkdir()
    link = tmp_path / "jobs.db"
    link.symlink_to(tmp_path / "share" / "jobs.db")
    kinds = {tmp_path / "share": "virtiofs"}
    monkeypatch.setattr(
        "tidewheel.stores.sqlite.location.file_system_of", lambda where: kinds.get(where, "ext4")
    )
    with pytest.raises(ConfigurationError, match=r"share/jobs\.db is on a network file system \(virtiofs\)"):
        check_location(parse_url(f"sqlite:///{link}"))
