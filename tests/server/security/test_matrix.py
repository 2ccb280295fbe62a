"""Every route × every kind of caller × every kind of id: what comes of it, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from tests.server.security.callers import Caller, PublishedKey
from tests.server.security.cases import A_SCHEDULE, PASSWORD, SOMEBODY, STATES, Case, cases, meetings, sayings
from tests.server.security.client import Got
from tests.server.security.oracle import Expected, expected, meets
from tests.server.security.world import ACMES, NOBODYS_ID, Rules, World, counting, dump, world
from tidewheel import Every
from tidewheel.server.route import Permission

UNRECORDED = {Permission.ENQUEUE, Permission.PUBLIC, Permission.READ, Permission.WORK}
"""What is no operator's action has no line in the audit log."""


@dataclass
class Surprises:
    """Whatever was not as expected. All are shown: one bug often has many faces."""

    found: list[str] = field(default_factory=list)

    def check(self, fine: bool, *what: object) -> None:
        if not fine:
            self.found.append(": ".join(map(str, what)))

    def tell(self) -> None:
        assert not self.found, f"{len(self.found)} surprises:\n" + "\n".join(self.found[:60])


@pytest.mark.parametrize("rules", Rules, ids=lambda rules: rules.name.lower())
async def test_every_route_for_every_caller(rules: Rules, published: PublishedKey) -> None:
    """The route's permission decides. What is refused, and every GET, changes nothing at all; what is done
    is in the audit log; what may not be seen looks like what is not there, to the byte and to the verb.
    """
    surprises = Surprises()
    async with world(rules, published) as made:
        before = dump(made.app.store)
        for case in (*cases(), *sayings()):
            for caller in made.callers:
                before = await _try(made, case, caller, before, surprises)
    surprises.tell()


@pytest.mark.parametrize("rules", Rules, ids=lambda rules: rules.name.lower())
async def test_every_way_to_meet_a_job_for_every_caller(rules: Rules, published: PublishedKey) -> None:
    """Keys that are kept or replaced, ``after`` and copies lead to the jobs that the caller may see and to no
    others: what is refused changes nothing, and names neither the id nor the state of a hidden job.
    """
    surprises = Surprises()
    async with world(rules, published) as made:
        made.forget_traces()
        before = dump(made.app.store)
        for case in meetings():
            for caller in made.callers:
                before = await _meet(made, case, caller, before, surprises)
    surprises.tell()


async def _meet(made: World, case: Case, caller: Caller, before: object, surprises: Surprises) -> object:
    """One request; what the store holds afterwards."""
    assert case.job is not None
    what = (made.rules.name, case, caller.name)
    wanted, stands = meets(made.rules, case, caller)
    standing = made.standing[case.job]
    copying = case.route.name == "copy_job"
    done = wanted is Expected.DONE
    key, copied = case.job.key, made.standing[ACMES]
    if stands:  # a job of its own, which may be replaced
        key = "met"
        standing = await made.make(case.job, key=key)
    body, headers = case.meeting(standing, key)
    target = case.filled(copied, made, "")
    got = await made.ask(caller, case.route.method, target, body=body, headers=headers)
    status, code = wanted.value
    if not done:
        surprises.check((got.status, got.code) == (status, code), *what, f"should be {status} {code}", got)
        if wanted is Expected.KEY_IN_USE:
            told = str(standing).encode() in got.body or b"pending" in got.body
            surprises.check(not told, *what, "tells of a hidden job", got)
        if copying:  # the attempt is in the audit log
            made.forget_traces()
        after = dump(made.app.store)
        surprises.check(after == before, *what, "left something behind")
        return after
    surprises.check(got.status in case.route.responses, *what, "should be done, and is", got)
    if got.status in case.route.responses:
        items = got.json().get("items", [got.json()])
        surprises.check((items[-1]["id"] == str(standing)) == stands, *what, "met another job", got)
        for item in items:
            if item["id"] != str(standing) or stands:
                await made.forget(UUID(item["id"]))
    if stands:
        await made.forget(standing)
    if copying:
        made.forget_traces()
    return dump(made.app.store)


