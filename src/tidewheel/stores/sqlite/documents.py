"""The documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tidewheel.core.model import Document, NewDocument
from tidewheel.stores.documents import NEWEST
from tidewheel.stores.sql_files import Queries
from tidewheel.stores.sqlite.write_transaction import Transaction

_sql = Queries("tidewheel.stores.sqlite", "sql/documents.sql")


def write(transaction: Transaction, documents: Sequence[NewDocument]) -> list[int | None]:
    return [_write(transaction, document) for document in documents]


def _write(transaction: Transaction, new: NewDocument) -> int | None:
    # Looked at first: this transaction is the only one that writes.
    place = {"kind": new.kind, "id": new.id, "now": transaction.now}
    row = transaction.connection.execute(_sql["version"], place).fetchone()
    version = 0 if row is None else int(row[0])
    if new.only_version not in (None, version):
        return None
    values = place | {"body": new.body, "expires_at": new.expires_at}
    transaction.connection.execute(_sql["write"], values)
    return version + 1


def read(connection: sqlite3.Connection, kind: str, document_id: str, now: int) -> Document | None:
    row = connection.execute(_sql["read"], {"kind": kind, "id": document_id, "now": now}).fetchone()
    return None if row is None else Document(*row)


def listed(
    connection: sqlite3.Connection, kind: str, limit: int, before: tuple[int, str] | None, now: int
) -> list[Document]:
    created_at, document_id = before or NEWEST
    values = {"kind": kind, "created_at": created_at, "id": document_id, "limit": limit, "now": now}
    return [Document(*row) for row in connection.execute(_sql["newest"], values)]


def remove(transaction: Transaction, place: tuple[str, str]) -> bool:
    found = read(transaction.connection, *place, transaction.now)
    transaction.connection.execute(_sql["remove"], place)
    return found is not None


def forget(transaction: Transaction, limit: int) -> None:
    """Drop those that have expired, the longest expired first."""
    transaction.connection.execute(_sql["delete_expired"], (transaction.judged_at, limit))
