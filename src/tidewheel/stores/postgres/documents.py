"""The documents."""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.core.model import Document, NewDocument
from tidewheel.stores.documents import AFTER_NEWEST
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/documents.sql")


async def write_documents(database: Database, documents: Sequence[NewDocument]) -> list[int | None]:
    columns = [
        [document.kind for document in documents],
        [document.id for document in documents],
        [document.body for document in documents],
        [document.expires_at for document in documents],
        [document.expected_version for document in documents],
    ]
    return [row[0] for row in await database.fetch(_sql["write"], database.now, *columns)]


async def read(database: Database, kind: str, document_id: str) -> Document | None:
    row = await database.fetchrow(_sql["read"], kind, document_id, database.now)
    return None if row is None else Document(*row)


async def list_documents(
    database: Database, kind: str, limit: int, before: tuple[int, str] | None
) -> list[Document]:
    rows = await database.fetch(_sql["newest"], kind, *(before or AFTER_NEWEST), database.now, limit)
    return [Document(*row) for row in rows]


async def remove(database: Database, kind: str, document_id: str) -> bool:
    return bool(await database.fetchval(_sql["remove"], kind, document_id, database.now))


async def remove_expired(database: Database, limit: int, now: int) -> None:
    """Drop those that have expired, the longest expired first."""
    await database.fetch(_sql["delete_expired"], now, limit)
