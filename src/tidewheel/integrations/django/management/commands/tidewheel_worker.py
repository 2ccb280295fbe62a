"""``manage.py tidewheel_worker``: ``tidewheel worker`` for the project, with Django set up."""

from __future__ import annotations

from tidewheel.integrations.django.management import TidewheelCommand


class Command(TidewheelCommand):
    """See ``manage.py tidewheel_worker --help``."""

    help = "Run the jobs of the project until stopped."
    prefix = ("worker",)
