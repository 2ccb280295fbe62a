"""``manage.py windlass_worker``: ``windlass worker`` for the project, with Django set up."""

from __future__ import annotations

from windlass.integrations.django.command import WindlassCommand


class Command(WindlassCommand):
    """See ``manage.py windlass_worker --help``."""

    help = "Run the jobs of the project until stopped."
    prefix = ("worker",)
