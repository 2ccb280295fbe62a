"""``manage.py windlass``: any command of Windlass, on the project's own jobs."""

from __future__ import annotations

from windlass.integrations.django.command import WindlassCommand


class Command(WindlassCommand):
    """See ``manage.py windlass --help``."""

    help = "Run any command of Windlass on the project's own jobs: manage.py windlass jobs list."
