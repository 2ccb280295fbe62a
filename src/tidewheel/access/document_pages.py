"""Documents of a kind, newest first, a page at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidewheel.core.model import Document
from tidewheel.core.names import shorten
from tidewheel.core.validation import check_integer
from tidewheel.errors import InvalidInput

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 200
"""Larger limits are cut to this."""


async def list_documents(
    app: Tidewheel, kind: str, *, limit: int = DEFAULT_PAGE_SIZE, cursor: str | None = None
) -> tuple[list[Document], str | None]:
    """The documents, and the cursor of the next page; None at the end."""
    limit = min(check_integer("limit", limit, 1, 2**31 - 1), MAX_PAGE_SIZE)
    before = None if cursor is None else _read(cursor)
    found = await app.store.documents(kind, limit=limit + 1, before=before)
    if len(found) <= limit:
        return found, None
    return found[:limit], cursor_after(found[limit - 1])


def cursor_after(document: Document) -> str:
    """The cursor of what follows this one."""
    return f"{document.created_at}.{document.id}"


def _read(cursor: str) -> tuple[int, str]:
    moment, _, document_id = cursor.partition(".")
    if not (moment.isascii() and moment.isdigit() and len(moment) < 19 and 0 < len(document_id) <= 200):
        raise InvalidInput(f"cursor is {shorten(cursor)}; give back the one of the page before, as it was")
    return int(moment), document_id
