"""Migrations of other tools that run the SQL of ours: what is new since the last one becomes a new file."""

from __future__ import annotations

from pathlib import Path

import click

from tidewheel.cli.migrate import alembic, django
from tidewheel.cli.migrate.directory import Directory
from tidewheel.cli.migrate.revision import Revision
from tidewheel.schema_scripts import Script, write_script


def export_migration(tool: str, url: str, where: Path, *, after: str | None, rls: bool) -> Path | None:
    """The file that was written; None when the directory has all of it already."""
    directory = Directory(where)
    if tool == "django":  # many projects of Django's develop and test on the one and run on the other
        other = "postgresql:" if url.startswith("sqlite:") else "sqlite:///any.db"
        parts = [_new_part(each, directory, rls=rls and each.startswith("postgres")) for each in (url, other)]
    else:
        parts = [_new_part(url, directory, rls=rls)]
    scripts = [script for script in parts if script.steps]
    if not scripts:
        return None
    write = django.write if tool == "django" else alembic.write
    revision: Revision = write(scripts, directory, after)
    path = where / revision.name
    try:
        with path.open("x", encoding="utf-8") as file:  # never over another file, whoever made it
            file.write(revision.content)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _new_part(url: str, directory: Directory, *, rls: bool) -> Script:
    whole = write_script(url, since=0)
    exported = directory.exported(whole.place)
    script = write_script(url, since=exported.version, rls=rls and not exported.rls)
    # As with migrate: where there is row-level security, every step sets it up anew.
    return write_script(url, since=exported.version, rls=True) if exported.rls and script.steps else script
