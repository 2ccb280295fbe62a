"""Jobs that are made over HTTP: by those who may do nothing else, for others, and together."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.serving import Served
from tests.http.shop import KNOWN, client_side, server_side

HIDING = f"{KNOWN} && priority > 5"
"""A rule that shows its callers nothing of the jobs here."""


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({}, {"scopes": ["enqueue"]}),
        ({"manage_rule": ""}, {"superuser": False}),
        ({"manage_rule": HIDING}, {"superuser": False}),
    ],
    ids=["a key for enqueueing", "a rule for nobody", "a rule that hides jobs"],
)
async def test_who_may_only_enqueue_is_told_of_duplicates(
    settings: dict[str, Any], key: dict[str, Any], served: Served
) -> None:
    """The handle has what the server told of the job that holds the key; the rest of it is not theirs."""
    async with server_side(served, **settings) as server, client_side(served, server, **key) as client:
        once = client.greet.options(key="once")
        first = await once.enqueue(name="Ada")
        await server.app.cancel(first.id)
        again = await once.enqueue(name="Bob")
        assert (again.id, again.duplicate, again.replaced) == (first.id, True, False)
        assert (again.task, again.key, again.state) == ("greet", "once", "cancelled")
        assert (again.created_at, again.run_at) == (first.created_at, first.run_at)
        assert again.payload is None
        wanted: list[Any] = [
            (client.greet, {"name": name}, {"key": name}) for name in ("new", "once", "newer")
        ]
        new, held, newer = await client.app.enqueue_together(wanted)
        assert [job.duplicate for job in (new, held, newer)] == [False, True, False]
        assert (held.id, held.state, new.payload) == (first.id, "cancelled", {"name": "new"})
