"""What goes wrong in a page while nobody looks: a test fails with it unless it said that it would come."""

from __future__ import annotations

import re

from playwright.async_api import BrowserContext, ConsoleMessage, Request, Response, WebError

VIOLATIONS = """
addEventListener("securitypolicyviolation", event => console.error(
    `policy: ${event.violatedDirective} forbids ${event.blockedURI} ${event.sample} at ${event.sourceFile}`
));
"""
ABORTED = "net::ERR_ABORTED"
"""A request that the page itself gave up: a stream it no longer reads, an answer it no longer needs."""


class Troubles:
    """All that was heard from some pages."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    def expect(self, pattern: str) -> None:
        """Announce it. What was announced has to come."""
        self._expected.append(re.compile(pattern))

    async def watch(self, context: BrowserContext) -> None:
        """Listen to every page of this context."""
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("requestfailed", self._failed)
        context.on("response", self._answered)
        await context.add_init_script(VIOLATIONS)

    def check(self) -> None:
        """At the end of a test."""
        unannounced = [one for one in self.heard if not any(wish.search(one) for wish in self._expected)]
        assert not unannounced, "the page had troubles:\n" + "\n".join(unannounced)
        for wish in self._expected:
            assert any(wish.search(one) for one in self.heard), (
                f"{wish.pattern!r} was announced and not heard"
            )

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning", "assert"}:
            self.heard.append(f"console {message.type}: {message.text} at {message.location.get('url')}")

    def _error(self, error: WebError) -> None:
        self.heard.append(f"exception: {error.error}")

    def _failed(self, request: Request) -> None:
        if request.failure != ABORTED:
            self.heard.append(f"request failed: {request.failure} {request.method} {request.url}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.heard.append(f"answer: {response.status} {response.request.method} {response.url}")
