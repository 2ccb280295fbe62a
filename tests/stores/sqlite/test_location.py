"""Which file a URL means, and which places are refused."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidewheel import Tidewheel
from tidewheel.errors import ConfigurationError, StoreError, StoreUnavailable
from tidewheel.stores.sqlite import SqliteStore
from tidewheel.stores.sqlite.location import check_location, file_system_of, parse_url
from tidewheel.stores.sqlite.temporary_store import SqliteTemporaryStore


def test_three_slashes_are_relative_and_four_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As everybody writes SQLite URLs."""
    monkeypatch.chdir(tmp_path)
    assert parse_url("sqlite:///jobs.db").path == str(tmp_path / "jobs.db")
    assert parse_url("sqlite:////var/lib/jobs.db").path == "/var/lib/jobs.db"
    assert parse_url("sqlite:///with%20space.db").path == str(tmp_path / "with space.db")


def test_durability_is_full_unless_told(tmp_path: Path) -> None:
    """An acknowledged job survives power loss by default."""
    assert parse_url("sqlite:///jobs.db").synchronous == "FULL"
    assert parse_url("sqlite:///jobs.db?synchronous=normal").synchronous == "NORMAL"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://jobs.db", "three slashes"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///jobs.db?synchronous=off", "full or normal"),
        ("sqlite:///jobs.db?busy_timeout=never", "0 to 3600"),
        ("sqlite:///jobs.db?busy_timeout=0", "0 to 3600"),
        ("sqlite:///jobs.db?mode=ro", "unknown option 'mode'"),
        ("sqlite:///jobs%00.db", "NUL"),
    ],
)
def test_a_url_that_cannot_work_is_refused_with_the_remedy(url: str, words: str) -> None:
    """Before anything is opened."""
    with pytest.raises(ConfigurationError, match=words):
        parse_url(url)


def test_a_missing_directory_and_a_directory_are_refused(tmp_path: Path) -> None:
    """SQLite's own message, unable to open database file, says neither."""
    with pytest.raises(ConfigurationError, match="does not exist"):
        check_location(parse_url(f"sqlite:///{tmp_path}/nowhere/jobs.db"))
    with pytest.raises(ConfigurationError, match="is a directory"):
        check_location(parse_url(f"sqlite:///{tmp_path}"))


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /mnt/share rw,relatime shared:1 - nfs4 server:/export rw
31 22 0:26 / /mnt/with\\040space rw - cifs //server/share rw
32 30 0:27 / /mnt/share/local rw - ext4 /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/srv", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/er", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/with space/x", "cifs"),
        ("/mnt/share/local/x", "ext4"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(directory: str, kind: str) -> None:
    """Names that merely begin alike are different directories."""
    assert file_system_of(Path(directory), MOUNTS) == kind


def test_a_network_file_system_is_refused_and_can_be_insisted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's locks do not hold there; who knows better says so in the URL."""
    monkeypatch.setattr("tidewheel.stores.sqlite.location.file_system_of", lambda _: "nfs4")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with pytest.raises(ConfigurationError, match=r"network file system \(nfs4\)"):
        check_location(parse_url(url))
    check_location(parse_url(f"{url}?network_filesystem=allow"))


def modes(directory: Path) -> dict[str, str]:
    return {entry.name: f"{stat.S_IMODE(entry.stat().st_mode):04o}" for entry in directory.iterdir()}


@pytest.fixture
def generous() -> Iterator[None]:
    """A umask under which every file is for everyone, as some systems have it."""
    before = os.umask(0o000)
    yield
    os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="modes say nothing there")
@pytest.mark.usefixtures("generous")
async def test_other_users_can_read_no_file_that_we_make(tmp_path: Path) -> None:
    """The file, its log and its shared memory, whatever opens it first; also those of a scratch file."""
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.enqueue("mail", {})
        scratch = SqliteTemporaryStore(app.url)
        await scratch.create()
        found = modes(tmp_path)
        await scratch.remove()
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm"} <= set(found)
    assert len(found) == 6, "and those of the scratch file"
    assert set(found.values()) == {"0600"}


@pytest.mark.skipif(os.name != "posix", reason="modes say nothing there")
@pytest.mark.usefixtures("generous")
async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Somebody may share it with a group on purpose: the log has the same mode."""
    (tmp_path / "jobs.db").touch()
    (tmp_path / "jobs.db").chmod(0o660)
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db"):
        assert set(modes(tmp_path).values()) == {"0660"}


async def test_threads_that_make_one_file_at_once_share_it(tmp_path: Path) -> None:
    """None closes a file that another has locked meanwhile: that would drop the lock."""
    apps = [Tidewheel(f"sqlite:///{tmp_path}/jobs.db") for _ in range(8)]
    await asyncio.gather(*(app.open() for app in apps))
    jobs = await asyncio.gather(*(app.enqueue("mail", {"number": n}) for n, app in enumerate(apps)))
    assert len({job.id for job in jobs}) == 8
    assert await apps[0].check() == []
    for app in apps:
        await app.close()


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """And left as it is."""
    path.write_bytes(b"this is a letter, not a database " * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a database"):
        await SqliteStore(f"sqlite:///{path}").open()
    assert path.read_bytes() == before


async def test_a_file_that_cannot_be_written_is_refused(path: Path) -> None:
    """In one clear line with the path."""
    if os.name != "posix" or os.geteuid() == 0:
        # Root may write anywhere, so for root the obstacle is a name that cannot be opened as a file.
        path = Path("/proc/jobs.db")
        if not path.parent.is_dir():
            path = path.parent.parent / "dev" / "null" / "jobs.db"
    else:
        path.parent.chmod(0o500)
    with pytest.raises((StoreUnavailable, ConfigurationError)) as caught:
        await SqliteStore(f"sqlite:///{path}").open()
    assert str(path.parent) in str(caught.value)
