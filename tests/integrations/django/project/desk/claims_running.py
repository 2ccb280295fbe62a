"""Jobs run, end, and tell how."""

from datetime import timedelta
from unittest import skipUnless

from django.conf import settings
from django.db import OperationalError, connection, connections
from django.test import TransactionTestCase, override_settings
from django.utils import timezone

from desk import tasks
from desk.jobs import count_notes
from desk.models import Note
from tidewheel import SecurityContext, acting_as
from tidewheel.core.conditions import InState
from tidewheel.core.model import State
from tidewheel.integrations.django import app_for, run_until_idle
from tidewheel.integrations.django.compat import (
    PACKAGE,
    TaskResultDoesNotExist,
    TaskResultStatus,
    signals,
)


class Running(TransactionTestCase):
    def setUp(self):
        tasks.used.clear()

    def run_one(self, task, *args, **kwargs):
        result = task.enqueue(*args, **kwargs)
        run_until_idle()
        result.refresh()
        return result

    def test_a_function_runs_on_a_thread_and_its_value_is_kept(self):
        """With its times, its worker, and what it returned."""
        result = self.run_one(tasks.write, "on a thread")
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertTrue(result.is_finished)
        self.assertEqual(result.return_value, Note.objects.get(text="on a thread").id)
        self.assertEqual((result.attempts, result.errors, len(result.worker_ids)), (1, [], 1))
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(result.started_at, result.last_attempted_at)

    def test_its_connection_is_closed_behind_it(self):
        """As after a request: nothing stays open on a thread that nobody uses."""
        self.run_one(tasks.write, "closed")
        ((connection, thread),) = tasks.used
        self.assertTrue(thread.name.startswith("tidewheel-handler"))
        self.assertIsNone(connection.connection)

    @skipUnless(connection.vendor == "postgresql", "SQLite has no server to lose")
    def test_a_broken_connection_is_not_used_again(self):
        """One that Django keeps open is closed after the error, and stays open otherwise."""
        before = connection.settings_dict["CONN_MAX_AGE"]
        self.addCleanup(connection.settings_dict.__setitem__, "CONN_MAX_AGE", before)
        connection.settings_dict["CONN_MAX_AGE"] = 60
        result = self.run_one(tasks.lose_connection)
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.SUCCESSFUL, 2))
        self.assertIs(result.errors[0].exception_class, OperationalError)
        ((kept, _),) = tasks.used
        self.assertIsNotNone(kept.connection)
        kept.inc_thread_sharing()
        kept.close()

    def test_a_coroutine_runs_on_the_event_loop(self):
        """With Django's asynchronous calls."""
        result = self.run_one(tasks.write_async, "on the loop")
        self.assertEqual(result.return_value, Note.objects.get(text="on the loop").id)
        self.assertEqual(tasks.used[0][1].name, "tidewheel-idle")

    def test_an_error_is_kept_for_each_attempt(self):
        """Its class and its traceback; after the last one the task has failed."""
        result = self.run_one(tasks.fail, "oh no")
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertEqual((result.attempts, len(result.errors)), (2, 2))
        self.assertIs(result.errors[-1].exception_class, tasks.Unhappy)
        self.assertIn("oh no", result.errors[0].traceback)
        self.assertIn("tasks.py", result.errors[0].traceback)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value

    def test_a_group_of_errors_has_its_class(self):
        """Its traceback is drawn with bars."""
        result = self.run_one(tasks.fail_together)
        self.assertIs(result.errors[0].exception_class, ExceptionGroup)
        self.assertIn("one", result.errors[0].traceback)

    def test_a_context_tells_the_attempt(self):
        """takes_context: the attempt, the id and the arguments; errors of builtin classes have their path."""
        result = self.run_one(tasks.tell, 3)
        self.assertEqual(result.return_value, {"attempt": 3, "id": result.id, "args": [3]})
        self.assertEqual([error.exception_class for error in result.errors], [ValueError, ValueError])

    def test_a_timeout_ends_a_task(self):
        """The option of the decorator."""
        result = self.run_one(tasks.hang)
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIs(result.errors[0].exception_class, TimeoutError)

    def test_a_value_that_is_no_json_fails_the_task(self):
        """As the interface has it."""
        result = self.run_one(tasks.return_what_is_no_json)
        self.assertIs(result.errors[0].exception_class, TypeError)

    def test_a_job_that_was_sent_to_another_queue_is_run(self):
        """Although other tasks are at home there."""
        result = self.run_one(tasks.add.using(queue_name="mail"), 1)
        self.assertEqual((result.return_value, result.task.queue_name), (2, "mail"))

    def test_a_cancelled_job_has_failed(self):
        """The interface has no other word for it."""
        from tidewheel.integrations.django import app

        result = tasks.add.enqueue(1)
        app.sync.cancel(result.id)
        app.sync.close()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 0))
        self.assertEqual(result.errors[0].exception_class.__name__, "JobCancelled")

    def test_signals_are_sent(self):
        """When a task is enqueued, started, and has finished; not after attempts that are tried again."""
        heard = []
        for name in ("task_enqueued", "task_started", "task_finished"):

            def hear(sender, task_result, name=name, **more):
                heard.append((name, task_result.status, task_result.attempts))

            signal = getattr(signals(), name)
            signal.connect(hear, weak=False)
            self.addCleanup(signal.disconnect, hear)
        self.run_one(tasks.fail, "loudly")
        self.run_one(tasks.add, 1)
        self.assertEqual(
            heard,
            [
                ("task_enqueued", "READY", 0),
                ("task_started", "RUNNING", 1),
                ("task_started", "RUNNING", 2),
                ("task_finished", "FAILED", 2),
                ("task_enqueued", "READY", 0),
                ("task_started", "RUNNING", 1),
                ("task_finished", "SUCCESSFUL", 1),
            ],
        )

    def test_signals_know_the_worker_and_earlier_attempts(self):
        """What a receiver is given is what the store says later; queue and priority are the job's."""
        heard = []

        def hear(sender, task_result, **more):
            heard.append(
                (
                    list(task_result.worker_ids),
                    [error.exception_class for error in task_result.errors],
                    task_result.started_at <= task_result.last_attempted_at,
                    (task_result.task.queue_name, task_result.task.priority),
                )
            )

        signals().task_started.connect(hear)
        self.addCleanup(signals().task_started.disconnect, hear)
        result = self.run_one(tasks.tell.using(queue_name="mail", priority=3), 3)
        workers = result.worker_ids
        self.assertEqual(len(workers), 3)
        self.assertEqual([told[0] for told in heard], [workers[:1], workers[:2], workers])
        self.assertEqual([told[1] for told in heard], [[], [ValueError], [ValueError, ValueError]])
        self.assertEqual({told[2:] for told in heard}, {(True, ("mail", 3))})

    def test_no_result_is_kept_for_an_attempt_that_is_over(self):
        """Whoever runs attempts of a job that others finish would keep its arguments for ever."""
        from tidewheel.integrations.django import app

        self.run_one(tasks.fail, "tried twice")
        self.run_one(tasks.tell, 2)
        self.assertEqual(app.handlers._running, {})

    def test_connections_of_receivers_are_closed_behind_them(self):
        """task_finished is sent on a thread of the worker, as callbacks of plain tasks are called."""
        from tidewheel.integrations.django import app

        used = []

        def look(*_, **__):
            used.append((connections["default"], Note.objects.count()))

        signals().task_finished.connect(look)
        self.addCleanup(signals().task_finished.disconnect, look)
        if "called_back" not in app.registry.tasks:
            app.task(name="called_back", on_success=lambda: look())(lambda: None)
        self.run_one(tasks.add, 1)
        app.enqueue("called_back", using=connection)
        run_until_idle()
        self.assertEqual([(seen.connection, notes) for seen, notes in used], [(None, 0)] * 2)

    def test_any_task_can_be_sent_to_another_backend(self):
        """A worker of that one has never seen using(backend=…): it knows the tasks of all modules."""
        reports = app_for("reports")
        run_until_idle("reports")
        for name in ("add", "write_async", "send"):
            self.assertIsNotNone(reports.registry.find(f"desk.tasks.{name}"))
        result = tasks.add.using(backend="reports", queue_name="reports").enqueue(1)
        self.assertEqual((run_until_idle(), run_until_idle("reports")), (0, 1))
        result.refresh()
        self.assertEqual(
            (result.return_value, result.backend, result.task.backend), (2, "reports", "reports")
        )

    def test_what_one_call_says_is_not_what_its_task_says(self):
        """Also where using(backend=…) is the first that a backend sees of a task."""
        entry = {"BACKEND": "tidewheel.integrations.django.TidewheelBackend", "OPTIONS": {"timeout": 60}}
        with override_settings(TASKS={**settings.TASKS, "fresh": entry}):
            later = timezone.now() + timedelta(hours=1)
            first = tasks.add.using(backend="fresh", timeout=5, run_after=later).enqueue(1)
            again = tasks.add.using(backend="fresh").enqueue(2)
            found = tasks.add.using(backend="fresh").get_result(again.id)
        self.addCleanup(app_for("fresh").sync.close)
        self.assertEqual((first.task.run_after, found.task.run_after), (later, None))
        self.assertEqual(app_for("fresh").sync.get(again.id).record.timeout, 60)

    def test_a_plain_task_runs_beside_them(self):
        """@app.task, enqueued on Django's connection."""
        Note.objects.create(text="one")
        job = count_notes.using(connection).enqueue(least=0)
        self.assertEqual(run_until_idle(), 1)
        from tidewheel.integrations.django import app

        self.addCleanup(app.sync.close)
        self.assertEqual(app.sync.result(job.id, 5), 1)
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.add.get_result(str(job.id))

    def test_results_of_others_are_not_shown(self):
        """Of another task: a mismatch. Of nobody: it does not exist."""
        from importlib import import_module

        result = tasks.add.enqueue(1)
        with self.assertRaises(import_module(f"{PACKAGE}.exceptions").TaskResultMismatch):
            tasks.send.get_result(result.id)
        for unknown in ("nonsense", "00000000-0000-7000-8000-000000000000"):
            with self.assertRaises(TaskResultDoesNotExist):
                tasks.add.get_result(unknown)

    def test_results_of_other_tenants_do_not_exist(self):
        """Whoever acts for a tenant sees that tenant's jobs, and of those what its row filter leaves."""
        with acting_as(SecurityContext("acme")):
            result = tasks.add.enqueue(1)
            self.assertEqual(tasks.add.get_result(result.id).id, result.id)
        for other in (SecurityContext("globex"), SecurityContext("acme", only=InState(State.FAILED))):
            with acting_as(other), self.assertRaises(TaskResultDoesNotExist):
                tasks.add.get_result(result.id)

    def test_jobs_of_one_test_are_gone_in_the_next(self):
        """Django empties its tables after each TransactionTestCase; the jobs go with them."""
        self.assertEqual(run_until_idle(), 0)
        tasks.add.enqueue(1)
        self._fixture_teardown()
        self.assertEqual(run_until_idle(), 0)
