"""The documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tidewheel.core.model import Document, NewDocument
from tidewheel.stores.documents import AFTER_NEWEST
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.write_transaction import WriteTransaction

_sql = SqlFile("tidewheel.stores.sqlite", "sql/documents.sql")


def write_documents(transaction: WriteTransaction, documents: Sequence[NewDocument]) -> list[int | None]:
    return [_write_document(transaction, document) for document in documents]


def _write_document(transaction: WriteTransaction, new: NewDocument) -> int | None:
    # Looked at first: this transaction is the only one that writes.
    place = {"kind": new.kind, "id": new.id, "now": transaction.now}
    row = transaction.connection.execute(_sql["version"], place).fetchone()
    version = 0 if row is None else int(row[0])
    if new.expected_version not in (None, version):
        return None
    values = place | {"body": new.body, "expires_at": new.expires_at}
    transaction.connection.execute(_sql["write"], values)
    return version + 1


def read(connection: sqlite3.Connection, kind: str, document_id: str, now: int) -> Document | None:
    row = connection.execute(_sql["read"], {"kind": kind, "id": document_id, "now": now}).fetchone()
    return None if row is None else Document(*row)


def list_documents(
    connection: sqlite3.Connection, kind: str, limit: int, before: tuple[int, str] | None, now: int
) -> list[Document]:
    created_at, document_id = before or AFTER_NEWEST
    values = {"kind": kind, "created_at": created_at, "id": document_id, "limit": limit, "now": now}
    return [Document(*row) for row in connection.execute(_sql["newest"], values)]


def remove(transaction: WriteTransaction, place: tuple[str, str]) -> bool:
    found = read(transaction.connection, *place, transaction.now)
    transaction.connection.execute(_sql["remove"], place)
    return found is not None


def remove_expired(transaction: WriteTransaction, limit: int) -> None:
    """Drop those that have expired, the longest expired first."""
    transaction.connection.execute(_sql["delete_expired"], (transaction.trusted_now, limit))
