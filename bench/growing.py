"""A store as it looks after a while: many jobs of all states, in a hundred topics."""

from __future__ import annotations

from typing import Final

from tidewheel import Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Completed, Failed, JobError, Lane, Lease, NewJob, Settlement

BULK: Final = 10_000
TOPICS: Final = 100
TASKS: Final = ("job", "send_receipt", "resize_image", "sync_account", "build_report")
"""A topic has one of them, as nearly always."""
ERRORS: Final = (
    "ValueError: order {order} of customer {customer} is not there",
    "TimeoutError: no answer from payments.internal within 30 s (request {order})",
    "ConnectionResetError: [Errno 104] connection reset by peer",
    "KeyError: 'address_{customer}'",
    "tidewheel.Fail: card declined",
)
RUNNING: Final = 500
RUNNING_SECONDS: Final = 6 * 3600
"""Nobody runs what is left running here; it must not count as lost while something is measured."""
DAY: Final = 86_400


async def grow(url: str, jobs: int, topics: int = TOPICS) -> list[str]:
    """So many jobs of all states in so many topics; ids of some of them."""
    ids: list[str] = []
    lanes = tuple(Lane(_topic(number), _task(number)) for number in range(topics))
    async with Tidewheel(url) as app:
        store = app.store
        for start in range(0, jobs, BULK):
            new = [_new(number % topics, number) for number in range(start, start + BULK)]
            await store.enqueue(new)
            ids += [str(job.id) for job in new[:: max(1, jobs // 20_000)]]
            share = (start // BULK) % 10
            if share >= 4:  # 40 % wait, some for later; 48 % are completed, 12 % failed in many ways
                for _ in range(BULK // 1000):
                    claim = await store.claim(ClaimRequest("bench", lanes, 1000, 60))
                    settled = [_settlement(job.lease, number) for number, job in enumerate(claim.jobs)]
                    await store.settle(settled)
        await store.claim(ClaimRequest("bench", lanes, RUNNING, RUNNING_SECONDS))
        await store.prune()  # as workers do every minute: counters are added up with it
    return ids


def _topic(number: int) -> str:
    return f"topic-{number}"


def _task(topic: int) -> str:
    return TASKS[topic % len(TASKS)]


def _settlement(lease: Lease, number: int) -> Settlement:
    if number % 5:
        return Settlement(lease, Completed(b"1"), 0.01)
    text = ERRORS[number // 5 % len(ERRORS)].format(order=number, customer=number % 7)
    return Settlement(lease, Failed(JobError("handler_error", text, False)), 0.01)


def _new(topic: int, number: int) -> NewJob:
    payload = b'{"user_id": %d, "x": 1}' % (number % 1000)
    delay = DAY if number % 25 == 0 else 0.0
    return NewJob(
        id=new_id(), topic=_topic(topic), task=_task(topic), payload=payload, delay=delay, retention=1e6
    )
