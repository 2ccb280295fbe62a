"""The operator's verbs on one job and on everything a filter matches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from tidewheel.admin.filters import check_filter
from tidewheel.admin.worker_info import find_lost_holders
from tidewheel.client.job_actions import ALLOWED_STATES, REMEDIES, list_states, store_verb
from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.conditions import Compare, Comparison, Field, any_of
from tidewheel.core.filter_pushdown import push_down
from tidewheel.core.model import FOREVER, ActionResult, DerivedState, JobFilter, State
from tidewheel.core.names import check_any_topic
from tidewheel.core.security_context import require_system_context
from tidewheel.core.validation import check_seconds
from tidewheel.errors import InvalidInput
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store

MAX_CHECKED_HOLDERS: Final = 1000
"""Running jobs that are looked at to find holders that are gone, those claimed longest ago."""


@dataclass(frozen=True, slots=True)
class ActionBatch:
    """Some of the jobs a verb was meant for: how many were found, and on how many it took effect."""

    found: int
    changed: int


@dataclass(frozen=True, slots=True)
class ActionSelection:
    """What a verb on everything that matches is about: filters of one state each."""

    suitable: tuple[JobFilter, ...]
    unsuitable: tuple[JobFilter, ...]
    """matching jobs in states that the verb leaves alone"""


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """How many jobs a verb would act on, and how many others match, by state."""

    total: int
    exact: bool
    left_alone: Mapping[str, int]


async def select_jobs(
    store: Store, verb: str, filters: Mapping[str, Any], *, now: int, uuids: bool, lost: bool = False
) -> ActionSelection:
    """Which jobs a verb is about. ``lost``: of these, those whose holder is gone (see
    ``find_lost_holders``).
    """
    if not lost:
        return select_by_filter(verb, filters, now=now, uuids=uuids)
    if verb != "take-back":
        raise InvalidInput(f"lost is for take-back, and the action is {verb}; leave it out")
    require_system_context("to take back jobs of lost holders")  # workers are of all tenants
    running = await store.longest_running(MAX_CHECKED_HOLDERS, tenant=None)
    holders = find_lost_holders(running, await store.workers(), await store.now())
    return select_by_filter(verb, filters, now=now, uuids=uuids, holders=holders)


async def count_selection(store: Store, meant: ActionSelection) -> MatchCounts:
    """How many jobs of each kind there are, exact as far as ``store.count`` is."""
    counts = [await store.count(where, exact=True) for where in meant.suitable]
    left_alone = {str(where.state): (await store.count(where)).total for where in meant.unsuitable}
    return MatchCounts(
        sum(count.total for count in counts),
        all(count.exact for count in counts),
        {state: number for state, number in left_alone.items() if number},
    )


def explain_skipped(verb: str, left_alone: Mapping[str, int]) -> str | None:
    """In words why jobs that match are not acted on; None where there are none."""
    if not left_alone:
        return None
    done, allowed = ALLOWED_STATES[verb]
    found = " and ".join(f"{number:,} {state}" for state, number in left_alone.items())
    remedies = [text for (of, state), text in REMEDIES.items() if of == verb and str(state) in left_alone]
    jobs = "job is" if sum(left_alone.values()) == 1 else "jobs are"
    parts = [f"{found} {jobs} left alone: only {list_states(allowed)} jobs can be {done}", *remedies]
    return "; ".join(parts)


async def apply_to_all(store: Store, verb: str, meant: ActionSelection) -> int:
    """The same for everything that matches; how many jobs it took effect on."""
    number = 0
    async for batch in apply_in_batches(store, verb, meant.suitable):
        number += batch.changed
    return number


async def apply_in_batches(
    store: Store, verb: str, meant: Sequence[JobFilter]
) -> AsyncGenerator[ActionBatch, None]:
    """The same for what ``select_by_filter`` made of a filter, batch by batch, so that it can be stopped.

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
                done = sum(verdict in {ActionResult.DONE, ActionResult.REQUESTED} for verdict in verdicts)
                yield ActionBatch(len(job_ids), done)
            elif page.cursor is not None:  # a search that found nothing yet is a sign of life, too
                yield ActionBatch(0, 0)
            if page.cursor is None:
                break
            cursor = page.cursor


def select_by_filter(
    verb: str,
    filters: Mapping[str, Any],
    *,
    now: int,
    uuids: bool,
    holders: Collection[str] | None = None,
) -> ActionSelection:
    """What a verb on everything that matches walks through. No filter at all is refused.

    ``holders``: only jobs that these hold.
    """
    where = check_filter(filters, now=now, uuids=uuids)
    if holders is not None:
        where = push_down(where, any_of(*(Compare(Field.WORKER, Comparison.EQUAL, name) for name in holders)))
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
        return ActionSelection(
            tuple(each[state] for state in allowed),
            tuple(each[state] for state in State if state not in allowed) if holders is None else (),
        )
    return (
        ActionSelection((where,), ())
        if _stored_state(where.state) in allowed
        else ActionSelection((), (where,))
    )


def _stored_state(state: State | DerivedState) -> State:
    if isinstance(state, State):
        return state
    return State.RUNNING if state is DerivedState.CLAIMED else State.PENDING


async def pause_topic(store: Store, topic: str, seconds: float | timedelta | None) -> None:
    """Let no worker take jobs of this topic, for some time or without an end."""
    check_any_topic(topic)
    if seconds is None:
        await store.pause(topic, FOREVER)
    else:
        length = seconds_to_microseconds(check_seconds("seconds", seconds, 0.001))
        await store.pause(topic, await store.now() + length)
