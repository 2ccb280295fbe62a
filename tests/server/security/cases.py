"""What is asked: every route under every path it has, for every job, operation, key or topic it can name.

A route with a parameter or a body this file does not know cannot be called, which is a failure of the tests:
add how to call it here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tests.server.security.callers import SUPERUSER
from tests.server.security.world import ACMES, NOBODYS_ID, OWNERS, TARGETS, Target, World
from tidewheel.server.route import Route
from tidewheel.server.routes import ROUTES_WITH_UI
from tidewheel.server.routes.bulk_routes import BulkBody
from tidewheel.server.routes.copy_routes import CopyBody
from tidewheel.server.routes.enqueue_routes import EnqueueBody, EnqueueManyBody
from tidewheel.server.routes.job_routes import StatesBody
from tidewheel.server.routes.key_routes import KeyBody
from tidewheel.server.routes.lease_routes import ExtendBody, LeaseBody, LeasesBody, ReportsBody, StartBody
from tidewheel.server.routes.limit_routes import LimitsBody
from tidewheel.server.routes.reserve_routes import ReserveBody
from tidewheel.server.routes.schedule_routes import NewScheduleBody, ScheduleBody
from tidewheel.server.routes.session_routes import LoginBody
from tidewheel.server.routes.settle_routes import SettleBody
from tidewheel.server.routes.superuser_routes import PasswordBody, SuperuserBody
from tidewheel.server.routes.topic_routes import KickBody, PauseBody
from tidewheel.server.routes.worker_routes import LeaveBody, WorkerBody

NAME, PASSWORD = SUPERUSER.split(":")
LEASE: Final = {"id": str(NOBODYS_ID), "fence": 1}
BODIES: Final[Mapping[type[msgspec.Struct], Any]] = {
    EnqueueBody: {"task": "mail", "payload": {"to": "ann"}},
    EnqueueManyBody: {"jobs": [{"topic": "mail"}, {"topic": "reports"}]},
    CopyBody: {"payload": {"to": "ben"}, "priority": 5},
    BulkBody: {"action": "cancel", "filter": {"key": "of no job"}},
    PauseBody: {"seconds": 60},
    LimitsBody: {"concurrency": 3, "key_rate": {"count": 5, "per": 60}},
    KickBody: {"count": 1},
    ScheduleBody: {"cron": "0 3 * * *", "topic": "mail"},
    NewScheduleBody: {"name": "another", "every": 60, "task": "mail", "payload": {"to": "ann"}},
    KeyBody: {"name": "another", "tenant": "acme", "scopes": ["read"]},
    LoginBody: {"name": NAME, "password": PASSWORD},
    SuperuserBody: {"name": "another", "password": PASSWORD},
    PasswordBody: {"password": "another one of theirs"},
    StatesBody: {"ids": [str(NOBODYS_ID)]},
    ReserveBody: {"topics": ["nothing-here"]},
    SettleBody: {"settlements": [{**LEASE, "outcome": "complete", "result": 1}]},
    LeaseBody: LEASE,
    LeasesBody: {"leases": [LEASE]},
    StartBody: {"leases": [LEASE], "run_seconds": [1.5]},
    ExtendBody: {"leases": [LEASE], "lease": 60},
    ReportsBody: {"reports": [{**LEASE, "progress": {"percent": 50}}]},
    WorkerBody: {"name": "elsewhere", "started_at": "2026-01-31T12:00:00Z"},
    LeaveBody: {"name": "elsewhere", "started_at": "2026-01-31T12:00:00Z"},
}
"""A good body of each type."""

STATES: Final = {"requeue_job": "cancelled", "take_back_job": "running"}
"""The state a job has to be in for a route to take effect; pending for all others."""

NAMES: Final = {"topic": "mail", "name": "stuck", "page": "jobs"}
"""What the other parameters of paths are filled with."""

NOBODY: Final = "an id of no operation"
SOMEBODY: Final = "somebody"
NO_SUPERUSER: Final = "nobody"
A_SCHEDULE: Final = "nightly"
NO_SCHEDULE: Final = "never"
"""Names in paths."""
PARAMETER: Final = re.compile(r"\{(\w+)(?::\w+)?\}")


MEETINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "keeps the holder of": {"key": "{key}"},
    "replaces the holder of": {"key": "{key}", "on_duplicate": "replace"},
    "replaces by another name the holder of": {"key": "{key}", "onDuplicate": "replace"},
    "keeps by header the holder of": {},
    "runs after": {"after": ["{id}"]},
}
"""How an enqueue meets a job that is there. ``{key}`` and ``{id}`` are those of the target."""
BY_HEADER: Final = "keeps by header the holder of"
AFTER: Final = "runs after"

LATER: Final = "2031-05-01T12:00:00Z"
SAYINGS: Final[Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]]] = {
    "run_at": ({"run_at": LATER}, {}),
    "runAt": ({"runAt": LATER}, {}),
    "delay": ({"delay": 60}, {}),
    "max_attempts": ({"max_attempts": 4}, {}),
    "maxAttempts": ({"maxAttempts": 4}, {}),
    "max_retries": ({"max_retries": 3}, {}),
    "maxRetries": ({"maxRetries": 3}, {}),
    "no limit of attempts": ({"max_attempts": None}, {}),
    "key": ({"key": "said"}, {}),
    "Idempotency-Key": ({}, {"idempotency-key": "said"}),
    "correlation_id": ({"correlation_id": "said"}, {}),
    "correlationId": ({"correlationId": "said"}, {}),
    "X-Correlation-ID": ({}, {"x-correlation-id": "said"}),
    "on_duplicate": ({"on_duplicate": "keep"}, {}),
    "onDuplicate": ({"onDuplicate": "keep"}, {}),
    "after_any": ({"after_any": True}, {}),
    "afterAny": ({"afterAny": True}, {}),
    "another task": ({"task": "reports"}, {}),
    "another task by its topic": ({"task": None, "topic": "reports"}, {}),
}
"""Each spelling of what the enqueue rule forbids to some: members of the body, and headers."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request: a route under one of its paths, and what it names."""

    route: Route
    path: str
    job: Target | None = None
    owner: str | None = None  # of the bulk operation it names
    key: str | None = None
    superuser: str | None = None
    schedule: str | None = None
    query: str = ""
    meets: str | None = None  # how an enqueue meets the job, see MEETINGS; a copy meets the holder of a key
    says: str | None = None  # one of SAYINGS

    def __str__(self) -> str:
        if self.meets is not None and self.job is not None:
            return f"{self.route.method} {self.path} {self.meets} {self.job.name}"
        if self.says is not None:
            return f"{self.route.method} {self.path} says {self.says}"
        named = self.job.name if self.job else self.owner or self.key or self.superuser or self.schedule or ""
        return f"{self.route.method} {self.path} {self.query} {named}".strip()

    def filled(self, job_id: object, world: World, key_id: str) -> str:
        """Its address."""
        operation = world.operations.get(self.owner or "", str(NOBODYS_ID))
        values = {"id": job_id, "operation": operation, "key": key_id, **NAMES}
        values |= {"superuser": self.superuser or "", "schedule": self.schedule or ""}
        path = PARAMETER.sub(lambda found: str(values[found[1]]), self.path)
        return path + self.query.format(id=job_id)

    @property
    def body(self) -> Any:
        if self.says is not None:
            said = {**BODIES[EnqueueBody], **SAYINGS[self.says][0]}
            return {name: value for name, value in said.items() if name != "task" or value is not None}
        return None if self.route.body is None else BODIES[self.route.body]

    @property
    def headers(self) -> Mapping[str, str]:
        return {} if self.says is None else SAYINGS[self.says][1]

    def meeting(self, job_id: object, key: str) -> tuple[Any, Mapping[str, str]]:
        """The body and headers of a request that meets a job with this id and key."""
        assert self.job is not None
        assert self.meets is not None
        if self.route.body is CopyBody:
            return {"key": key}, {}
        filled = {
            name: [str(job_id)] if value == ["{id}"] else key if value == "{key}" else value
            for name, value in MEETINGS[self.meets].items()
        }
        body = {"task": self.job.topic, "payload": {"to": "met"}, **filled}
        headers = {"idempotency-key": key} if self.meets == BY_HEADER else {}
        if self.route.body is EnqueueManyBody:
            return {"jobs": [BODIES[EnqueueBody], body]}, {}
        return body, headers


