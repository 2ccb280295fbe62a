"""Granting due jobs: look at the head of each lane, take the best, put a new fence on each."""

from __future__ import annotations

import heapq
import itertools
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any

from windlass.clock import MICROSECONDS, seconds_to_microseconds
from windlass.ids import from_bytes
from windlass.model import FOREVER, Claim, Claimed, ClaimRequest, Lease
from windlass.stores.protocol import MAX_BATCH
from windlass.stores.queries import Queries
from windlass.stores.sqlite.enqueueing import FORMATS
from windlass.stores.sqlite.rescuing import rescue
from windlass.stores.sqlite.transaction import Code, Transaction

_sql = Queries("windlass.stores.sqlite.sql", "claim.sql")

PROMOTE_LIMIT = 10_000

_Row = tuple[Any, ...]
# Columns of ready_of_lane that are looked at by themselves; the first two are what rows are merged by.
SUSPECT, RESERVES, FORMAT, TOPIC, TASK, TENANT, CREATED_AT = 3, 4, 5, 6, 7, 8, 16


def claim(transaction: Transaction, request: ClaimRequest) -> Claim:
    connection, now = transaction.connection, transaction.now
    moments, some_topic_paused = _tend(transaction)
    paused: dict[str, int] = {}
    if some_topic_paused:
        paused = dict(connection.execute(_sql["paused"], (now,)).fetchall())
    lanes = _lanes(transaction, request)
    held_back = [lane for lane in lanes if lane[0] in paused]
    lease_us = seconds_to_microseconds(request.lease_seconds)
    chosen, more = _choose(transaction, request, [lane for lane in lanes if lane[0] not in paused], lease_us)
    next_due = 0.0 if more else _next_due_in(transaction, moments, held_back, paused)
    if not chosen:
        return Claim((), next_due)
    numbers = json.dumps([row[1] for row in chosen])
    first_fence = transaction.take_numbers("fence", len(chosen))
    connection.execute(
        _sql["grant"],
        {
            "first_fence": first_fence,
            "now": now,
            "lease_us": lease_us,
            "worker": request.worker,
            "alone": len(chosen) == 1,
            "numbers": numbers,
        },
    )
    checkpoints: dict[int, bytes] = {}
    # Only a job that was granted before can have left a checkpoint; most claims skip the look.
    if any(row[RESERVES] for row in chosen):
        checkpoints = dict(connection.execute(_sql["checkpoints"], (numbers,)).fetchall())
    jobs = [_claimed(row, fence, checkpoints.get(row[1])) for fence, row in enumerate(chosen, first_fence)]
    transaction.grants.add(jobs)
    for (topic, task, tenant), n in Counter([row[TOPIC : TENANT + 1] for row in chosen]).items():
        transaction.tally.moved(tenant, topic, task, Code.READY, Code.RUNNING, n)
    return Claim(tuple(jobs), next_due)


def _tend(transaction: Transaction) -> tuple[list[int], bool]:
    """Bring back and promote what is due. When the next such moments are, and whether any topic is paused."""
    execute, now = transaction.connection.execute, transaction.now
    lease_end, expiry, due, some_topic_paused = execute(_sql["what_is_due"]).fetchone()
    if any(moment is not None and moment <= now for moment in (lease_end, expiry, due)):
        rescue(transaction, MAX_BATCH)
        promote(transaction)
        lease_end, _, due, _ = execute(_sql["what_is_due"]).fetchone()
    return [moment for moment in (lease_end, due) if moment is not None], bool(some_topic_paused)


def promote(transaction: Transaction) -> None:
    rows = transaction.connection.execute(_sql["promote"], (transaction.now, PROMOTE_LIMIT)).fetchall()
    for (tenant, topic, task), n in Counter(rows).items():
        transaction.tally.moved(tenant, topic, task, Code.WAITING, Code.READY, n)


def _lanes(transaction: Transaction, request: ClaimRequest) -> list[tuple[str, str]]:
    """The request's lanes as (topic, task) pairs, each once; ``None`` becomes every task of its topic."""
    connection = transaction.connection
    lanes: dict[tuple[str, str], None] = {}
    for lane in request.lanes:
        if lane.task is not None:
            lanes[lane.topic, lane.task] = None
            continue
        if connection.execute(_sql["has_empty_task"], (lane.topic,)).fetchone()[0]:
            lanes[lane.topic, ""] = None
        task = ""
        while row := connection.execute(_sql["next_task_of_topic"], (lane.topic, task)).fetchone():
            task = row[0]
            lanes[lane.topic, task] = None
    return list(lanes)


def _choose(
    transaction: Transaction, request: ClaimRequest, lanes: list[tuple[str, str]], lease_us: int
) -> tuple[list[_Row], bool]:
    """The best jobs across the lanes (highest priority, then lowest number); True when there may be more."""
    connection = transaction.connection
    room = dict(request.topic_limits)
    cursors = [
        connection.execute(
            _sql["ready_of_lane"],
            (lease_us, topic, task, min(request.limit, room.get(topic, request.limit))),
        )
        for topic, task in lanes
        if room.get(topic, 1) > 0
    ]
    chosen: list[_Row] = []
    for row in _best_first(cursors):
        if room:
            topic = row[TOPIC]
            if room.get(topic, 1) <= 0:
                continue
            if topic in room:
                room[topic] -= 1
        if row[SUSPECT] and chosen:  # suspect: it waits for a claim of its own
            break
        chosen.append(row)
        if row[SUSPECT] or len(chosen) >= request.limit:
            break
    else:
        return chosen, False
    for cursor in cursors:
        cursor.close()
    return chosen, True


def _best_first(cursors: list[sqlite3.Cursor]) -> Iterator[_Row]:
    """The rows of all lanes in one order; nearly always only one lane holds any."""
    lanes = [
        itertools.chain((first,), cursor) for cursor in cursors if (first := cursor.fetchone()) is not None
    ]
    return lanes[0] if len(lanes) == 1 else heapq.merge(*lanes)


def _claimed(row: _Row, fence: int, checkpoint: bytes | None) -> Claimed:
    """By position, because this is done for every job: the columns come in the order of ``Claimed``."""
    return Claimed(  # type: ignore[call-arg] # mypy cannot count what is unpacked
        Lease(from_bytes(row[2]), fence),
        *row[TOPIC:CREATED_AT],
        FORMATS[row[FORMAT]],
        checkpoint,
        row[1],
        *row[CREATED_AT:],
        bool(row[SUSPECT]),
    )


def _next_due_in(
    transaction: Transaction, moments: list[int], held_back: list[tuple[str, str]], paused: dict[str, int]
) -> float | None:
    """Seconds until a claim may find more: a delayed job, a lease that ends, a pause that ends."""
    execute = transaction.connection.execute
    pause_ends = [
        paused[lane[0]]
        for lane in held_back
        if paused[lane[0]] < FOREVER and execute(_sql["lane_has_ready"], lane).fetchone()[0]
    ]
    moment = min([*moments, *pause_ends], default=None)
    return None if moment is None else max(0.0, (moment - transaction.now) / MICROSECONDS)
