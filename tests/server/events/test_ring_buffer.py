"""The ring, and what it does when it is full."""

from __future__ import annotations

from uuid import uuid4

from tidewheel.server.events.broadcaster import Credential, Listener
from tidewheel.server.events.ring_buffer import AboutJob, AboutTopic, Kind, Ring
from tidewheel.server.events.subscription import View, Wish


def topic(name: str) -> AboutTopic:
    return AboutTopic(None, name)


def tell(ring: Ring, name: str) -> None:
    ring.add(topic(name), Kind.TOPIC, b"{}", replaces=topic(name))


async def good() -> bool:
    return True


def listener(ring: Ring, wish: Wish | None = None) -> Listener:
    return Listener(ring, wish or Wish(View(None)), Credential("x", good))


def test_of_a_topics_counts_the_newest_stays() -> None:
    """However much happens in a topic, it takes one place."""
    ring = Ring(10)
    for _ in range(1000):
        tell(ring, "a")
    assert len(ring) == 1
    assert [event.number for event in ring.after(0)] == [1000]
    assert ring.holds(0)


def test_a_job_is_told_in_full() -> None:
    """Events of a job replace nothing."""
    ring = Ring(10)
    about = AboutJob(View(None), uuid4())
    for number in range(5):
        ring.add(about, Kind.JOB, b"{}", entries=(f"e{number}",))
    assert len(ring.after(0)) == 5
    assert ring.told_about(about) == {"e0", "e1", "e2", "e3", "e4"}


def test_what_made_room_is_known_to_be_lost() -> None:
    """Who has read it goes on; who has not must read again."""
    ring = Ring(10)
    for number in range(15):
        tell(ring, f"t{number}")
    assert len(ring) == 10
    assert ring.position_of(ring.id_at(4).decode()) is None
    assert ring.position_of(ring.id_at(5).decode()) == 5
    assert ring.position_of(ring.id_at(15).decode()) == 15
    assert ring.position_of(ring.id_at(16).decode()) is None


def test_names_of_lost_events_are_forgotten() -> None:
    """A million topics, one after the other, cost no more than the ring."""
    ring = Ring(10)
    for number in range(1000):
        tell(ring, f"t{number}")
    assert len(ring._newest) <= 20
    tell(ring, "t995")  # still replaced
    assert len({event.about for event in ring.after(0)}) == len(ring.after(0))


def test_a_listener_that_slept_too_long_starts_anew() -> None:
    """With one reset, and without what it missed."""
    ring = Ring(10)
    slow = listener(ring)
    slow.begin(None)
    for number in range(50):
        tell(ring, f"t{number}")
    text = slow.read()
    assert text.count(b"event: reset") == 1
    assert b"event: topic" not in text
    assert slow.read() == b""
    tell(ring, "t")
    assert slow.read().count(b"event: topic") == 1


def test_a_listener_passes_over_what_is_not_for_it() -> None:
    """And stands at the head all the same, so that it is never taken for one who slept."""
    ring = Ring(10)
    narrow = listener(ring, Wish(View(None), frozenset({"mine"})))
    for number in range(5):
        tell(ring, f"t{number}")
    assert narrow.read() == b""
    assert narrow.position == ring.head


def test_large_amounts_are_written_in_parts() -> None:
    """Nothing is lost between two of them."""
    ring = Ring()
    reader = listener(ring)
    for number in range(5000):
        tell(ring, f"t{number}")
    parts = []
    while text := reader.read():
        parts.append(text)
    assert len(parts) > 2
    assert max(map(len, parts)) < 70_000
    assert b"".join(parts).count(b"event: topic") == 5000