def cases(routes: tuple[Route, ...] = ROUTES_WITH_UI) -> Iterator[Case]:
    """All of them."""
    for route in routes:
        if route.body is not None and route.body not in BODIES:
            raise AssertionError(f"{route.name} takes a {route.body.__name__}; add a good one to BODIES")
        for path in route.paths:
            match set(PARAMETER.findall(path)):
                case set(names) if not names <= {"id", "operation", "key", "superuser", "schedule", *NAMES}:
                    raise AssertionError(f"{path} has parameters nobody knows: {names}; add them to Case")
                case set(names) if "id" in names:
                    yield from (Case(route, path, job=target) for target in TARGETS)
                case set(names) if "operation" in names:
                    yield from (Case(route, path, owner=owner) for owner in (*OWNERS, NOBODY))
                case set(names) if "key" in names:
                    yield from (Case(route, path, key=key) for key in ("a key", "an id of no key"))
                case set(names) if "superuser" in names:
                    yield from (Case(route, path, superuser=name) for name in (SOMEBODY, NO_SUPERUSER))
                case set(names) if "schedule" in names:
                    yield from (Case(route, path, schedule=name) for name in (A_SCHEDULE, NO_SCHEDULE))
                case _:
                    yield Case(route, path)
            if "job" in route.query.__struct_fields__:  # ids in the query
                yield from (Case(route, path, job=target, query="?job={id}") for target in TARGETS)


def meetings(routes: tuple[Route, ...] = ROUTES_WITH_UI) -> Iterator[Case]:
    """Every way to meet a job by making another one: keys that are kept or replaced, ``after``, copies."""
    for route in routes:
        match route.name:
            case "enqueue":
                yield from (
                    Case(route, path, job=target, meets=way)
                    for path in route.paths
                    for way in MEETINGS
                    for target in TARGETS
                )
            case "enqueue_many":
                yield from (
                    Case(route, path, job=target, meets=way)
                    for path in route.paths
                    for way in MEETINGS
                    if way != BY_HEADER
                    for target in TARGETS
                )
            case "copy_job":
                yield from (
                    Case(route, path, job=target, meets="copies another to the key of")
                    for path in route.paths
                    for target in TARGETS
                    if target.topic == ACMES.topic
                )


def sayings(routes: tuple[Route, ...] = ROUTES_WITH_UI) -> Iterator[Case]:
    """Every spelling of what an enqueue rule may forbid."""
    for route in routes:
        if route.name == "enqueue":
            yield from (Case(route, path, says=what) for path in route.paths for what in SAYINGS)
