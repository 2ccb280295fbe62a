"""The server that is measured: ``python -m tests.server.streams.server URL`` prints its port and a key."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.server.events.serving import OpenGate
from tests.server.streams.limits import allow_many_files
from windlass import Windlass
from windlass.server import create_api
from windlass.server.running import ApiServer, listen


async def main(url: str) -> None:
    api = create_api(Windlass(url))
    gate: Any = OpenGate()
    api.gate = gate
    with listen("127.0.0.1", 0) as listener:
        server = ApiServer(api, listener)
        print(listener.getsockname()[1], "root", flush=True)
        await server.run_here()
    assert not api.broadcast.listeners
    assert not api.broadcast.watching


if __name__ == "__main__":
    allow_many_files()
    asyncio.run(main(sys.argv[1]))
