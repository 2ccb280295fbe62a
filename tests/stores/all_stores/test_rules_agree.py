"""An access rule lets somebody see the same jobs, whoever evaluates it."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings

from tests.access.rule_strategies import requests, rule_texts
from tests.stores.all_stores.test_conditions_agree import JOBS, Filled, filled
from tidewheel.access.rules import RuleRequest, job_fields, read_rule, row_filter, rule_allows
from tidewheel.core.model import JobFilter

__all__ = ["filled"]  # a fixture


@given(text=rule_texts, request=requests)
@settings(max_examples=max(60, settings().max_examples // 2))
def test_a_rule_selects_the_same_rows_in_python_and_in_sql(
    filled: tuple[Filled, asyncio.Runner], text: str, request: RuleRequest
) -> None:
    """What ``rule_allows`` says of each job is what the store finds with the row filter."""
    jobs, runner = filled
    now = jobs.clock.now()
    rule = read_rule("manage_rule", text)
    where = JobFilter(condition=row_filter(rule, request))
    page = runner.run(jobs.store.list_jobs(where, limit=JOBS))
    shown = [job.id for job in jobs.records if rule_allows(rule, request, job_fields(job, now))]
    assert [item.id for item in page.items] == shown
