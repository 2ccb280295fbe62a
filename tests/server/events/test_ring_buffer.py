"""The ring, and what it does when it is full."""

from __future__ import annotations

from uuid import uuid4

from tidewheel.server.events.broadcaster import Listener, ListenerCredential
from tidewheel.server.events.ring_buffer import EventKind, EventRing, JobSubject, TopicSubject
from tidewheel.server.events.subscription import JobScope, Subscription


def topic(name: str) -> TopicSubject:
    return TopicSubject(None, name)


def tell(ring: EventRing, name: str) -> None:
    ring.add(topic(name), EventKind.TOPIC, b"{}", replaces=topic(name))


async def good() -> bool:
    return True


def listener(ring: EventRing, subscription: Subscription | None = None) -> Listener:
    return Listener(ring, subscription or Subscription(JobScope(None)), ListenerCredential("x", good))


def test_of_a_topics_counts_the_newest_stays() -> None:
    """However much happens in a topic, it takes one place."""
    ring = EventRing(10)
    for _ in range(1000):
        tell(ring, "a")
    assert len(ring) == 1
    assert [event.number for event in ring.after(0)] == [1000]
    assert ring.holds(0)


def test_a_job_is_told_in_full() -> None:
    """Events of a job replace nothing."""
    ring = EventRing(10)
    about = JobSubject(JobScope(None), uuid4())
    for number in range(5):
        ring.add(about, EventKind.JOB, b"{}", entries=(f"e{number}",))
    assert len(ring.after(0)) == 5
    assert ring.entries_of(about) == {"e0", "e1", "e2", "e3", "e4"}


def test_what_made_room_is_known_to_be_lost() -> None:
    """Who has read it goes on; who has not must read again."""
    ring = EventRing(10)
    for number in range(15):
        tell(ring, f"t{number}")
    assert len(ring) == 10
    assert ring.position_of(ring.id_at(4).decode()) is None
    assert ring.position_of(ring.id_at(5).decode()) == 5
    assert ring.position_of(ring.id_at(15).decode()) == 15
    assert ring.position_of(ring.id_at(16).decode()) is None


def test_names_of_lost_events_are_forgotten() -> None:
    """A million topics, one after the other, cost no more than the ring."""
    ring = EventRing(10)
    for number in range(1000):
        tell(ring, f"t{number}")
    assert len(ring._newest_by_key) <= 20
    tell(ring, "t995")  # still replaced
    assert len({event.subject for event in ring.after(0)}) == len(ring.after(0))


def test_a_listener_that_slept_too_long_starts_anew() -> None:
    """With one reset, and without what it missed."""
    ring = EventRing(10)
    slow = listener(ring)
    slow.first_events(None)
    for number in range(50):
        tell(ring, f"t{number}")
    text = slow.next_events()
    assert text.count(b"event: reset") == 1
    assert b"event: topic" not in text
    assert slow.next_events() == b""
    tell(ring, "t")
    assert slow.next_events().count(b"event: topic") == 1


def test_a_listener_passes_over_what_is_not_for_it() -> None:
    """And stands at the head all the same, so that it is never taken for one who slept."""
    ring = EventRing(10)
    narrow = listener(ring, Subscription(JobScope(None), frozenset({"mine"})))
    for number in range(5):
        tell(ring, f"t{number}")
    assert narrow.next_events() == b""
    assert narrow.position == ring.head


def test_large_amounts_are_written_in_parts() -> None:
    """Nothing is lost between two of them."""
    ring = EventRing()
    reader = listener(ring)
    for number in range(5000):
        tell(ring, f"t{number}")
    parts = []
    while text := reader.next_events():
        parts.append(text)
    assert len(parts) > 2
    assert max(map(len, parts)) < 70_000
    assert b"".join(parts).count(b"event: topic") == 5000
