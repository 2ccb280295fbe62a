"""How far claims have come, by lane and priority."""

from __future__ import annotations

from tidewheel.core.model import Lane
from tidewheel.stores.postgres.claim_scan import (
    MAX_COMMIT_LAG_SECONDS,
    MAX_PRIORITIES_PER_LANE,
    ClaimCursors,
    ScanRanges,
)

MAIL, NEWS = Lane("mail", "send"), Lane("news", "print")


def granted(marks: ClaimCursors, *places: tuple[int, int], lane: Lane = MAIL, cut: int | None = None) -> None:
    for urgency, number in places:
        marks.advance(
            {(lane.topic, lane.task or "", urgency): number}, last_urgency=cut, topic_limits_apply=False
        )


def parts(ranges: ScanRanges) -> list[tuple[str, int | None, int | None, int | None]]:
    return list(
        zip(
            ranges.topics,
            ranges.urgencies or [],
            ranges.numbers or [],
            ranges.end_urgencies or [],
            strict=True,
        )
    )


def test_without_marks_each_lane_is_one_range() -> None:
    """From its start to its end."""
    assert parts(ClaimCursors([MAIL, NEWS], 0.0).ranges(0.0, rescan=False)) == [
        ("mail", None, None, None),
        ("news", None, None, None),
    ]


def test_each_priority_has_a_mark_of_its_own() -> None:
    """What is left out is exactly what was granted: up to the mark in each."""
    marks = ClaimCursors([MAIL, NEWS], 0.0)
    granted(marks, (-5, 70), (0, 90))
    assert parts(marks.ranges(0.0, rescan=False)) == [
        ("mail", None, None, -5),
        ("mail", -5, 70, 0),
        ("mail", 0, 90, None),
        ("news", None, None, None),
    ]


def test_a_mark_goes_back_only_where_a_claim_was_cut_off() -> None:
    """A job found behind it, with room for more, means that nothing else was there."""
    marks = ClaimCursors([MAIL], 0.0)
    granted(marks, (0, 90))
    granted(marks, (0, 5))
    assert parts(marks.ranges(0.0, rescan=False))[-1] == ("mail", 0, 90, None)
    granted(marks, (0, 5), cut=0)
    assert parts(marks.ranges(0.0, rescan=False))[-1] == ("mail", 0, 5, None)
    marks.advance({("mail", "send", 0): 3}, last_urgency=None, topic_limits_apply=True)
    assert parts(marks.ranges(0.0, rescan=False))[-1] == ("mail", 0, 3, None)


def test_what_became_ready_is_not_behind_a_mark() -> None:
    """Marks of its topic go back to before it, in every priority; others stay."""
    marks = ClaimCursors([MAIL, NEWS], 0.0)
    granted(marks, (-5, 70), (0, 90))
    granted(marks, (0, 95), lane=NEWS)
    marks.move_back({"mail": 80, "other": 1})
    assert parts(marks.ranges(0.0, rescan=False)) == [
        ("mail", None, None, -5),
        ("mail", -5, 70, 0),
        ("mail", 0, 79, None),
        ("news", None, None, 0),
        ("news", 0, 95, None),
    ]


def test_looking_back_goes_to_where_the_marks_were_a_while_ago() -> None:
    """At least the lag, at most twice that."""
    marks = ClaimCursors([MAIL], 0.0)
    granted(marks, (0, 10))
    assert parts(marks.ranges(0.0, rescan=True)) == [("mail", None, None, None)]
    marks.ranges(MAX_COMMIT_LAG_SECONDS, rescan=False)
    granted(marks, (0, 20))
    assert parts(marks.ranges(1.9 * MAX_COMMIT_LAG_SECONDS, rescan=True)) == [("mail", None, None, None)]
    assert parts(marks.ranges(2 * MAX_COMMIT_LAG_SECONDS, rescan=True))[-1] == ("mail", 0, 10, None)
    marks.move_back({"mail": 4})
    assert parts(marks.ranges(2 * MAX_COMMIT_LAG_SECONDS, rescan=True))[-1] == ("mail", 0, 3, None)


def test_a_lane_of_countless_priorities_is_looked_at_as_a_whole() -> None:
    """Ranges are probed one by one, and there must not be more of them than is worth it."""
    marks = ClaimCursors([MAIL], 0.0)
    granted(marks, *[(urgency, 10) for urgency in range(MAX_PRIORITIES_PER_LANE)])
    assert len(parts(marks.ranges(0.0, rescan=False))) == MAX_PRIORITIES_PER_LANE + 1
    granted(marks, (MAX_PRIORITIES_PER_LANE, 10))
    assert parts(marks.ranges(0.0, rescan=False)) == [("mail", None, None, None)]
