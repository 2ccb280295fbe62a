"""A queue in which somebody has put markup into everything a caller controls.

Each text names the field it was put into, so that a page can be asked for it. Topics, tenants, superusers
and codes of errors are shorter or may not hold all of it; they have the wildest that is allowed.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any
from unittest.mock import patch

from msgspec import Meta

from tests.browser.site import Site
from tidewheel import Context, Every, Job
from tidewheel.errors import NotAuthenticated, TaskError

MARKUP = (
    '"\'><img src=x onerror=ran()><svg onload=ran()><script>ran()</script><a href="javascript:ran()">'
    "{{7*7}} ${7*7} \u202egnp\u202c\u200b&lt;b&gt;"
)
TOPIC = "javascript-ran"
WIRE_TOPIC = "$(ran);../x+y"
"""As the beanstalkd wire lets them be called."""
TENANT = "javascript:ran@x"
# Without a slash, which a superuser may not have.
SUPERUSER = "superuser \"'><img src=x onerror=ran()><svg onload=ran()><script>ran() {{7*7}}"
CODE = 'code "><img src=x onerror=ran()><svg onload=ran()><script>ran()</script>'
NAMES = (TOPIC, WIRE_TOPIC, TENANT, SUPERUSER, CODE)


def text(field: str) -> str:
    """What is put there."""
    return f"{field} {MARKUP}"


Choice = enum.Enum("Choice", {"planted": text("choice"), "other": "other"})
DEFAULT = text("default")
Described = Annotated[str, Meta(title=text("title"), description=text("field"), examples=[text("example")])]


@dataclass(frozen=True)
class Planted:
    """The jobs to look at."""

    running: Job[Any]
    completed: Job[Any]
    failed: Job[Any]
    broken: Job[Any]


@asynccontextmanager
async def planted(site: Site) -> AsyncIterator[Planted]:
    """With a worker at work, as long as it is looked at."""
    app, enough, at_work = site.app, asyncio.Event(), asyncio.Event()

    async def handler(
        ctx: Context,
        how: str,
        free: dict[str, Any],
        described: Described = DEFAULT,
        choice: Choice = Choice.planted,
    ) -> dict[str, str]:
        await ctx.step(text("step"), lambda: {text("output name"): text("output")})
        await ctx.checkpoint({text("checkpoint name"): text("checkpoint")})
        await ctx.progress(50, text("message"), text("stage"))
        if how == "fail":
            details = {text("detail name"): text("detail")}
            raise TaskError(text("error"), code=CODE, details=details, retryable=False)
        if how == "break":
            raise LookupError(text("exception"))
        if how == "run":
            at_work.set()
            await enough.wait()
        return {text("result name"): text("result")}

    handler.__doc__ = text("description")
    task = app.task(name=text("task"), topic=TOPIC, aliases=[text("alias")], max_attempts=1)(handler)

    async def enqueue(how: str) -> Job[Any]:
        marked = task.options(
            key=text(f"key {how}"),
            correlation_id=text("correlation"),
            user_id=text("user"),
            service_id=text("service"),
            tenant=TENANT,
        )
        return await marked.enqueue(how=how, free={text("payload name"): text("payload")})

    await app.pause(WIRE_TOPIC)
    planned = {"how": "complete", "free": {"planned": text("schedule payload")}}
    await app.schedules.create("planted", TOPIC, Every(86_400), planned, key=text("schedule key"))
    await app.access.create_key(text("api key"), tenant=TENANT)
    await app.access.create_superuser(SUPERUSER, "a password of some length")
    with suppress(NotAuthenticated):
        await app.access.log_in(SUPERUSER, "wrong", address="192.0.2.1")
    with patch("socket.gethostname", lambda: text("host")):
        async with site.working(text("worker")):
            jobs = {how: await enqueue(how) for how in ("run", "complete", "fail", "break")}
            for how in ("complete", "fail", "break"):
                with suppress(Exception):
                    await jobs[how].result(20)
            await at_work.wait()
            yield Planted(jobs["run"], jobs["complete"], jobs["fail"], jobs["break"])
            enough.set()
