"""The OpenAPI document and the server say the same, as far as a machine can find out by asking."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.all_stores.urls import STORES


@pytest.mark.usefixtures("quick_passwords")
# A thousand leases make a long text, of which Hypothesis warns, as of what Schemathesis itself does.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@pytest.mark.parametrize("name", STORES)
def test_the_server_does_what_its_document_says(name: str, tmp_path: Path) -> None:
    """Whatever the document allows and much that it does not: no error of the server's, no status, header or
    body that is not in the document, nothing accepted that it forbids. A longer run is
    ``python -m tests.server.schema_runs``.
    """
    from tests.server.schema_runs import run, running  # a large library, for whoever runs this test

    memory = name == "memory"
    with running(STORES[name](tmp_path)) as (url, key):
        totals = run(url, key, examples=3, thorough=memory, aliases=False)
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.cases > (1000 if memory else 100), totals
    assert {200, 201, 404, 422} <= totals.statuses.keys(), totals
