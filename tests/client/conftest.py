"""The fixtures of ``tests/app``: an app on each store whose time stands still."""

from tests.app.conftest import app, clock, finish, url

__all__ = ["app", "clock", "finish", "url"]
