"""Tasks of every kind."""

import asyncio
import threading

from django.db import connections

from desk.models import Note
from tidewheel.integrations.django.compat import PACKAGE

if PACKAGE == "django.tasks":
    from django.tasks import task
else:
    from django_tasks import task

used = []
"""connections and threads that tasks had"""


def task_with(**options):
    """``@task(...)``; the decorator of Django 6.0 takes no options of backends, and using() does."""
    try:
        return task(**options)
    except TypeError:
        return lambda function: task(function).using(**options)


class Unhappy(Exception):
    pass


@task
def add(left, right=1):
    return left + right


@task
def write(text):
    used.append((connections["default"], threading.current_thread()))
    return Note.objects.create(text=text).id


@task
async def write_async(text):
    used.append((None, threading.current_thread()))
    return (await Note.objects.acreate(text=text)).id


@task_with(max_attempts=2)
def fail(text):
    raise Unhappy(text)


@task(takes_context=True)
def tell(context, times):
    if context.attempt < times:
        raise ValueError("not yet")
    return {"attempt": context.attempt, "id": context.task_result.id, "args": context.task_result.args}


@task_with(max_attempts=1, timeout=0.05)
async def hang():
    await asyncio.sleep(30)


@task(queue_name="mail", priority=10)
def send(address):
    return address


@task_with(max_attempts=1)
def fail_together():
    raise ExceptionGroup("all of them", [Unhappy("one")])


@task(takes_context=True)
def lose_connection(context):
    """As when the server is restarted."""
    with connections["default"].cursor() as cursor:
        ending = context.attempt == 1
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())" if ending else "SELECT 1")
    used.append((connections["default"], threading.current_thread()))


@task
def return_what_is_no_json():
    return object()
