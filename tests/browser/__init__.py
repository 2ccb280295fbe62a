"""The web UI in a real Chromium, on a real server.

A test asks for a page and uses it as Playwright's own documents have it::

    async def test_a_topic_is_paused(page: Page, site: Site) -> None:
        await site.shop.remind.enqueue(who="ada", about="tea")
        await page.goto("topics")
        await page.get_by_role("button", name="Pause reminders").click()
        await expect(page.get_by_text("paused")).to_be_visible()

- ``site`` is a server with the demo's tasks (``site.shop``), on SQLite and on PostgreSQL, shared by the tests
  of a module; ``async with site.working():`` runs a worker beside it. ``@on_sqlite`` is for tests to which
  the store makes no difference.
- ``page`` is logged in, ``visitor`` is not, ``open_page(...)`` opens others: dark, on a phone.
- Whatever goes wrong in any of them fails the test: errors and warnings in the console, exceptions,
  violations of the content security policy, answers of 400 and above. What a test means to provoke it
  announces with ``troubles.expect("401")``, and then that has to happen.
- ``await accessible(page)`` is axe without violations.

All tests here run on one event loop, the one that Playwright's browser and the servers live on.
Chromium is looked for on the system and installed otherwise; see ``chromium.py``.
"""

import pytest

on_sqlite = pytest.mark.parametrize("site", ["sqlite"], indirect=True, scope="module")
"""For tests that no store makes a difference to."""