async def _try(made: World, case: Case, caller: Caller, before: object, surprises: Surprises) -> object:
    """One request; what the store holds afterwards."""
    what = (made.rules.name, case, caller.name)
    wanted = expected(made.rules, case, caller)
    done = wanted is Expected.DONE
    changing = done and case.route.is_mutation
    job_id, key_id = NOBODYS_ID, "0" * 16
    if case.job is not None:
        fresh = changing and not case.job.gone
        job_id = (
            await made.make(case.job, STATES.get(case.route.name, "pending"))
            if fresh
            else made.standing[case.job]
        )
    if case.key == "a key":
        key_id = (await made.app.access.create_key("to be revoked")).info.id if changing else "f" * 16
    if case.superuser == SOMEBODY and changing:
        await made.app.access.create_superuser(SOMEBODY, PASSWORD)
    if case.schedule == A_SCHEDULE and done:
        await made.app.schedules.create(A_SCHEDULE, "mail", Every(60))
        before = dump(made.app.store)
    lines, sessions = made.audit_lines(), made.sessions()
    got = await made.ask(
        caller, case.route.method, case.filled(job_id, made, key_id), body=case.body, headers=case.headers
    )
    status, code = wanted.value
    if done:
        surprises.check(got.status in case.route.responses, *what, "should be done, and is", got)
    else:
        surprises.check((got.status, got.code) == (status, code), *what, f"should be {status} {code}", got)
    if not changing:
        after = dump(made.app.store)
        surprises.check(after == before, *what, "left something behind")
        if case.schedule is not None:
            made.forget_traces()
            return dump(made.app.store)
        return after
    await made.quiet()
    if case.route.permission not in UNRECORDED and not (case.route.name == "log_out" and not caller.session):
        surprises.check(made.audit_lines() > lines, *what, "is not in the audit log")
    made.put_back(sessions)  # others of the table show the one that was ended
    await _clean_up(made, case, job_id, got)
    return dump(made.app.store)


async def _clean_up(made: World, case: Case, job_id: UUID, got: Got) -> None:
    """The world as it was: cases must not depend on each other."""
    if case.job is not None:
        await made.forget(job_id)
        if got.status == 201:  # a copy of it
            await made.forget(UUID(got.json()["id"]))
    elif case.route.permission is Permission.ENQUEUE and got.status == 201:
        told = got.json()
        for item in told.get("items", [told]):
            await made.forget(UUID(item["id"]))
    elif case.route.name == "run_schedule" and got.status == 201:
        await made.forget(UUID(got.json()["id"]))
    made.forget_traces()


@pytest.mark.parametrize("rules", [Rules.SOME, Rules.PUBLIC], ids=lambda rules: rules.name.lower())
async def test_what_may_not_be_seen_is_as_what_is_not_there(rules: Rules, published: PublishedKey) -> None:
    """Another tenant's job, one outside of the row filter, a deleted one and an id that never was: the same
    answer byte for byte, headers included, after the same calls to the store.
    """
    surprises = Surprises()
    async with world(rules, published) as made:
        for caller in made.callers:
            answers: dict[tuple[str, str, str], tuple[Case, object]] = {}
            for case in cases():
                if case.job is None or expected(rules, case, caller) is not Expected.NO_JOB:
                    continue
                job_id = made.standing[case.job]
                with counting(made.app.store) as called:
                    got = await made.ask(
                        caller, case.route.method, case.filled(job_id, made, ""), body=case.body
                    )
                told = (
                    got.status,
                    [(name, value.replace(str(job_id).encode(), b"<id>")) for name, value in got.headers],
                    got.body.replace(str(job_id).encode(), b"<id>"),
                    called,
                )
                first = answers.setdefault((case.route.method, case.path, case.query), (case, told))
                surprises.check(told == first[1], case, caller.name, f"is unlike {first[0]}", told, first[1])
            assert answers or expected(rules, _one_with_a_job(), caller) is not Expected.NO_JOB
    surprises.tell()


def _one_with_a_job() -> Case:
    return next(case for case in cases() if case.job is not None and case.job.gone)
