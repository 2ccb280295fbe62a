"""A proxy for every process: each can be cut off, slowed down and lied to by itself."""

from __future__ import annotations

from typing import Self

from tests.stores.postgres.proxy import Proxy


class Network:
    """Between the processes of a sweep and their server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._proxies: dict[str, Proxy] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for proxy in self._proxies.values():
            await proxy.__aexit__()

    async def url_for(self, name: str) -> str:
        """A way of its own for this process. A guard's is straight: nobody harms it; a file has no way."""
        if name.startswith("guard") or self._url.startswith("sqlite:"):
            return self._url
        proxy = self._proxies[name] = await Proxy(self._url).__aenter__()
        return proxy.url

    def to(self, name: str) -> Proxy | None:
        return self._proxies.get(name)
