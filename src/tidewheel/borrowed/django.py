"""Django's connections: ``django.db.connection``, or one of ``connections``."""

from __future__ import annotations

from typing import Any

from tidewheel.borrowed.connection import Borrowed
from tidewheel.borrowed.postgres import first
from tidewheel.stores.joining import Ask, Visit


class Connection(Borrowed):
    """In ``atomic()`` part of its transaction; in autocommit, which is Django's default, at once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.vendor)

    def ask(self, question: Ask) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(question.spoken("%s"), [question.text])
            return first(cursor.fetchone())

    def visit(self, visit: Visit) -> Any:
        connection = self._connection
        connection.ensure_connection()
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        with connection.wrap_database_errors:
            return visit.work(connection.connection)
