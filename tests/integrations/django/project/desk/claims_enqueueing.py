"""Jobs go in with Django's own transaction, or not at all."""

from datetime import timedelta

from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.utils import timezone

from desk.models import Note
from desk.tasks import add, send, write
from tidewheel import InvalidPayload
from tidewheel.integrations.django import app, run_until_idle
from tidewheel.integrations.django.compat import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    backends,
    signals,
)


class Change(Exception):
    pass


def is_there(result):
    try:
        add.get_result(result.id)
    except TaskResultDoesNotExist:
        return False
    return True


class Transactions(TransactionTestCase):
    def test_in_autocommit_a_job_is_there_at_once(self):
        """Without a transaction enqueue is one of its own."""
        result = add.enqueue(1, right=2)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual((result.args, result.kwargs, result.attempts), ([1], {"right": 2}, 0))
        self.assertTrue(is_there(result))

    def test_a_commit_brings_row_and_job(self):
        """Both are there after the block."""
        with transaction.atomic():
            note = Note.objects.create(text="kept")
            result = write.enqueue("kept")
            self.assertTrue(transaction.get_connection().in_atomic_block)
        self.assertTrue(Note.objects.filter(id=note.id).exists())
        self.assertEqual(run_until_idle(), 1)
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)

    def test_a_rollback_leaves_nothing(self):
        """Neither the row nor the job; while it lasted its own connection saw both."""
        try:
            with transaction.atomic():
                Note.objects.create(text="dropped")
                result = add.enqueue(1)
                self.assertTrue(is_there(result))
                raise Change
        except Change:
            pass
        self.assertFalse(Note.objects.exists())
        self.assertFalse(is_there(result))
        self.assertEqual(run_until_idle(), 0)

    def test_a_savepoint_takes_only_its_own_jobs_with_it(self):
        """Nested atomic() blocks are savepoints."""
        with transaction.atomic():
            outer = add.enqueue(1)
            try:
                with transaction.atomic():
                    inner = add.enqueue(2)
                    raise Change
            except Change:
                pass
            after = add.enqueue(3)
        self.assertEqual([is_there(one) for one in (outer, inner, after)], [True, False, True])

    def test_a_request_that_fails_takes_its_job_with_it(self):
        """ATOMIC_REQUESTS makes a request a transaction."""
        before = connection.settings_dict["ATOMIC_REQUESTS"]
        self.addCleanup(connection.settings_dict.__setitem__, "ATOMIC_REQUESTS", before)
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        with self.assertRaises(RuntimeError):
            self.client.get("/notes/bad")
        self.assertEqual((Note.objects.count(), run_until_idle()), (0, 0))
        self.client.get("/notes/good")
        self.assertEqual((Note.objects.count(), run_until_idle()), (1, 1))

    def test_asynchronous_code_enqueues_and_looks(self):
        """aenqueue, aget_result and arefresh."""

        async def ask():
            result = await add.aenqueue(1)
            await result.arefresh()
            return (await add.aget_result(result.id)).id == result.id

        self.assertTrue(async_to_sync(ask)())


class WhatIsSaid(TransactionTestCase):
    def test_priority_queue_and_time_are_those_of_the_job(self):
        """What using() says is what the job has, and what its result tells."""
        later = timezone.now() + timedelta(hours=1)
        result = add.using(priority=7, queue_name="mail", run_after=later).enqueue(1)
        job = app.sync.get(result.id)
        self.addCleanup(app.sync.close)
        self.assertEqual((job.priority, job.topic, job.run_at), (7, "mail", later))
        again = add.get_result(result.id).task
        self.assertEqual((again.priority, again.queue_name, again.run_after), (7, "mail", later))
        self.assertEqual((job.task, job.max_attempts, job.shown_state), ("desk.tasks.add", 3, "delayed"))

    def test_what_cannot_be_run_is_refused_and_nothing_is_written(self):
        """Arguments that do not fit or are no JSON, queues and priorities that are not possible."""
        with self.assertRaises(InvalidPayload):
            add.enqueue()
        with self.assertRaises(InvalidPayload):
            add.enqueue(1, wrong=2)
        with self.assertRaises(TypeError):
            add.enqueue(object())
        for wrong in ({"priority": 101}, {"queue_name": "unknown"}, {"max_attempts": 0}, {"timeout": -1}):
            with self.subTest(wrong), self.assertRaises(InvalidTask):
                add.using(**wrong)
        with self.assertRaises(InvalidTask):
            add.using(run_after=timezone.now().replace(tzinfo=None))
        self.assertEqual(run_until_idle(), 0)

    def test_a_key_lets_one_job_in(self):
        """The second one gets the first one's id, and nobody is told of a task that was not enqueued."""
        heard = []

        def hear(sender, task_result, **more):
            heard.append(task_result.id)

        signals().task_enqueued.connect(hear)
        self.addCleanup(signals().task_enqueued.disconnect, hear)
        once = add.using(key="42")
        self.assertEqual(once.enqueue(1).id, once.enqueue(2).id)
        self.assertEqual(len(heard), 1)
        self.assertEqual(run_until_idle(), 1)

    def test_the_backend_says_what_it_can(self):
        """Every feature of the interface."""
        backend = backends()["default"]
        self.assertTrue(
            backend.supports_defer
            and backend.supports_async_task
            and backend.supports_get_result
            and backend.supports_priority
        )


class InATestCase(TestCase):
    """A TestCase is one transaction, which is never committed."""

    def test_jobs_are_seen_from_inside(self):
        """Enqueueing and looking work as in a program."""
        result = send.enqueue("a@example.org")
        self.assertEqual(send.get_result(result.id).status, TaskResultStatus.READY)
        self.assertEqual(result.task.priority, 10)

    def test_running_them_is_refused(self):
        """No worker sees them before a commit, and on SQLite one would wait for it."""
        add.enqueue(1)
        with self.assertRaisesMessage(transaction.TransactionManagementError, "TransactionTestCase"):
            run_until_idle()
