"""The operator's verbs on one job and on everything a filter matches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from tidewheel.admin.filters import check_filter
from tidewheel.admin.worker_info import lost_holders
from tidewheel.client.job_actions import ALLOWED_STATES, REMEDIES, list_states, store_verb
from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.conditions import Compare, Comparison, Field, any_of
from tidewheel.core.filter_pushdown import narrowed
from tidewheel.core.model import FOREVER, JobFilter, Shown, State, Verdict
from tidewheel.core.names import check_wire_topic
from tidewheel.core.security_context import system_only
from tidewheel.core.validation import check_seconds
from tidewheel.errors import InvalidInput
from tidewheel.stores.protocol import MAX_BATCH, Store

MAX_LOST_JOBS: Final = 1000
"""Running jobs that are looked at to find holders that are gone, those claimed longest ago."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Some of the jobs a verb was meant for: how many were found, and on how many it took effect."""

    found: int
    done: int


@dataclass(frozen=True, slots=True)
class Meant:
    """What a verb on everything that matches is about: filters of one state each."""

    suitable: tuple[JobFilter, ...]
    unsuitable: tuple[JobFilter, ...]
    """matching jobs in states that the verb leaves alone"""


@dataclass(frozen=True, slots=True)
class Matched:
    """How many jobs a verb would act on, and how many others match, by state."""

    total: int
    exact: bool
    left_alone: Mapping[str, int]


async def meant(
    store: Store, verb: str, filters: Mapping[str, Any], *, now: int, uuids: bool, lost: bool = False
) -> Meant:
    """Which jobs a verb is about. ``lost``: of these, those whose holder is gone (see ``lost_holders``)."""
    if not lost:
        return narrowed_to(verb, filters, now=now, uuids=uuids)
    if verb != "take-back":
        raise InvalidInput(f"lost is for take-back, and the action is {verb}; leave it out")
    system_only("to take back jobs of lost holders")  # workers are of all tenants
    running = await store.longest_running(MAX_LOST_JOBS, tenant=None)
    holders = lost_holders(running, await store.workers(), await store.now())
    return narrowed_to(verb, filters, now=now, uuids=uuids, holders=holders)


async def count_matched(store: Store, meant: Meant) -> Matched:
    """How many jobs of each kind there are, exact as far as ``store.count`` is."""
    counts = [await store.count(where, beyond=True) for where in meant.suitable]
    left_alone = {str(where.state): (await store.count(where)).total for where in meant.unsuitable}
    return Matched(
        sum(count.total for count in counts),
        all(count.exact for count in counts),
        {state: number for state, number in left_alone.items() if number},
    )


def why_left_alone(verb: str, left_alone: Mapping[str, int]) -> str | None:
    """In words why jobs that match are not acted on; None where there are none."""
    if not left_alone:
        return None
    done, allowed = ALLOWED_STATES[verb]
    found = " and ".join(f"{number:,} {state}" for state, number in left_alone.items())
    remedies = [text for (of, state), text in REMEDIES.items() if of == verb and str(state) in left_alone]
    jobs = "job is" if sum(left_alone.values()) == 1 else "jobs are"
    parts = [f"{found} {jobs} left alone: only {list_states(allowed)} jobs can be {done}", *remedies]
    return "; ".join(parts)


async def act_on_all(store: Store, verb: str, meant: Meant) -> int:
    """The same for everything that matches; how many jobs it took effect on."""
    number = 0
    async for batch in act_in_batches(store, verb, meant.suitable):
        number += batch.done
    return number


async def act_in_batches(store: Store, verb: str, meant: Sequence[JobFilter]) -> AsyncGenerator[Batch, None]:
    """The same for what ``narrowed_to`` made of a filter, batch by batch, so that it can be stopped.

    Pages go from new to old by job number, which no verb changes, so no job is met twice and jobs that come
    in meanwhile are not touched.
    """
    for where in meant:
        cursor: int | None = None
        while True:
            page = await store.list_jobs(where, limit=MAX_BATCH, cursor=cursor)
            if page.items:
                job_ids = [record.id for record in page.items]
                verdicts = await store_verb(store, verb)(job_ids, tenant=where.tenant)
                done = sum(verdict in {Verdict.DONE, Verdict.REQUESTED} for verdict in verdicts)
                yield Batch(len(job_ids), done)
            elif page.cursor is not None:  # a search that found nothing yet is a sign of life, too
                yield Batch(0, 0)
            if page.cursor is None:
                break
            cursor = page.cursor


def narrowed_to(
    verb: str,
    filters: Mapping[str, Any],
    *,
    now: int,
    uuids: bool,
    holders: Collection[str] | None = None,
) -> Meant:
    """What a verb on everything that matches walks through. No filter at all is refused.

    ``holders``: only jobs that these hold.
    """
    where = check_filter(filters, now=now, uuids=uuids)
    if holders is not None:
        where = narrowed(where, any_of(*(Compare(Field.WORKER, Comparison.EQUAL, name) for name in holders)))
    # The tenant in force is nobody's choice, and an empty text says nothing.
    said = [value for name, value in filters.items() if name != "where" or (value or "").strip()]
    if holders is None and all(value is None for value in said):
        raise InvalidInput(
            f"to {verb} without a filter means every job; say which ones, for example with the state failed"
        )
    # Only those are walked that the verb can act on: a million completed jobs are not read to requeue ten
    # failed ones, and none is counted that nothing would happen to.
    allowed = ALLOWED_STATES[verb][1]
    if where.state is None:
        each = {state: replace(where, state=state) for state in State}
        return Meant(
            tuple(each[state] for state in allowed),
            tuple(each[state] for state in State if state not in allowed) if holders is None else (),
        )
    return Meant((where,), ()) if _stored(where.state) in allowed else Meant((), (where,))


def _stored(state: State | Shown) -> State:
    if isinstance(state, State):
        return state
    return State.RUNNING if state is Shown.CLAIMED else State.PENDING


async def pause(store: Store, topic: str, seconds: float | timedelta | None) -> None:
    """Let no worker take jobs of this topic, for some time or without an end."""
    check_wire_topic(topic)
    if seconds is None:
        await store.pause(topic, FOREVER)
    else:
        length = seconds_to_microseconds(check_seconds("seconds", seconds, 0.001))
        await store.pause(topic, await store.now() + length)
