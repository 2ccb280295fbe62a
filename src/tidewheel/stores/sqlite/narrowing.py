"""Times of creation as ranges of numbers: the looks at jobs that it takes."""

from __future__ import annotations

import sqlite3

from tidewheel.stores.narrowing import SAMPLES, Asking, Range, Sample, Wanted
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.sqlite.sql", "select.sql")


def answer(connection: sqlite3.Connection, asking: Asking) -> Range:
    """What it comes to, once everything it asks for was looked at."""
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(_look(connection, wanted))
    except StopIteration as told:
        found: Range = told.value
        return found


def _look(connection: sqlite3.Connection, wanted: Wanted) -> list[Sample]:
    if wanted is None:
        rows = connection.execute(_sql["ends"]).fetchall()
    else:
        first, last = wanted
        places = (first + (last - first) * i // (SAMPLES - 1) for i in range(SAMPLES))
        rows = [row for place in places for row in connection.execute(_sql["sample"], (place,))]
    return [Sample(*row) for row in rows]
