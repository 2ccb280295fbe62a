"""Many rows go in with few statements, each as it was given."""

from __future__ import annotations

import random
import sqlite3
from typing import Any

import pytest

from tidewheel.stores.sqlite.bulk_insert import MAX_ROWS_PER_STATEMENT, to_blob, write_rows


def written(number: int, columns: dict[str, Any]) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE TABLE things (number INTEGER PRIMARY KEY, body BLOB, word TEXT, often_null TEXT)"
    )
    # Seen as it is written: the order of a table's rows would be that of its key.
    connection.execute("CREATE TABLE seen (number INTEGER)")
    connection.execute(
        "CREATE TRIGGER watch AFTER INSERT ON things BEGIN INSERT INTO seen VALUES (NEW.number); END"
    )
    write_rows(connection, "things", number, columns)
    rows = connection.execute(
        "SELECT things.* FROM seen JOIN things ON things.number = seen.number ORDER BY seen.rowid"
    ).fetchall()
    connection.close()
    return rows


@pytest.mark.parametrize(
    "number", [1, 2, 3, MAX_ROWS_PER_STATEMENT - 1, MAX_ROWS_PER_STATEMENT, 2 * MAX_ROWS_PER_STATEMENT + 77]
)
@pytest.mark.parametrize("often_null", [[None], ["x"], None])
def test_rows_are_written_as_given_and_in_their_order(
    number: int, often_null: list[str | None] | None
) -> None:
    """Whatever they have in common, and however many statements that takes."""
    numbers = random.Random(number).sample(range(1, 10_000), number)
    bodies = [to_blob(b"%d\0" % each) for each in numbers]
    if often_null is None:
        often_null = [None if each % 2 else str(each) for each in numbers]
    columns = {"number": numbers, "body": bodies, "word": ["same"], "often_null": often_null}
    assert written(number, columns) == [
        (each, b"%d\0" % each, "same", often_null[place if len(often_null) > 1 else 0])
        for place, each in enumerate(numbers)
    ]


def test_rows_may_have_nothing_in_common() -> None:
    columns = {
        "number": [3, 1],
        "body": [to_blob(b"a"), to_blob(b"b")],
        "word": ["x", "y"],
        "often_null": [None, "z"],
    }
    assert written(2, columns) == [(3, b"a", "x", None), (1, b"b", "y", "z")]
