"""Time-ordered ids."""

from __future__ import annotations

import os
import sys
import threading
import time
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core.ids import IdSource, from_bytes, new_id


def test_an_id_is_a_valid_version_7_uuid_of_now() -> None:
    """Version, variant and the milliseconds of RFC 9562."""
    before = time.time_ns() // 1_000_000
    made = IdSource().next()
    after = time.time_ns() // 1_000_000
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= after


def test_ids_sort_in_the_order_they_were_made() -> None:
    """As numbers, as bytes and as text: an index on them is only appended to."""
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert [one.bytes for one in made] == sorted(one.bytes for one in made)
    assert [str(one) for one in made] == sorted(str(one) for one in made)
    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}


def test_threads_that_share_a_source_never_share_an_id() -> None:
    """And each of them sees its own ids grow."""
    source = IdSource()
    made: list[list[UUID]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def make(mine: list[UUID]) -> None:
        start.wait()
        mine.extend(source.next() for _ in range(1000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one for mine in made for one in mine}) == 8000
    assert all(mine == sorted(mine) for mine in made)


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=50))
def test_ids_grow_whatever_the_clock_does(steps: list[int]) -> None:
    """Standing still, jumping ahead or stepping back: the next id is greater, and valid."""
    source = IdSource()
    with pytest.MonkeyPatch.context() as patch:
        now = 1_767_225_600_000_000_000
        made = []
        for step in steps:
            now = max(0, now + step)
            patch.setattr(time, "time_ns", lambda now=now: now)
            made.append(source.next())
    assert made == sorted(set(made))
    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}


def test_the_counter_carries_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its last 62 bits, within one millisecond: version and variant stay, and ids grow."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_767_225_600_000_000_000)
    source = IdSource()
    before = source.next()
    source._tail = (1 << 62) - 1
    after = source.next()
    assert after > before
    assert (after.version, after.variant, after.int >> 80) == (7, RFC_4122, before.int >> 80)
    assert after < source.next()


def test_two_sources_make_different_ids() -> None:
    """Processes need no agreement: what follows the time is random."""
    first, second = IdSource(), IdSource()
    assert not {first.next() for _ in range(1000)} & {second.next() for _ in range(1000)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.skipif(sys.platform == "darwin", reason="fork after threads is unsafe on macOS")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    """Both go on from the same state, so the child starts anew."""
    new_id()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(new_id().bytes for _ in range(100)))
        os._exit(0)
    mine = {new_id().bytes for _ in range(100)}
    os.waitpid(child, 0)
    os.close(writer)
    raw = os.read(reader, 1600)
    os.close(reader)
    theirs = {raw[start : start + 16] for start in range(0, 1600, 16)}
    assert len(theirs) == 100
    assert not mine & theirs


@given(st.binary(min_size=16, max_size=16))
def test_a_stored_id_is_read_back_as_an_ordinary_uuid(raw: bytes) -> None:
    """Equal, and with equal hash, text and bytes."""
    quick, plain = from_bytes(raw), UUID(bytes=raw)
    assert quick == plain
    assert (hash(quick), str(quick), quick.bytes, quick.is_safe) == (
        hash(plain),
        str(plain),
        raw,
        plain.is_safe,
    )
