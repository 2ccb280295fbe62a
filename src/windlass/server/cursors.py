"""Where a list goes on, as a text that tells nothing.

A cursor is a job's number, and numbers are store-wide: they would tell a tenant how much others enqueue.
So they go out scrambled under a secret, with a seal: a cursor somebody made up is refused. The secret is in
the store, for all servers on it. Reading the store gives away the numbers, and nothing else may rest on it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

from windlass.app import Windlass
from windlass.errors import StoreError
from windlass.model import NewDocument
from windlass.server.problems import refused

SECRET_KIND: Final = "secret"  # noqa: S105 - the kind of a document
SECRET_ID: Final = "cursors"  # noqa: S105 - its id
_SEAL_BYTES: Final = 12
_NUMBER_BYTES: Final = 8


async def shared_secret(app: Windlass) -> bytes:
    """Return the secret for cursors of the app's store. The first server makes it."""
    store = app.store
    secret = secrets.token_urlsafe(32).encode()
    await store.write_documents([NewDocument(SECRET_KIND, SECRET_ID, secret, None, 0)])
    document = await store.document(SECRET_KIND, SECRET_ID)
    if document is None:
        raise StoreError("the secret for cursors was removed while it was made; try again")
    return document.body


class Cursors:
    """Cursors of every server that knows the same secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, number: int) -> str:
        """A number as a text for clients. The scramble is keyed by the seal: both fit, or neither."""
        plain = number.to_bytes(_NUMBER_BYTES, "big")
        seal = self._digest(b"seal", plain)[:_SEAL_BYTES]
        return base64.urlsafe_b64encode(seal + self._scramble(seal, plain)).decode("ascii").rstrip("=")

    def open(self, text: str) -> int:
        """The number; a text that none of these servers gave out is refused."""
        try:
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            whole = b""
        seal, hidden = whole[:_SEAL_BYTES], whole[_SEAL_BYTES:]
        if len(hidden) == _NUMBER_BYTES:
            plain = self._scramble(seal, hidden)
            number = int.from_bytes(plain, "big")
            # The whole text, not the seal alone: base64 has several texts for the same bytes.
            if text.isascii() and hmac.compare_digest(self.seal(number), text):
                return number
        raise refused("cursor is none that this server gave; start again without one", parameter="cursor")

    def _scramble(self, seal: bytes, number: bytes) -> bytes:
        mask = self._digest(b"mask", seal)[:_NUMBER_BYTES]
        return bytes(a ^ b for a, b in zip(number, mask, strict=True))

    def _digest(self, purpose: bytes, data: bytes) -> bytes:
        return hmac.digest(self._secret, purpose + data, hashlib.sha256)
