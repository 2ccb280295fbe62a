"""Schemathesis against a running server: everything the OpenAPI document allows, and what it does not.

``python -m tests.server.schema_runs --examples 300`` runs for longer, on every store, and tells the totals.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from tests.stores.all_stores.urls import STORES
from tidewheel import Tidewheel
from tidewheel.server import create_api
from tidewheel.server.api_server import ApiServer, open_listener
from tidewheel.server.routes import ROUTES

SEED: Final = 7
STREAMS: Final = "/api/jobs/events"
"""Never ends by itself; it has tests of its own."""
WAITS: Final = "/api/jobs/work/reserve"
"""Takes a minute when told to; likewise."""


@dataclass
class Totals:
    """What came of a run."""

    cases: int = 0
    checks: int = 0
    failures: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def add(self, event: Any) -> None:
        match event:
            case events.ScenarioFinished(recorder=recorder):
                self.cases += len(recorder.cases)
                for checks in recorder.checks.values():
                    self.checks += len(checks)
                    for check in checks:
                        if check.failure_info is not None:
                            self._failed(check.failure_info)
                self.statuses.update(
                    one.response.status_code
                    for one in recorder.interactions.values()
                    if one.response is not None
                )
            case events.EngineFinished(failures=failures):
                self.failures += [f"{one.operation}: {one.title}: {one.message}" for one in failures]
            case events.NonFatalError(info=info, label=label):
                self.failures.append(f"{label}: {info}")
            case events.FatalError(exception=exception):
                self.failures.append(repr(exception))

    def _failed(self, info: Any) -> None:
        """One line of each kind for each route; the request that shows it goes with the first."""
        kind = f"{info.failure.operation}: {info.failure.title}"
        if not any(known.startswith(kind) for known in self.failures):
            message = " ".join(info.failure.message.split())
            self.failures.append(f"{kind}: {message} | {info.code_sample}")


def run(
    base_url: str, key: str, *, examples: int, seed: int = SEED, thorough: bool = True, aliases: bool = True
) -> Totals:
    """Call everything there is at this address, with a superuser's key.

    ``thorough``: also with every boundary of every parameter, which is the same on every store.
    ``aliases``: also under the other paths a route has.
    """
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "headers": {"Authorization": f"Bearer {key}"},
            "generation": {"max-examples": examples, "deterministic": True},
            "phases": {"coverage": {"enabled": thorough}},
            "checks": {
                # A valid body can still ask for a task that does not exist, or name two times of which one
                # is wrong: 422 is right there, and no schema can say so.
                "positive_data_acceptance": {"enabled": False},
                "negative_data_rejection": {"expected-statuses": [*range(400, 432)]},
            },
        }
    )
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json", config=config)
    others = () if aliases else tuple(path for route in ROUTES for path in _documented(route.aliases))
    totals = Totals()
    for event in from_schema(schema.exclude(path=[STREAMS, WAITS, *others])).execute():
        totals.add(event)
    return totals


def _documented(paths: Iterable[str]) -> list[str]:
    """Paths as the document has them: parameters without their kinds."""
    return [re.sub(r":\w+}", "}", path) for path in paths]


@contextmanager
def running(url: str) -> Iterator[tuple[str, str]]:
    """A server of its own thread on this store: its address, and a superuser's key."""
    ready: list[tuple[str, str]] = []
    started, servers = threading.Event(), []

    async def serve() -> None:
        app = Tidewheel(url, allowed_topics=("mail", "topic"))

        @app.task
        def send(to: str, copies: int = 1) -> None:
            """Send something."""

        async with app:
            made = await app.access.create_key("schemathesis", superuser=True)
            for number in range(5):
                await app.enqueue("send", {"to": str(number)})
            with open_listener("127.0.0.1", 0) as listener:
                server = ApiServer(create_api(app), listener)
                servers.append((server, asyncio.get_running_loop()))
                ready.append((f"http://127.0.0.1:{listener.getsockname()[1]}", made.key))
                serving = asyncio.create_task(server.run_on_current_loop())
                while not server.started and not serving.done():
                    await asyncio.sleep(0.005)
                started.set()
                await serving
            assert await app.check() == []

    failed: list[BaseException] = []

    def main() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            failed.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=main, name="served", daemon=True)
    thread.start()
    started.wait(60)
    if failed:
        raise failed[0]
    try:
        yield ready[0]
    finally:
        [(server, loop)] = servers
        loop.call_soon_threadsafe(server.stop)
        thread.join(60)
        if failed:
            raise failed[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="random examples of each route")
    parser.add_argument("--store", choices=STORES, action="append", help="only this store")
    parser.add_argument("--seed", type=int, help="another one than the suite's")
    given = parser.parse_args()
    for name in given.store or STORES:
        with tempfile.TemporaryDirectory() as directory, running(STORES[name](Path(directory))) as (url, key):
            totals = run(url, key, examples=given.examples, seed=SEED if given.seed is None else given.seed)
        print(f"{name}: {totals.cases:,} cases, {totals.checks:,} checks, {len(totals.failures)} failures")
        print("  " + ", ".join(f"{status}: {number:,}" for status, number in sorted(totals.statuses.items())))
        for failure in totals.failures:
            print("  " + failure)


if __name__ == "__main__":
    main()
