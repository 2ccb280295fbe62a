"""The table of bad enqueues: each a clear typed error, nothing written, the same words on every store."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import URLS
from tidewheel import InvalidInput, InvalidPayload, LimitExceeded, Retry, Tidewheel, TidewheelError


@dataclass(frozen=True)
class Bad:
    """One bad enqueue: what is wrong, and words the message must hold (value, limit, remedy)."""

    id: str
    says: tuple[str, ...]
    target: Any = "anything"
    payload: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    error: type[TidewheelError] = InvalidInput


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def wait_for(attempt: int, error: BaseException) -> float:
    return 1.0


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


TABLE = [
    # topic
    Bad("topic-empty", ("topic is ''", "1 to 200"), target=""),
    Bad("topic-space", ("topic is 'a b'", "A-Z a-z 0-9 _ -"), target="a b"),
    Bad("topic-dot", ("topic is 'a.b'",), target="a.b"),
    Bad("topic-long", ("201 characters", "1 to 200"), target="x" * 201),
    Bad("topic-newline", (r"topic is 'a\n'",), target="a\n"),
    Bad("topic-nul", ("topic is",), target="a\0"),
    Bad("topic-unicode", ("topic is 'größe'",), target="größe"),
    Bad("topic-number", ("is 7 (int)", "give a task or a name"), target=7),
    Bad("topic-none", ("is None",), target=None),
    Bad("topic-option", ("topic is 'x y'",), target="send", payload={"to": "a"}, options={"topic": "x y"}),
    # payload as JSON
    Bad(
        "too-large",
        ("payload is 65,5", "65,536 (max_payload_bytes)"),
        payload="x" * 65_536,
        error=LimitExceeded,
    ),
    Bad("bytes-too-large", ("65,537 bytes", "max_payload_bytes"), payload=b"x" * 65_537, error=LimitExceeded),
    Bad("too-deep", ("64 levels",), payload=nested(65), error=InvalidPayload),
    Bad("far-too-deep", ("64 levels",), payload=nested(100_000), error=InvalidPayload),
    Bad("circular", ("64 levels",), payload=circular(), error=InvalidPayload),
    Bad("nul", ("NUL", "base64"), payload={"a": "x\0"}, error=InvalidPayload),
    Bad("nul-in-key", ("NUL",), payload={"x\0": 1}, error=InvalidPayload),
    Bad("surrogate", ("lone surrogate", r"\ud800", "UTF-8"), payload={"a": "\ud800"}, error=InvalidPayload),
    Bad("surrogate-in-key", ("lone surrogate",), payload={"\udfff": 1}, error=InvalidPayload),
    Bad("nan", ("not finite", "null"), payload={"a": float("nan")}, error=InvalidPayload),
    Bad("infinity", ("not finite",), payload=[float("-inf")], error=InvalidPayload),
    Bad("integer-2^63", ("9223372036854775808", "2^63-1"), payload=[2**63], error=InvalidPayload),
    Bad("integer-below", ("-9223372036854775809", "-2^63"), payload=[-(2**63) - 1], error=InvalidPayload),
    Bad("integer-2^1000", ("about 2^1001",), payload=[2**1000], error=InvalidPayload),
    Bad("integer-huge", ("payload",), payload=[10**5000], error=InvalidPayload),
    Bad("object", ("object is not a JSON type",), payload={"a": object()}, error=InvalidPayload),
    Bad("function", ("not a JSON type",), payload=print, error=InvalidPayload),
    Bad("odd-key", ("payload",), payload={(1, 2): 3}, error=InvalidPayload),
    # payload against the signature
    Bad("missing", ("'send'", "to is missing", "takes to, count"), target="send", error=InvalidPayload),
    Bad("wrong-type", ("to: expected str, got int (7)",), "send", {"to": 7}, error=InvalidPayload),
    Bad("null", ("to: expected str, got null",), "send", {"to": None}, error=InvalidPayload),
    Bad(
        "whole-float", ("count", "95.0", "decimal"), "send", {"to": "a", "count": 95.0}, error=InvalidPayload
    ),
    Bad(
        "bool-int",
        ("count: expected int, got bool",),
        "send",
        {"to": "a", "count": True},
        error=InvalidPayload,
    ),
    Bad("unknown-field", ("did you mean count?",), "send", {"to": "a", "cuont": 1}, error=InvalidPayload),
    Bad("list", ("expected object, got array",), "send", ["a"], error=InvalidPayload),
    Bad("text", ("expected object, got str",), "send", "a", error=InvalidPayload),
    Bad("not-json-bytes", ("not JSON",), "send", b"{", error=InvalidPayload),
    Bad("no-bytes", ("it takes bytes, got dict",), "blob", {"a": 1}, error=InvalidPayload),
    # time
    Bad("run-at-naive", ("without a time zone", "tzinfo=UTC"), options={"run_at": datetime(2030, 1, 1)}),  # noqa: DTZ001
    Bad("run-at-1969", ("1969", "1970"), options={"run_at": datetime(1969, 12, 31, tzinfo=UTC)}),
    Bad("run-at-text", ("'2030-01-01'", "datetime"), options={"run_at": "2030-01-01"}),
    Bad("run-at-number", ("run_at is 1893456000", "datetime"), options={"run_at": 1_893_456_000}),
    Bad(
        "both-times",
        ("run_at and delay", "one"),
        options={"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1},
    ),
    Bad("delay-negative", ("delay is -1 seconds", "0 to"), options={"delay": -1}),
    Bad("delay-nan", ("delay is nan",), options={"delay": float("nan")}),
    Bad("delay-infinite", ("delay is inf",), options={"delay": float("inf")}),
    Bad("delay-absurd", ("3,155,760,000",), options={"delay": 1e12}),
    Bad("delay-timedelta", ("delay is -1.0 seconds",), options={"delay": timedelta(seconds=-1)}),
    Bad("delay-bool", ("delay is True (bool)",), options={"delay": True}),
    Bad("expires-zero", ("expires is 0 seconds",), options={"expires": 0}),
    # the other options
    Bad("priority-text", ("priority is 'high' (str)", "whole number"), options={"priority": "high"}),
    Bad("priority-bool", ("priority is True (bool)",), options={"priority": True}),
    Bad("priority-float", ("priority is 1.0 (float)",), options={"priority": 1.0}),
    Bad("priority-large", ("4294967297", "4,294,967,296"), options={"priority": 2**32 + 1}),
    Bad("attempts-zero", ("max_attempts is 0", "1 to"), options={"max_attempts": 0}),
    Bad("attempts-large", ("max_attempts is", "2,147,483,647"), options={"max_attempts": 10**5000}),
    Bad("timeout-zero", ("timeout is 0 seconds", "0.001"), options={"timeout": 0}),
    Bad("timeout-text", ("timeout is '5m' (str)", "seconds as a number"), options={"timeout": "5m"}),
    Bad("key-empty", ("key is empty", "255 (max_key_length)"), options={"key": ""}),
    Bad("key-long", ("key has 256 characters", "255 (max_key_length)"), options={"key": "k" * 256}),
    Bad("key-nul", ("key is", "NUL"), options={"key": "a\0b"}),
    Bad("key-surrogate", ("key is", "surrogates"), options={"key": "a\ud800"}),
    Bad("key-number", ("key is 7 (int)", "text"), options={"key": 7}),
    Bad("until", ("until is 'never'", "pruned, finished"), options={"key": "k", "until": "never"}),
    Bad("on-duplicate", ("on_duplicate is 'merge'", "keep, replace"), options={"on_duplicate": "merge"}),
    Bad("tenant", ("tenant is 'a/b'", "1 to 200"), options={"tenant": "a/b"}),
    Bad("tenant-empty", ("tenant is ''",), options={"tenant": ""}),
    Bad("correlation", ("correlation_id has 256", "255"), options={"correlation_id": "c" * 256}),
    Bad("user", ("user_id is 7 (int)",), options={"user_id": 7}),
    Bad("service", ("service_id is empty",), options={"service_id": ""}),
    Bad("retry", ("retry is 3", "Retry.fixed"), options={"retry": 3}),
    Bad("retry-call", ("cannot be stored",), options={"retry": Retry.call(wait_for)}),
    Bad("retention", ("retention is -5 seconds",), options={"retention": -5}),
    Bad("unknown-option", ("'dealy'", "did you mean delay?", "the options are"), options={"dealy": 1}),
    Bad("unprintable", ("priority is <Unprintable",), options={"priority": Unprintable()}),
]


def make_app(url: str) -> Tidewheel:
    app = Tidewheel(url)

    @app.task
    def send(to: str, count: int = 1) -> None: ...

    @app.task
    def blob(data: bytes) -> None: ...

    return app


async def refusal(app: Tidewheel, bad: Bad) -> TidewheelError:
    with pytest.raises(bad.error) as refused:
        await app.enqueue(bad.target, bad.payload, **bad.options)
    return refused.value


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.id)
async def test_a_bad_enqueue_is_refused_and_leaves_nothing(bad: Bad, tmp_path: Path) -> None:
    """Value, limit and remedy are in the message; no store has a trace of it; all stores say the same."""
    messages = set()
    for url in (where(tmp_path) for where in URLS.values()):
        async with make_app(url) as app:
            error = await refusal(app, bad)
            for words in bad.says:
                assert words in str(error)
            assert len(str(error)) < 600
            assert (await app.count()).total == 0
            assert await app.topics() == []
            messages.add(str(error))
    assert len(messages) == 1


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.id)
async def test_a_bad_enqueue_among_many_leaves_nothing(bad: Bad) -> None:
    """Bulk enqueues are held to the same table."""
    async with make_app("memory://") as app:
        with pytest.raises(bad.error):
            await app.enqueue_many(bad.target, [bad.payload], **bad.options)
        assert (await app.count()).total == 0


async def test_the_edges_of_what_is_allowed_are_accepted(url: str) -> None:
    """Every limit in the table is the last value refused, not the first."""
    async with make_app(url) as app:
        for target, payload, options in (
            ("x" * 200, None, {}),
            ("t", "x" * 65_534, {}),
            ("t", b"x" * 65_536, {}),
            ("t", nested(64), {}),
            ("t", [2**63 - 1, -(2**63)], {}),
            ("t", {"\\u0000": "literally"}, {}),
            ("t", None, {"run_at": datetime(1970, 1, 1, tzinfo=UTC)}),
            ("t", None, {"run_at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}),
            ("t", None, {"delay": 3_155_760_000, "priority": 2**32}),
            ("t", None, {"priority": -(2**32), "max_attempts": 2**31 - 1, "timeout": 0.001}),
            ("t", None, {"key": "ä" * 255, "tenant": "a" * 200}),
        ):
            job = await app.enqueue(target, payload, **options)
            assert (await app.get(job.id)).payload == ({} if payload is None else payload)
