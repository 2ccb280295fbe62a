"""The documents of a ``JobTable``."""

from __future__ import annotations

from tidewheel.core.model import Document, NewDocument
from tidewheel.stores.memory.job_table import JobTable


def version_matches(table: JobTable, new: NewDocument, now: int) -> bool:
    """Whether the version that is there is the one to write over."""
    found = read(table, new.kind, new.id, now)
    return new.expected_version in (None, 0 if found is None else found.version)


def write(table: JobTable, new: NewDocument, now: int) -> int | None:
    if not version_matches(table, new, now):
        return None
    found = read(table, new.kind, new.id, now)
    version = 0 if found is None else found.version
    created_at = now if found is None else found.created_at
    table.documents[new.kind, new.id] = Document(
        new.kind, new.id, new.body, created_at, now, new.expires_at, version + 1
    )
    return version + 1


def read(table: JobTable, kind: str, document_id: str, now: int) -> Document | None:
    found = table.documents.get((kind, document_id))
    return None if found is None or _expired(found, now) else found


def list_documents(
    table: JobTable, kind: str, limit: int, before: tuple[int, str] | None, now: int
) -> list[Document]:
    found = [
        document
        for document in table.documents.values()
        if document.kind == kind
        and not _expired(document, now)
        and (before is None or (document.created_at, document.id) < before)
    ]
    return sorted(found, key=lambda document: (document.created_at, document.id), reverse=True)[:limit]


def remove(table: JobTable, kind: str, document_id: str, now: int) -> bool:
    found = read(table, kind, document_id, now)
    table.documents.pop((kind, document_id), None)
    return found is not None


def remove_expired(table: JobTable, limit: int, now: int) -> None:
    """Drop those that have expired, the longest expired first."""
    expired = [document for document in table.documents.values() if _expired(document, now)]
    for document in sorted(expired, key=lambda one: (one.expires_at or 0, one.kind, one.id))[:limit]:
        del table.documents[document.kind, document.id]


def _expired(document: Document, now: int) -> bool:
    return document.expires_at is not None and document.expires_at <= now
