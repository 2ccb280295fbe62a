"""Read one job, and do the operator's verbs to it: requeue, cancel, take back, delete.

A job that is out of view is absent: ``get_visible_job`` raises ``JobNotFound`` for it, and no verb reaches
it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Final, Protocol
from uuid import UUID

from msgspec import structs

from tidewheel.client.visibility import is_visible, visible_relatives
from tidewheel.core.model import ActionResult, JobRecord, State
from tidewheel.core.security_context import row_filter
from tidewheel.errors import JobNotFound, WrongState
from tidewheel.stores.protocol import Store

ACTIONS: Final = ("requeue", "cancel", "take-back", "delete")


REMEDIES: Final = {
    ("delete", State.RUNNING): "cancel a running job, or take it back, before you delete it",
    ("requeue", State.RUNNING): "take a running job back to run it again",
}
"""What helps where a verb leaves jobs of a state alone."""


MAX_ACTION_TRIES: Final = 5
"""How often a verb is tried on a job that changes its state meanwhile."""


ALLOWED_STATES: Final = {
    "requeue": ("requeued", (State.FAILED, State.CANCELLED)),
    "cancel": ("cancelled", (State.PENDING, State.RUNNING)),
    "take-back": ("taken back", (State.RUNNING,)),
    "delete": ("deleted", (State.PENDING, State.COMPLETED, State.FAILED, State.CANCELLED)),
}


async def get_visible_job(store: Store, job_id: UUID, tenant: str | None) -> JobRecord:
    """One job of this tenant (None = any) with its bodies, or ``JobNotFound``, as for one out of view."""
    record = await store.get(job_id, tenant=tenant)
    if record is None or not await is_visible(store, record):
        raise job_not_found(job_id)
    if record.after and row_filter() is not None:
        return structs.replace(record, after=await visible_relatives(store, record.after, tenant))
    return record


async def apply_action(store: Store, verb: str, job_id: UUID, tenant: str | None) -> bool:
    """Do one of ``ACTIONS`` to one job; False when a running one was only asked to stop.

    Under a row filter the job is looked at first, and left alone unless the verb is possible in the state
    that was seen. The job may change between the look and the verb, but of what a filter can ask only its
    state, attempt and priority do, so the verb does nothing that it could not have done at the look.
    """
    done, states = ALLOWED_STATES[verb]

    def check_state(record: JobRecord) -> None:
        if record.state not in states:
            remedy = REMEDIES.get((verb, record.state))
            raise WrongState(
                f"job {job_id} is {record.state} and cannot be {done}; "
                f"that is possible for jobs that are {list_states(states)}"
                + (f"; {remedy}" if remedy else "")
            )

    if row_filter() is not None:
        check_state(await get_visible_job(store, job_id, tenant))
    for _ in range(MAX_ACTION_TRIES):
        (verdict,) = await store_verb(store, verb)([job_id], tenant=tenant)
        match verdict:
            case ActionResult.DONE:
                return True
            case ActionResult.REQUESTED:
                return False
            case ActionResult.NOT_FOUND:
                raise job_not_found(job_id)
            case ActionResult.KEY_TAKEN:
                raise WrongState(
                    f"job {job_id} cannot be requeued while another job holds its key; "
                    "wait for that job, or cancel or delete it first"
                )
            case ActionResult.WRONG_STATE:
                check_state(await get_visible_job(store, job_id, tenant))
                # Its state changed between the verb and the look: the verb can succeed now.
    raise WrongState(
        f"job {job_id} changed its state during {MAX_ACTION_TRIES} tries to {verb} it; try again"
    )


def job_not_found(job_id: UUID) -> JobNotFound:
    return JobNotFound(f"there is no job {job_id}; it may have been deleted, or pruned after its retention")


class StoreVerb(Protocol):
    def __call__(self, job_ids: Sequence[UUID], *, tenant: str | None) -> Awaitable[list[ActionResult]]: ...


def store_verb(store: Store, verb: str) -> StoreVerb:
    verbs: dict[str, StoreVerb] = {
        "requeue": store.requeue,
        "cancel": store.cancel,
        "take-back": store.take_back,
        "delete": store.delete,
    }
    return verbs[verb]


def list_states(states: Sequence[State]) -> str:
    return " or ".join(filter(None, (", ".join(states[:-1]), states[-1])))
