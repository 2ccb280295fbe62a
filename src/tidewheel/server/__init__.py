"""The HTTP API: ``create_api(app)`` is an ASGI application to serve or to mount."""

from tidewheel.server.api import Api, create_api

__all__ = ["Api", "create_api"]
