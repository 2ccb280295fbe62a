"""``manage.py tidewheel_migrate``: ``tidewheel migrate`` for the project's database."""

from __future__ import annotations

from tidewheel.integrations.django.management import TidewheelCommand


class Command(TidewheelCommand):
    """See ``manage.py tidewheel_migrate --help``."""

    help = "Create the tables of Tidewheel, or bring them up to date."
    prefix = ("migrate",)
