"""Access on every store: what is kept there is found by another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.app.conftest import URLS
from tidewheel import NotAuthenticated, SecurityContext, Tidewheel, acting_as
from tidewheel.access.access_control import Access


@pytest.mark.parametrize("store", URLS)
async def test_keys_sessions_and_the_log_are_shared_by_all_who_have_the_store(
    store: str, tmp_path: Path
) -> None:
    """One makes and revokes, the other believes and refuses; strangers' names are no errors of a database."""
    url = URLS[store](tmp_path) if store != "memory" else "memory://access-shared"
    async with Tidewheel(url) as app, Tidewheel(url) as other:
        made = await app.access.create_key("billing", tenant="acme")
        assert (await other.access.authenticate(bearer=made.key)).tenant == "acme"
        await asyncio.gather(*other.access._keys._note_tasks)
        await other.access.revoke_key(made.info.id)
        with pytest.raises(NotAuthenticated):
            await Access(app).authenticate(bearer=made.key)
        [key], _ = await app.access.keys()
        assert key.last_used_at is not None
        assert key.revoked_at is not None

        await app.access.create_superuser("ada", "correct horse")
        session = await other.access.log_in("ada", "correct horse")
        assert (await app.access.authenticate(cookie=session.value)).name == "ada"
        for name in ("a\x00", "\ud800", "' OR 1=1 --"):
            with pytest.raises(NotAuthenticated):
                await app.access.log_in(name, "wrong")
        actions = [line.action for line in (await other.access.audit.lines()).lines]
        assert actions == ["login.failed"] * 3 + ["login", "superuser.create", "key.revoke", "key.create"]


@pytest.mark.parametrize("store", URLS)
async def test_a_rule_narrows_what_a_caller_sees(store: str, tmp_path: Path) -> None:
    """On every store: within its tenant, to the jobs the rule shows."""
    async with Tidewheel(URLS[store](tmp_path), manage_rule="topic = @request.auth.name") as app:
        key = (await app.access.create_key("mail", tenant="acme")).key
        for tenant in ("acme", "zeta"):
            with acting_as(SecurityContext(tenant)):
                for topic in ("mail", "sms"):
                    await app.enqueue(topic, {})
        with acting_as(app.access.visible(await app.access.authenticate(bearer=key), changing=False)):
            page = await app.jobs()
        assert [(job.tenant, job.topic) for job in page.items] == [("acme", "mail")]
