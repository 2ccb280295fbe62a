"""Which errors are one error, tried on messages as libraries and people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core.fingerprints import (
    PATTERN_LENGTH,
    PLACEHOLDER,
    error_pattern,
    fingerprint,
    job_fingerprint,
)

ONE_ERROR = [
    ("TimeoutError: timeout after 30.1 s", "TimeoutError: timeout after 9 s"),
    ("missing: user 42 not found", "missing: user 1000007 not found"),
    ("KeyError: 'user_17'", "KeyError: 'order'"),
    ("E: [Errno 2] No such file or directory: '/tmp/a'", "E: [Errno 2] No such file or directory: '/b c'"),
    ("E: cannot open /var/lib/x/a.txt: denied", "E: cannot open ./b: denied"),
    (r"E: cannot open C:\Users\anna\a.txt", r"E: cannot open C:\b"),
    ("E: GET https://a.example/b?c=1 returned 503", "E: GET https://d.example/ returned 503"),
    (
        "E: job 0190f3f2-1111-7222-8333-1234567890ab is gone",
        "E: job 0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee is gone",
    ),
    ("E: object at 0x7f4280a5ea00 is closed", "E: object at 0xdeadbeef is closed"),
    ("E: commit 1a2b3c4d failed", "E: commit ffee0011aa22 failed"),
    ("E: connect to 10.0.0.12:5432 failed", "E: connect to 192.168.1.1:6543 failed"),
    ("E: at 2024-01-02T03:04:05Z", "E: at 2025-11-12T13:14:15Z"),
    (
        'E: duplicate key value violates unique constraint "users_email_key" Key (email)=(a@b.c) exists',
        'E: duplicate key value violates unique constraint "users_email_key" Key (email)=(dd@e.f) exists',
    ),
    (
        "worker_lost: its worker's lease ended during attempt 1; the worker was killed",
        "worker_lost: its worker's lease ended during attempt 3; the worker was killed",
    ),
    (
        'E: Traceback (most recent call last):\n  File "/a/b.py", line 12, in f\n    x()\nValueError: bad',
        'E: Traceback (most recent call last):\n  File "/c.py", line 3, in f\n    x()\nValueError: bad',
    ),
    ("E: balance is -3.50", "E: balance is 1,204.00"),
    ("E: user 9 " + "long " * 60, "E: user 10 " + "long " * 60),
]
TWO_ERRORS = [
    ("Timeout: it took too long", "Refused: it took too long"),
    ("E: user 42 not found", "E: order 42 not found"),
    ("HTTP503: upstream", "HTTP404: upstream"),
    ("E: can't read it's closed", "E: can't write it's closed"),
    ("E: read and/or write", "E: read or write"),
    ("E: decade", "E: facade"),
]


@pytest.mark.parametrize(("one", "other"), ONE_ERROR)
def test_what_varies_from_job_to_job_makes_no_difference(one: str, other: str) -> None:
    """Values, addresses, ids and times are left out, and the words around them stay."""
    assert error_pattern(one[:200]) == error_pattern(other[:200])
    assert error_pattern(one).startswith(one.partition(": ")[0])
    assert PLACEHOLDER in error_pattern(one)


@pytest.mark.parametrize(("one", "other"), TWO_ERRORS)
def test_other_words_are_another_error(one: str, other: str) -> None:
    """Codes are told apart to the last digit; apostrophes and slashes inside of words are part of them."""
    assert error_pattern(one) != error_pattern(other)


def test_the_same_error_of_another_lane_has_another_name() -> None:
    """A fingerprint is stable, short, and of one task and topic."""
    assert fingerprint("mail", "send", "E: x") == fingerprint("mail", "send", "E: x")
    assert fingerprint("mail", "send", "E: x") != fingerprint("mails", "end", "E: x")
    assert len(fingerprint("", "", "")) == 12


@given(st.text(max_size=200))
def test_every_error_has_a_short_pattern_and_a_fingerprint(summary: str) -> None:
    """Whatever a message holds; a job without an error has the fingerprint of the empty one."""
    assert len(error_pattern(summary)) <= PATTERN_LENGTH
    assert job_fingerprint("a", "b", summary) == fingerprint("a", "b", error_pattern(summary))
    assert job_fingerprint("a", "b", None) == job_fingerprint("a", "b", "")
