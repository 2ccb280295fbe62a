"""The demo's API and UI: where they are, and the login that is good for this run."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass, field
from typing import Final

from tidewheel.app import Tidewheel
from tidewheel.cli.serve import DEFAULT_PORT
from tidewheel.errors import ConfigurationError
from tidewheel.server import create_api
from tidewheel.server.api_server import ApiServer, listener_url, open_listener

HOST: Final = "127.0.0.1"
LOGIN_NAME: Final = "demo"
_PASSWORD_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"  # noqa: S105  # none that looks like another


def _password() -> str:
    """Twelve letters to read from one window and type into another."""
    return "-".join("".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(4)) for _ in range(3))


@dataclass(frozen=True, slots=True)
class DemoLogin:
    """Where the UI is, and who may come in: nobody knows this password but whoever sees it on the screen."""

    url: str
    name: str = LOGIN_NAME
    password: str = field(default_factory=_password, repr=False)

    @property
    def superuser_setting(self) -> str:
        """For the setting, so that no store ever keeps it."""
        return f"{self.name}:{self.password}"


def open_demo_listener(port: int | None) -> tuple[socket.socket, DemoLogin]:
    """A socket on this machine alone; without a port the usual one, or any other when that is taken."""
    try:
        listener = open_listener(HOST, DEFAULT_PORT if port is None else port)
    except ConfigurationError:
        if port is not None:
            raise
        listener = open_listener(HOST, 0)
    return listener, DemoLogin(f"{listener_url(listener)}/ui/")


class DemoServer:
    """Serves the API and the UI beside the demo's workers, on their event loop."""

    def __init__(self, app: Tidewheel, listener: socket.socket) -> None:
        self._api = create_api(app)
        self._server = ApiServer(self._api, listener, handle_signals=False)

    async def open(self) -> None:
        await self._api.open()

    async def run(self) -> None:
        """Until stopped."""
        await self._server.run_on_current_loop()

    def stop(self) -> None:
        self._server.stop()
