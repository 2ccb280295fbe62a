"""``manage.py tidewheel``: any command of Tidewheel, on the project's own jobs."""

from __future__ import annotations

from tidewheel.integrations.django.management import TidewheelCommand


class Command(TidewheelCommand):
    """See ``manage.py tidewheel --help``."""

    help = "Run any command of Tidewheel on the project's own jobs: manage.py tidewheel jobs list."
