"""``migrate --export django``: a migration that ``manage.py`` runs, forwards and back, on either database."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Run
from tests.cli.migration_export.tables import migrated, objects, path_of, work_off
from tests.cli.processes import Project

MANAGE = """
import os, sys
from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
for line in sys.argv[1:]:
    execute_from_command_line(["manage.py", *line.split()])
"""
SETTINGS = """
SECRET_KEY = "of a test"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
DATABASES = {{"default": {database!r}}}
"""
MODELS = """
from django.db import models


class Order(models.Model):
    total = models.IntegerField()
"""
INITIAL = """
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("total", models.IntegerField()),
            ],
        )
    ]
"""


def database(url: str) -> dict[str, str]:
    if url.startswith("sqlite"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port),
    }


@pytest.fixture
def shop(project: Project, url: str) -> Project:
    """A project of Django's with one app, which has a model."""
    (project.directory / "shop" / "migrations").mkdir(parents=True)
    for name, text in (
        ("shop/migrations/0001_initial.py", INITIAL),
        ("manage.py", MANAGE),
        ("settings.py", SETTINGS.format(database=database(url))),
        ("shop/__init__.py", ""),
        ("shop/models.py", MODELS),
        ("shop/migrations/__init__.py", ""),
    ):
        project.write(name, text)
    return project


def manage(shop: Project, *lines: str) -> str:
    """Several commands of ``manage.py`` in one process, because starting Django takes most of the time."""
    done = subprocess.run(
        [sys.executable, "manage.py", *lines],
        cwd=shop.directory,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def export(run: Run, url: str, *more: str) -> str:
    answer = run("migrate", "--export", "django", "--directory", "shop/migrations", "--url", url, *more)
    assert answer.code == 0, answer.errors
    return answer.out.strip().removeprefix("wrote ")


def test_django_makes_what_migrate_makes_and_takes_it_away(run: Run, shop: Project, url: str) -> None:
    """After the app's own migrations, by ``manage.py`` alone; Tidewheel then finds nothing to do."""
    expected = migrated(url, "expected")
    written = export(run, url)
    assert Path(written) == Path("shop/migrations/0002_tidewheel.py")
    assert "dependencies = [('shop', '0001_initial')]" in (shop.directory / written).read_text()
    said = manage(shop, "migrate --no-color", "makemigrations --check --no-color", "sqlmigrate shop 0002")
    assert "Applying shop.0002_tidewheel... OK" in said
    assert "No changes detected" in said
    shown = said.partition("No changes detected")[2]  # what it runs can be looked at, all of it
    assert "schema" in shown
    assert "CANNOT BE WRITTEN AS SQL" not in shown
    assert objects(url) == expected
    work_off(url)
    assert export(run, url) == "shop/migrations has all of it already"
    manage(shop, "migrate shop zero -v0")
    assert objects(url) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_one_migration_serves_both_and_finds_its_place(run: Run, shop: Project) -> None:
    """Whichever database the project runs on; several last migrations need a word."""
    written = export(run, "sqlite:///any.db", "--after", "billing.0007_more")
    assert written == "shop/migrations/0002_tidewheel.py"
    text = (shop.directory / written).read_text()
    assert "dependencies = [('billing', '0007_more')]" in text
    assert 'CREATE SCHEMA "tidewheel"' in text
    assert "CREATE TABLE tidewheel_jobs" in text
    # The roles come later, in a migration after it, and only for PostgreSQL.
    assert export(run, "postgresql:", "--rls", "--after", "0002") == "shop/migrations/0003_tidewheel.py"
    text = (shop.directory / "shop/migrations/0003_tidewheel.py").read_text()
    assert "dependencies = [('shop', '0002_tidewheel')]" in text
    assert "CREATE TABLE" not in text
    assert export(run, "postgresql:", "--rls") == "shop/migrations has all of it already"
    (shop.directory / "shop/migrations/0001_initial.py").unlink()
    for name in ("0004_one", "0004_two"):
        shop.write(f"shop/migrations/{name}.py", 'dependencies = [("shop", "0003_tidewheel")]\n')
    at = (
        "migrate",
        "--export",
        "django",
        "--directory",
        "shop/migrations",
        "--url",
        "postgresql:///?schema=b",
    )
    for after in ((), ("--after", "0004"), ("--after", "0004_three")):
        answer = run(*at, *after)
        assert answer.code == 2
        assert "0004_one, 0004_two" in " ".join(answer.errors.split())
