"""What may be a document, the same on every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidewheel.core.model import NewDocument
from tidewheel.core.names import check_text, shorten
from tidewheel.errors import InvalidInput, LimitExceeded
from tidewheel.stores.bounds import MAX_BATCH, MAX_DOCUMENT_BYTES, MAX_DOCUMENT_NAME, check_batch

AFTER_NEWEST: Final = (2**63 - 1, "")
"""Where a list begins: above every document."""


def is_valid_document_id(kind: str, document_id: str) -> bool:
    """Whether there could be such a document. Who asks for others may ask anything; databases could not."""
    try:
        check_text("kind of a document", kind, MAX_DOCUMENT_NAME)
        check_text("id of a document", document_id, MAX_DOCUMENT_NAME)
    except InvalidInput:
        return False
    return True


def check_documents(documents: Sequence[NewDocument]) -> None:
    """Refuse what not every store could keep, before anything is written."""
    check_batch("documents", len(documents), MAX_BATCH)
    seen = set()
    for document in documents:
        check_text("kind of a document", document.kind, MAX_DOCUMENT_NAME)
        check_text("id of a document", document.id, MAX_DOCUMENT_NAME)
        if len(document.body) > MAX_DOCUMENT_BYTES:
            raise LimitExceeded(
                f"document {shorten(document.id)} of kind {document.kind} has {len(document.body):,} bytes; "
                f"the limit is {MAX_DOCUMENT_BYTES:,}"
            )
        if (document.kind, document.id) in seen:
            raise InvalidInput(
                f"document {shorten(document.id)} of kind {document.kind} is written twice in one call; "
                "which of them is to stay?"
            )
        seen.add((document.kind, document.id))
