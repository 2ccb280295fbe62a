"""Settings are understood, or refused with words; commands do what the command line does."""

import json
import logging
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest import skipUnless

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command, load_command_class
from django.db import connection
from django.test import SimpleTestCase, TransactionTestCase, modify_settings, override_settings
from django.utils.log import configure_logging

from desk.tasks import add
from tidewheel.integrations.django import ProjectApp, TidewheelBackend, app, app_for, worker_app
from tidewheel.integrations.django.database_urls import database_url
from tidewheel.integrations.django.project import project_apps


def postgresql(schema=None, **known):
    return database_url(SimpleNamespace(vendor="postgresql", alias="default", settings_dict=known), schema)


class InMemory(ProjectApp):
    current_url = None


class Databases(SimpleTestCase):
    def test_every_part_of_an_entry_is_in_the_url(self):
        """Characters with a meaning in URLs included."""
        self.assertEqual(
            postgresql("jobs", NAME="my shop", USER="a@b", PASSWORD="p/w:1", HOST="db", PORT=5433),  # noqa: S106
            "postgresql://a%40b:p%2Fw%3A1@db:5433/my%20shop?schema=jobs",
        )
        self.assertEqual(
            postgresql(NAME="shop", HOST="/run/pg", PORT="5433", OPTIONS={"sslmode": "require", "pool": 1}),
            "postgresql:///shop?sslmode=require&host=%2Frun%2Fpg&port=5433",
        )
        self.assertEqual(postgresql(NAME="shop", HOST="::1"), "postgresql://[::1]/shop")

    def test_what_tidewheel_cannot_use_is_refused(self):
        """Other databases, services without a name, URIs."""
        with self.assertRaisesMessage(ImproperlyConfigured, "MySQL"):
            database_url(SimpleNamespace(vendor="mysql", alias="default", display_name="MySQL"), None)
        with self.assertRaisesMessage(ImproperlyConfigured, "has no NAME"):
            postgresql(NAME="", OPTIONS={"service": "shop"})

    def test_a_database_in_memory_is_refused_with_what_helps(self):
        """No worker would find a job there."""
        with self.assertRaisesMessage(ImproperlyConfigured, "test.sqlite3"):
            InMemory("memory", {}).follow_database()


class OfTests(SimpleTestCase):
    def test_a_database_of_tests_is_known_as_one(self):
        """Also to an app made when it is there: its jobs go after a test, and nobody tells of them."""
        self.assertTrue(ProjectApp("late", {}).uses_test_database)

    def test_jobs_of_tests_are_not_where_a_url_says(self):
        """That is where the jobs are that are none of tests: run_until_idle would run those."""
        found = ProjectApp("tried", {"url": "sqlite:////srv/shop.db"})
        self.assertEqual(found.url, database_url(connection, None))


class Options(SimpleTestCase):
    def check(self, **params):
        alias = f"tried{len(params)}{abs(hash(str(params)))}"
        entry = {"BACKEND": "tidewheel.integrations.django.TidewheelBackend", **params}
        with override_settings(TASKS={alias: entry}):
            return [(found.id, found.msg) for found in TidewheelBackend(alias, entry).check()]

    def test_good_ones_pass(self):
        """Settings of Tidewheel are options."""
        self.assertEqual(self.check(OPTIONS={"lease": 30, "modules": ["desk.jobs"], "schema": "jobs"}), [])

    def test_wrong_ones_are_found_by_manage_py_check(self):
        """With the value, and what would be right."""
        for options, words in (
            ({"max_atempts": 3}, "did you mean max_attempts"),
            ({"max_attempts": 0}, "max_attempts"),
            ({"database": "defualt"}, "did you mean default"),
            ({"database": None}, "url"),
            ({"retry": 3}, "tidewheel.Retry"),
        ):
            with self.subTest(options):
                ((found, message),) = self.check(OPTIONS=options)
                self.assertEqual(found, "tidewheel.E002")
                self.assertIn(words, message)
        ((found, message),) = self.check(QUEUES=["no topic"])
        self.assertEqual(found, "tidewheel.E001")

    def test_a_name_that_is_none_of_tasks_is_refused(self):
        """Instead of being one more way to the default database."""
        with self.assertRaisesMessage(ImproperlyConfigured, "did you mean reports"):
            app_for("reprots")
        with self.assertRaisesMessage(CommandError, "TASKS has no 'nix'"):
            call_command("tidewheel_worker", "--backend", "nix")

    def test_queues_that_no_worker_would_take_are_mentioned(self):
        """With QUEUES empty the interface allows any."""
        ((found, _),) = self.check(QUEUES=[])
        self.assertEqual(found, "tidewheel.W002")

    @override_settings(TASKS={"default": {"BACKEND": "no.such.Backend"}})
    def test_a_backend_that_is_not_there_does_not_keep_django_from_its_database(self):
        """Whoever uses the backend is told; connections are opened all the same."""
        self.assertIn(app, project_apps())

    @modify_settings(INSTALLED_APPS={"remove": "tidewheel.integrations.django"})
    def test_a_forgotten_app_is_mentioned(self):
        """Without it manage.py has none of the commands."""
        ((found, _),) = self.check()
        self.assertEqual(found, "tidewheel.W001")

    def test_threads_share_an_app(self):
        """Django has a backend for each thread; connections and tasks are not multiplied by that."""
        self.assertIs(app, app_for("default"))
        self.assertIs(add.get_backend().app, app)


@skipUnless(connection.vendor == "sqlite", "files are SQLite's")
class Files(TransactionTestCase):
    def test_checkpoints_are_left_to_tidewheel(self):
        """SQLite before 3.51.3 can corrupt a file when a checkpoint races a commit; Tidewheel lets none."""
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_autocheckpoint")
            self.assertEqual(cursor.fetchone(), (0,))
            cursor.execute("PRAGMA journal_mode")
            self.assertEqual(cursor.fetchone(), ("wal",))


class Commands(TransactionTestCase):
    def test_all_commands_are_about_the_jobs_of_the_project(self):
        """manage.py tidewheel … is tidewheel … --app, and comes back."""
        add.enqueue(1)
        said = StringIO()
        with redirect_stdout(said):
            call_command("tidewheel", "jobs", "list", "--json")
        ((job,),) = [[entry["task"] for entry in json.loads(said.getvalue())["items"]]]
        self.assertEqual(job, "desk.tasks.add")

    def test_commands_show_the_log_of_django_once(self):
        """Its own console, which it has while nobody configures any, would show every line again."""
        for logger in (logging.root, logging.getLogger("django")):
            self.addCleanup(setattr, logger, "handlers", logger.handlers)
        logging.root.handlers = []
        configure_logging(settings.LOGGING_CONFIG, {})
        self.assertIn("console", [handler.name for handler in logger.handlers])
        self.assertIs(worker_app.default, app)
        self.assertEqual([handler.name for handler in logger.handlers], ["mail_admins"])

    def test_help_has_the_options_of_the_command(self):
        """manage.py help tidewheel_worker and manage.py tidewheel_worker --help say the same."""
        said = StringIO()
        with redirect_stdout(said):
            asked = load_command_class("tidewheel.integrations.django", "tidewheel_worker")
            asked.print_help("manage.py", "tidewheel_worker")
            help_text = said.getvalue()
            call_command("tidewheel_worker", "--help")
        self.assertIn("--topic-concurrency", help_text)
        self.assertEqual(said.getvalue(), 2 * help_text)
