"""When to try again."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core.retry import DEFAULT_RETRY, MAX_DELAY, Retry
from tidewheel.errors import InvalidInput

ERROR = ValueError("boom")

policies = st.one_of(
    st.builds(
        Retry.exponential,
        st.floats(0, 100),
        factor=st.floats(1, 10),
        maximum=st.floats(0, 1000),
        jitter=st.booleans(),
    ),
    st.builds(Retry.quadratic, st.floats(0, 100), maximum=st.floats(0, 1000), jitter=st.booleans()),
    st.builds(Retry.fixed, st.floats(0, 1000), jitter=st.booleans()),
    st.builds(Retry.sequence, st.lists(st.floats(0, 1000), min_size=1, max_size=5), jitter=st.booleans()),
)


def _delays(policy: Retry, attempts: int = 6) -> list[float]:
    return [policy.delay(attempt, ERROR) for attempt in range(1, attempts + 1)]


def test_exponential_doubles_up_to_its_maximum() -> None:
    """One second, two, four, … thirty: the default."""
    assert _delays(Retry.exponential(jitter=False)) == [1, 2, 4, 8, 16, 30]
    assert Retry.exponential() == DEFAULT_RETRY


def test_quadratic_grows_by_the_square_of_the_attempt() -> None:
    """n² minutes."""
    assert _delays(Retry.quadratic(jitter=False), 4) == [60, 240, 540, 960]
    assert Retry.quadratic(jitter=False).delay(10_000, ERROR) == 86_400


def test_fixed_is_always_the_same() -> None:
    """Every attempt waits as long."""
    assert _delays(Retry.fixed(7, jitter=False), 3) == [7, 7, 7]


def test_the_last_of_a_sequence_repeats() -> None:
    """More attempts than waits is no error."""
    assert _delays(Retry.sequence([1, 5, 2], jitter=False), 5) == [1, 5, 2, 2, 2]


def test_a_function_decides_by_attempt_and_error() -> None:
    """It is given both, and its answer is taken as it is."""
    seen = []

    def decide(attempt: int, error: BaseException) -> float:
        seen.append((attempt, error))
        return attempt * 10

    assert Retry.call(decide).delay(3, ERROR) == 30
    assert seen == [(3, ERROR)]


@given(policies, st.integers(1, 10_000), st.randoms())
def test_every_delay_is_within_its_bounds(policy: Retry, attempt: int, random_: random.Random) -> None:
    """Finite, never negative, never above the maximum, whatever the attempt and the dice."""
    delay = policy.delay(attempt, ERROR, random_)
    assert math.isfinite(delay)
    assert 0 <= delay <= policy.maximum <= MAX_DELAY


@given(policies, st.integers(1, 100), st.integers())
def test_jitter_draws_from_the_upper_half(policy: Retry, attempt: int, seed: int) -> None:
    """Spread enough to part a crowd, never less than half of what was meant."""
    unjittered = Retry(
        policy.kind, policy.initial, policy.factor, policy.maximum, policy.delays, jitter=False
    )
    nominal = unjittered.delay(attempt, ERROR)
    jittered = Retry(policy.kind, policy.initial, policy.factor, policy.maximum, policy.delays, jitter=True)
    assert nominal / 2 <= jittered.delay(attempt, ERROR, random.Random(seed)) <= nominal


def test_jitter_parts_jobs_that_failed_together() -> None:
    """A hundred of them do not come back at one moment."""
    assert len({Retry.fixed(10).delay(1, ERROR) for _ in range(100)}) > 90


@given(policies)
def test_a_policy_survives_being_stored(policy: Retry) -> None:
    """What is dumped with a job is loaded by its worker."""
    assert Retry.load(policy.dump()) == policy


def test_a_function_cannot_be_stored() -> None:
    """It belongs to the task; the error says so."""
    with pytest.raises(InvalidInput, match="give it to the task"):
        Retry.call(lambda *_: 1).dump()


@pytest.mark.parametrize("answer", [-1, math.nan, math.inf, MAX_DELAY + 1])
def test_a_function_with_an_absurd_answer_is_an_error(answer: float) -> None:
    """The value is named, and so is what is possible."""
    with pytest.raises(InvalidInput, match="returned"):
        Retry.call(lambda *_: answer).delay(1, ERROR)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Retry.exponential(-1),
        lambda: Retry.exponential(math.nan),
        lambda: Retry.exponential(maximum=math.inf),
        lambda: Retry.exponential(factor=0.5),
        lambda: Retry.exponential(factor=1001),
        lambda: Retry.quadratic(-1),
        lambda: Retry.quadratic(maximum=MAX_DELAY + 1),
        lambda: Retry.fixed(-0.1),
        lambda: Retry.sequence([]),
        lambda: Retry.sequence([1, -1]),
    ],
)
def test_a_policy_that_makes_no_sense_cannot_be_built(build: object) -> None:
    """Better at start-up than at the first error."""
    assert callable(build)
    with pytest.raises(InvalidInput):
        build()
