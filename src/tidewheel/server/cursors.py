"""Where a list goes on, as a text that tells nothing.

A cursor is a job's number, or the time and the id of something that is listed. Numbers are store-wide: they
would tell a tenant how much others enqueue. So cursors go out scrambled under a secret, with a seal over the
caller they are for: one that was made up, or given to another caller, is refused. The secret is in the store,
for all servers on it. Reading the store gives away the places, and nothing else may rest on it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from tidewheel.app import Tidewheel
from tidewheel.errors import StoreError
from tidewheel.model import NewDocument
from tidewheel.server.problems import Problem, refused

SECRET_KIND: Final = "secret"  # noqa: S105 - the kind of a document
SECRET_ID: Final = "cursors"  # noqa: S105 - its id
_SEAL_BYTES: Final = 12
_NUMBER_BYTES: Final = 8
_MAX_PLACE_BYTES: Final = 300


async def shared_secret(app: Tidewheel) -> bytes:
    """Return the secret for cursors of the app's store. The first server makes it."""
    store = app.store
    secret = secrets.token_urlsafe(32).encode()
    await store.write_documents([NewDocument(SECRET_KIND, SECRET_ID, secret, None, 0)])
    document = await store.document(SECRET_KIND, SECRET_ID)
    if document is None:
        raise StoreError("the secret for cursors was removed while it was made; try again")
    return document.body


class Cursors:
    """Cursors of every server that knows the same secret. ``holder`` says which caller one is for."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, number: int, holder: str) -> str:
        """A number as a text for clients."""
        return self._seal(b"number", number.to_bytes(_NUMBER_BYTES, "big"), holder)

    def open(self, text: str, holder: str) -> int:
        """The number; a text that none of these servers gave to this caller is refused."""
        plain = self._open(b"number", text, holder)
        if len(plain) != _NUMBER_BYTES:
            raise _unknown()
        return int.from_bytes(plain, "big")

    def seal_place(self, place: str, holder: str) -> str:
        """A place in a list of documents (``access/paging.py``) as a text for clients."""
        return self._seal(b"place", place.encode(), holder)

    def open_place(self, text: str, holder: str) -> str:
        """The place; refused as a number is."""
        return self._open(b"place", text, holder).decode()

    def _seal(self, kind: bytes, plain: bytes, holder: str) -> str:
        """The scramble is keyed by the seal: both fit, or neither."""
        said = b"\0".join((kind, holder.encode(), plain))
        seal = hmac.digest(self._secret, said, hashlib.sha256)[:_SEAL_BYTES]
        return base64.urlsafe_b64encode(seal + self._scramble(seal, plain)).decode("ascii").rstrip("=")

    def _open(self, kind: bytes, text: str, holder: str) -> bytes:
        try:
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            whole = b""
        seal, hidden = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
        if 0 < len(hidden) <= _MAX_PLACE_BYTES:
            plain = self._scramble(seal, hidden)
            # The whole text, not the seal alone: base64 has several texts for the same bytes.
            if text.isascii() and hmac.compare_digest(self._seal(kind, plain, holder), text):
                return plain
        raise _unknown()

    def _scramble(self, seal: bytes, plain: bytes) -> bytes:
        mask = hashlib.shake_256(self._secret + seal).digest(len(plain))
        return bytes(a ^ b for a, b in zip(plain, mask, strict=True))


def _unknown() -> Problem:
    return refused("cursor is none that this server gave; start again without one", parameter="cursor")
