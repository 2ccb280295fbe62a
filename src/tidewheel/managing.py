"""The operator's verbs on one job and on everything a filter matches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Protocol
from uuid import UUID

from msgspec import structs

from tidewheel.clock import seconds_to_microseconds
from tidewheel.conditions import Compare, Comparison, Field, any_of
from tidewheel.errors import InvalidInput, JobNotFound, WrongState
from tidewheel.filters import check_filter
from tidewheel.fleet import lost_holders
from tidewheel.model import FOREVER, JobFilter, JobRecord, Shown, State, Verdict
from tidewheel.names import check_wire_topic, shorten
from tidewheel.narrowing import narrowed
from tidewheel.options import check_seconds
from tidewheel.security import row_filter, system_only
from tidewheel.stores.protocol import MAX_BATCH, Store
from tidewheel.visibility import in_view, relatives

VERBS: Final = ("requeue", "cancel", "take-back", "delete")
MAX_LOST_JOBS: Final = 1000
"""Running jobs that are looked at to find holders that are gone, those claimed longest ago."""

_REMEDIES: Final = {
    ("delete", State.RUNNING): "cancel a running job, or take it back, before you delete it",
    ("requeue", State.RUNNING): "take a running job back to run it again",
}
"""What helps where a verb leaves jobs of a state alone."""

MAX_TRIES: Final = 5
"""How often a verb is tried on a job that changes its state meanwhile."""

_ALLOWED: Final = {
    "requeue": ("requeued", (State.FAILED, State.CANCELLED)),
    "cancel": ("cancelled", (State.PENDING, State.RUNNING)),
    "take-back": ("taken back", (State.RUNNING,)),
    "delete": ("deleted", (State.PENDING, State.COMPLETED, State.FAILED, State.CANCELLED)),
}


def check_job_id(value: Any) -> UUID:
    """A job's id, given as such or as text."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise InvalidInput(f"job id is {shorten(value)}; it must be a UUID, for example job.id")


async def get(store: Store, job_id: UUID, tenant: str | None) -> JobRecord:
    """One job of this tenant (None = any) with its bodies, or ``JobNotFound``, as for one out of view."""
    record = await store.get(job_id, tenant=tenant)
    if record is None or not await in_view(store, record):
        raise not_found(job_id)
    if record.after and row_filter() is not None:
        return structs.replace(record, after=await relatives(store, record.after, tenant))
    return record


async def act(store: Store, verb: str, job_id: UUID, tenant: str | None) -> bool:
    """Do one of ``VERBS`` to one job; False when a running one was only asked to stop.

    Under a row filter the job is looked at first, and left alone unless the verb is possible in the state
    that was seen. The job may change between the look and the verb, but of what a filter can ask only its
    state, attempt and priority do, so the verb does nothing that it could not have done at the look.
    """
    done, states = _ALLOWED[verb]

    def check_state(record: JobRecord) -> None:
        if record.state not in states:
            remedy = _REMEDIES.get((verb, record.state))
            raise WrongState(
                f"job {job_id} is {record.state} and cannot be {done}; "
                f"that is possible for jobs that are {_listed(states)}" + (f"; {remedy}" if remedy else "")
            )

    if row_filter() is not None:
        check_state(await get(store, job_id, tenant))
    for _ in range(MAX_TRIES):
        (verdict,) = await _verb(store, verb)([job_id], tenant=tenant)
        match verdict:
            case Verdict.DONE:
                return True
            case Verdict.REQUESTED:
                return False
            case Verdict.NOT_FOUND:
                raise not_found(job_id)
            case Verdict.KEY_TAKEN:
                raise WrongState(
                    f"job {job_id} cannot be requeued while another job holds its key; "
                    "wait for that job, or cancel or delete it first"
                )
            case Verdict.WRONG_STATE:
                check_state(await get(store, job_id, tenant))
                # Its state changed between the verb and the look: the verb can succeed now.
    raise WrongState(f"job {job_id} changed its state during {MAX_TRIES} tries to {verb} it; try again")


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
    done, allowed = _ALLOWED[verb]
    found = " and ".join(f"{number:,} {state}" for state, number in left_alone.items())
    remedies = [text for (of, state), text in _REMEDIES.items() if of == verb and str(state) in left_alone]
    jobs = "job is" if sum(left_alone.values()) == 1 else "jobs are"
    parts = [f"{found} {jobs} left alone: only {_listed(allowed)} jobs can be {done}", *remedies]
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
                verdicts = await _verb(store, verb)(job_ids, tenant=where.tenant)
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
    allowed = _ALLOWED[verb][1]
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


def not_found(job_id: UUID) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id}; it may have been deleted, or pruned after its retention")


class _Verb(Protocol):
    def __call__(self, job_ids: Sequence[UUID], *, tenant: str | None) -> Awaitable[list[Verdict]]: ...


def _verb(store: Store, verb: str) -> _Verb:
    verbs: dict[str, _Verb] = {
        "requeue": store.requeue,
        "cancel": store.cancel,
        "take-back": store.take_back,
        "delete": store.delete,
    }
    return verbs[verb]


def _listed(states: Sequence[State]) -> str:
    return " or ".join(filter(None, (", ".join(states[:-1]), states[-1])))


async def pause(store: Store, topic: str, seconds: float | timedelta | None) -> None:
    """Let no worker take jobs of this topic, for some time or without an end."""
    check_wire_topic(topic)
    if seconds is None:
        await store.pause(topic, FOREVER)
    else:
        length = seconds_to_microseconds(check_seconds("seconds", seconds, 0.001))
        await store.pause(topic, await store.now() + length)
