"""Where ``tidewheel worker`` and the other commands find the app of a Django project.

``manage.py tidewheel_worker`` runs ``tidewheel worker tidewheel.integrations.django.worker_app:default``,
whose attribute is the alias in ``TASKS``. Importing it sets Django up, so a fresh interpreter can do so, too.
"""

from __future__ import annotations

import logging

import django
from django.apps import apps
from django.conf import settings

from tidewheel.integrations.django.project import ProjectApp, app_for

if not apps.ready:
    django.setup()


def __getattr__(alias: str) -> ProjectApp:
    if alias.startswith("__"):
        raise AttributeError(alias)
    app = app_for(alias)
    app.follow_database()
    app.discover()
    _say_once()
    return app


def _say_once() -> None:
    """With DEBUG and without LOGGING Django's log has a console already, and commands bring their own."""
    if not settings.LOGGING and not logging.root.handlers:
        logger = logging.getLogger("django")
        logger.handlers = [handler for handler in logger.handlers if handler.name != "console"]
