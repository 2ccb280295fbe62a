"""``manage.py windlass_migrate``: ``windlass migrate`` for the project's database."""

from __future__ import annotations

from windlass.integrations.django.command import WindlassCommand


class Command(WindlassCommand):
    """See ``manage.py windlass_migrate --help``."""

    help = "Create the tables of Windlass, or bring them up to date."
    prefix = ("migrate",)
