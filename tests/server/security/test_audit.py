"""Every action that is recorded, with details longer than a line may have."""

from __future__ import annotations

import pytest

from tests.server.security.callers import PublishedKey
from tests.server.security.cases import A_SCHEDULE, PASSWORD, SOMEBODY, STATES, cases
from tests.server.security.oracle import Expected, expected
from tests.server.security.test_matrix import UNRECORDED, Surprises, _clean_up
from tests.server.security.world import NOBODYS_ID, Rules, world
from tidewheel import Every

CALLER = "a superuser's key to enqueue and manage and read and work"


async def test_details_of_any_size_neither_stop_an_action_nor_its_line(
    published: PublishedKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every recorded route answers as it does for short details, and its line has the outcome."""
    surprises = Surprises()
    async with world(Rules.CLOSED, published) as made:
        monkeypatch.setattr("tidewheel.access.audit_log.MAX_DETAIL_BYTES", 1)
        caller = made.caller(CALLER)
        asked = 0
        for case in cases():
            route = case.route
            if not route.is_mutation or route.permission in UNRECORDED or route.name == "log_out":
                continue
            if expected(Rules.CLOSED, case, caller) is not Expected.DONE:
                continue
            job_id, key_id = NOBODYS_ID, "0" * 16
            if case.job is not None:
                job_id = await made.make(case.job, STATES.get(route.name, "pending"))
            if case.key is not None:
                key_id = (await made.app.access.create_key("to be revoked")).info.id
            if case.superuser == SOMEBODY:
                await made.app.access.create_superuser(SOMEBODY, PASSWORD)
            if case.schedule == A_SCHEDULE:
                await made.app.schedules.create(A_SCHEDULE, "mail", Every(60))
            before = {line.id for line in (await made.app.access.audit.lines(limit=200)).lines}
            got = await made.ask(caller, route.method, case.filled(job_id, made, key_id), body=case.body)
            await made.quiet()
            lines = [
                line for line in (await made.app.access.audit.lines(limit=200)).lines if line.id not in before
            ]
            surprises.check(got.status in route.responses, case, got)
            surprises.check(bool(lines) and all(line.outcome == "done" for line in lines), case, lines)
            await _clean_up(made, case, job_id, got)
            asked += 1
        assert asked > 20
    surprises.tell()
