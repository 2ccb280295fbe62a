"""Tidewheel in a Django project: a backend for Django's tasks, plain tasks, and commands of ``manage.py``.

``django.tasks`` (Django 6.0) or its backport ``django-tasks`` is needed for the backend only. Nothing is
imported before somebody wants it: Django imports this package while it reads ``INSTALLED_APPS``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewheel.integrations.django.backend import TidewheelBackend
    from tidewheel.integrations.django.project import ProjectApp, app_for, run_until_idle

    app: ProjectApp
    """The app of the default backend: ``@app.task`` makes plain Tidewheel tasks."""

__all__ = ["ProjectApp", "TidewheelBackend", "app", "app_for", "run_until_idle"]


def __getattr__(name: str) -> Any:
    if name == "TidewheelBackend":
        from tidewheel.integrations.django.backend import TidewheelBackend

        return TidewheelBackend
    if name in __all__:
        from tidewheel.integrations.django import project

        return project.app_for("default") if name == "app" else getattr(project, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
