"""What has to come of a request, from the route's permission and what is true of the caller alone."""

from __future__ import annotations

from enum import Enum
from typing import Final

from tests.server.security.callers import Caller
from tests.server.security.cases import AFTER, NO_SCHEDULE, NO_SUPERUSER, NOBODY, Case
from tests.server.security.world import ACMES, Rules, Target
from tidewheel.access.caller import Scope
from tidewheel.core.model import ROOT_TENANT
from tidewheel.server.route import Permission


class Expected(Enum):
    """A status, and the code of the problem."""

    DONE = (0, "")
    NOT_AUTHENTICATED = (401, "not_authenticated")
    NOT_PERMITTED = (403, "not_permitted")
    FORGED = (403, "csrf_failed")
    NO_JOB = (404, "job_not_found")
    NO_OPERATION = (404, "bulk_not_found")
    NO_KEY = (404, "key_not_found")
    NO_SUPERUSER = (404, "superuser_not_found")
    NO_SCHEDULE = (404, "schedule_not_found")
    NO_PARENT = (422, "invalid_input")
    KEY_IN_USE = (409, "key_in_use")


_SCOPES: Final = {
    Permission.READ: Scope.READ,
    Permission.MANAGE: Scope.MANAGE,
    Permission.ENQUEUE: Scope.ENQUEUE,
    Permission.WORK: Scope.WORK,
}

_FOR_SUPERUSERS: Final = {Permission.SUPERUSER, Permission.WORK}


OF_ALL_JOBS: Final = {"/api/jobs/questions/durations", "/api/jobs/questions/duplicates"}


def expected(rules: Rules, case: Case, caller: Caller) -> Expected:
    refusal = admitted(rules, case, caller)
    return named(rules, case, caller) if refusal is Expected.DONE else refusal


def meets(rules: Rules, case: Case, caller: Caller) -> tuple[Expected, bool]:
    """What has to come of a request that meets a job, and whether that job stands for the new one."""
    job = case.job
    assert job is not None
    refusal = admitted(rules, case, caller)
    if refusal is not Expected.DONE:
        return refusal, False
    tenant = caller.tenant if caller.known and not caller.superuser else ROOT_TENANT
    if case.route.name == "copy_job":
        copied = ACMES
        if not visible(rules, copied, caller):
            return Expected.NO_JOB, False
        if caller.known and Scope.ENQUEUE not in caller.scopes:
            return Expected.NOT_PERMITTED, False
        tenant = copied.tenant
    if says_too_much(rules, case, caller):
        return Expected.NOT_PERMITTED, False
    there = not job.gone and job.tenant == tenant
    if case.meets == AFTER:
        return (Expected.DONE if there and visible(rules, job, caller) else Expected.NO_PARENT), False
    if there and not visible(rules, job, caller):
        return Expected.KEY_IN_USE, False
    return Expected.DONE, there


def says_too_much(rules: Rules, case: Case, caller: Caller) -> bool:
    """Whether the enqueue rule is against what a request says."""
    if rules is not Rules.SOME or not caller.bounded:
        return False
    if case.says is not None:
        return True
    if case.route.name == "copy_job":
        return True  # which takes over a correlation id, or the id of the copied job for one
    if case.route.name == "enqueue_many" and case.meets is None:
        return True  # BODIES has a report in it
    plain = case.meets in (None, AFTER) and (case.job is None or case.job.topic == "mail")
    return case.route.name in {"enqueue", "enqueue_many"} and not plain


def admitted(rules: Rules, case: Case, caller: Caller) -> Expected:
    """Whether the caller gets as far as the route."""
    route = case.route
    if route.permission is Permission.PUBLIC:
        return Expected.DONE  # whatever is shown
    if route.permission is Permission.SESSION:
        return _session(case, caller)
    if caller.known is False:
        return Expected.NOT_AUTHENTICATED
    if caller.forged and route.is_mutation:
        return Expected.FORGED
    scope = _SCOPES.get(route.permission) or (Scope.MANAGE if route.is_mutation else Scope.READ)
    if caller.superuser:
        return Expected.DONE if scope in caller.scopes else Expected.NOT_PERMITTED
    if caller.known is None:
        open_to_all = rules is Rules.PUBLIC and route.permission not in _FOR_SUPERUSERS
        return Expected.DONE if open_to_all else Expected.NOT_AUTHENTICATED
    if route.permission in _FOR_SUPERUSERS or rules is Rules.CLOSED or scope not in caller.scopes:
        return Expected.NOT_PERMITTED
    if rules is Rules.SOME and _about_all_jobs(case, caller):
        return Expected.NOT_PERMITTED
    return Expected.DONE


def _about_all_jobs(case: Case, caller: Caller) -> bool:
    """Whether it would tell of jobs that the caller's row filter hides, in sums of all jobs."""
    if case.route.streams and case.job is None:
        return caller.user is not None  # counts of topics are of everybody's jobs
    return case.path in OF_ALL_JOBS and (caller.user is not None or caller.topic is not None)


def _session(case: Case, caller: Caller) -> Expected:
    if case.route.name == "log_in":  # whatever else is shown; but not for a page of another site
        foreign = {"origin", "sec-fetch-site"} & set(caller.headers)
        return Expected.FORGED if caller.forged and foreign else Expected.DONE
    if caller.known is False:
        return Expected.NOT_AUTHENTICATED
    match case.route.name:
        case "log_out":
            return Expected.FORGED if caller.forged else Expected.DONE
        case "who_am_i":
            return Expected.DONE if caller.known else Expected.NOT_AUTHENTICATED
    raise AssertionError(f"{case.route.name} has the permission session; say here who may ask for it")


def named(rules: Rules, case: Case, caller: Caller) -> Expected:
    """Whether what the request names is there for this caller."""
    if case.job is not None and not visible(rules, case.job, caller):
        return Expected.NO_JOB
    if case.owner is not None and not (
        caller.name == case.owner or (caller.superuser and case.owner != NOBODY)
    ):
        return Expected.NO_OPERATION
    if case.key == "an id of no key":
        return Expected.NO_KEY
    if case.superuser == NO_SUPERUSER:
        return Expected.NO_SUPERUSER
    if case.schedule == NO_SCHEDULE and case.route.name != "replace_schedule":
        return Expected.NO_SCHEDULE
    if case.route.name == "copy_job" and caller.known and Scope.ENQUEUE not in caller.scopes:
        return Expected.NOT_PERMITTED  # it makes a job, too
    if says_too_much(rules, case, caller):
        return Expected.NOT_PERMITTED
    return Expected.DONE


def visible(rules: Rules, job: Target, caller: Caller) -> bool:
    if job.gone or caller.superuser:
        return not job.gone
    if job.tenant != (caller.tenant if caller.known else ROOT_TENANT):
        return False
    if rules is not Rules.SOME:
        return True
    return caller.topic in (None, job.topic) and caller.user in (None, job.user)
