"""The one door for bodies: what passes here means the same on every store.

Accepted is JSON that every store, driver and language reads back as it was put in: UTF-8 without NUL or lone
surrogates, finite numbers, integers of 64 bits, at most ``MAX_DEPTH`` levels, at most a configured size.

``ObjectBody`` takes an object through code that carries encoded bodies: arguments and results of tasks that
are not durable. To code that reads it as bytes it is the JSON ``null``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

import msgspec

from tidewheel.core.model import BodyFormat
from tidewheel.core.names import shorten
from tidewheel.errors import InvalidPayload, LimitExceeded

MAX_DEPTH: Final = 64
MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1


class DuplicateMember(ValueError):
    """An object of a JSON text has two members of one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"an object has the member {shorten(name)} twice; give it once")


_quick_encode = msgspec.json.Encoder().encode
_DIGITS_AND_BRACKETS: Final = bytes.maketrans(b"123456789[", b"000000000{")
"""Every digit as a zero, every bracket as a brace."""
_LONG_NUMBER: Final = b"0" * 19
_suspicious = re.compile(r"\d{19}|\\u0000")
_dumps = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
).encode
_dumps_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False, sort_keys=True
).encode


def encode(value: Any, *, limit: int, what: str = "payload", limit_name: str = "max_payload_bytes") -> bytes:
    """``value`` as storable JSON, or a clear error. Dataclasses, datetimes, UUIDs, enums and the like are
    written the way msgspec writes them; pydantic models as their JSON form.
    """
    plain = _to_plain(value, what)
    try:
        body = _quick_encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError):
        body = b""
    # Ten times faster than the standard library, but laxer: it writes null for NaN, and knows no range for
    # integers, no depth and no NUL. What may hold one of these is written again, strictly. ``find``, because
    # ``in`` first takes what it looks for in bytes for a number, and makes an error of that.
    outline = body.translate(_DIGITS_AND_BRACKETS)
    if (
        not body
        or body.find(b"null") >= 0
        or body.find(b"\\u0000") >= 0
        or outline.find(_LONG_NUMBER) >= 0
        or outline.count(b"{") > MAX_DEPTH
    ):
        body = _to_text(plain, what, _dumps).encode()
    return _check_size(body, limit, what, limit_name)


def encode_canonical(value: Any, *, what: str = "payload") -> bytes:
    """The same JSON whatever order the keys were given in: what two equal payloads have in common."""
    return _to_text(_to_plain(value, what), what, _dumps_sorted).encode()


def canonical_hash(body: bytes) -> str:
    """A key for a stored JSON body: equal payloads, equal hash."""
    return hashlib.sha256(encode_canonical(decode(body))).hexdigest()


def merge_patch(value: Any, patch: Any, depth: int = 0) -> Any:
    """``value`` as a JSON merge patch (RFC 7396) changes it; neither is changed itself."""
    if not isinstance(patch, dict):
        return patch
    if depth > MAX_DEPTH:
        raise InvalidPayload(f"the patch is nested deeper than {MAX_DEPTH} levels, which no payload may be")
    merged = dict(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), item, depth + 1)
    return merged


def pointer_to(steps: Iterable[object]) -> str:
    """A JSON pointer (RFC 6901) along these names and numbers; empty for the whole."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def check_bytes(value: bytes, *, limit: int) -> bytes:
    """A raw body: any bytes, within the size limit."""
    return _check_size(bytes(value), limit, "payload", "max_payload_bytes")


def decode(body: bytes) -> Any:
    """A stored JSON body as plain Python."""
    return msgspec.json.decode(body)


def parse(text: str | bytes, *, what: str = "payload") -> Any:
    """JSON written by somebody else (a command line, a request) as plain Python, or a clear error."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None
    except RecursionError:
        raise InvalidPayload(_too_deep(what)) from None


def object_without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object, as an ``object_pairs_hook``; ``DuplicateMember`` where a name comes twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        counted = Counter(name for name, _ in pairs)
        raise DuplicateMember(counted.most_common(1)[0][0])
    return members


def refuse_duplicate_members(body: bytes) -> None:
    """Raise ``DuplicateMember`` if an object in a JSON text has a member twice: decoders keep the last one.

    Such a text comes out with fewer colons when it is decoded and written again, which is cheap to see. Only
    then, or where colons are escaped, is it read member by member. A text that is no JSON passes.
    """
    try:
        if body.find(b"\\") < 0 or body.find(b"\\u003") < 0:
            again = _quick_encode(msgspec.json.decode(body))
            if again.count(b":") == body.count(b":"):
                return
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        pass  # integers that are too large, say: the standard library reads more
    try:
        json.loads(body, object_pairs_hook=object_without_duplicates, parse_int=str)
    except DuplicateMember:
        raise
    except (ValueError, RecursionError):
        return


def _to_plain(value: Any, what: str) -> Any:
    """Dictionaries with text for keys, lists, texts, numbers, booleans and None."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_foreign)
    except RecursionError:
        raise InvalidPayload(_too_deep(what)) from None
    except (TypeError, ValueError) as error:
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}") from None


def _to_text(plain: Any, what: str, dumps: Callable[[Any], str]) -> str:
    try:
        text = dumps(plain)
        text.encode()
    except RecursionError:
        raise InvalidPayload(_too_deep(what)) from None
    except UnicodeEncodeError as error:
        bad = error.object[error.start]
        raise InvalidPayload(
            f"{what} holds the lone surrogate {bad!r}, which UTF-8 cannot carry; "
            "decode the text properly or send it as base64"
        ) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, ValueError) and "JSON compliant" in str(error):
            raise InvalidPayload(
                f"{what} holds a number that is not finite (NaN or infinity); JSON has none, use null or text"
            ) from None
        raise InvalidPayload(f"{what} cannot be written as JSON: {error}") from None
    # Cheap tests on the text first; the exact walk only for the rare payload that looks suspicious.
    if text.count("[") + text.count("{") > MAX_DEPTH or _suspicious.search(text):
        _check_tree(json.loads(text), what)
    return text


def _check_tree(root: Any, what: str) -> None:
    """Exact checks, without recursion: a deep payload must not exhaust the stack that refuses it."""
    pending: list[tuple[Any, int]] = [(root, 1)]
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            _check_text(value, what)
        elif isinstance(value, int):
            if not MIN_INTEGER <= value <= MAX_INTEGER:
                shown = str(value) if value.bit_length() < 256 else f"about 2^{value.bit_length()}"
                raise InvalidPayload(
                    f"{what} holds the integer {shown}; the range is -2^63 to 2^63-1, send others as text"
                )
        elif isinstance(value, list | dict):
            if depth > MAX_DEPTH:
                raise InvalidPayload(_too_deep(what))
            if isinstance(value, dict):
                for key in value:
                    _check_text(key, what)
                pending.extend((item, depth + 1) for item in value.values())
            else:
                pending.extend((item, depth + 1) for item in value)


def _check_text(value: str, what: str) -> None:
    if "\x00" in value:
        raise InvalidPayload(
            f"{what} holds text with a NUL character (U+0000), which not every database can store; "
            "remove it or send the text as base64"
        )


def _encode_foreign(value: Any) -> Any:
    """Objects msgspec does not know: pydantic models, by their own rules, without importing pydantic."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _check_size(body: bytes, limit: int, what: str, limit_name: str) -> bytes:
    if len(body) > limit:
        raise LimitExceeded(f"{what} is {len(body):,} bytes; the limit is {limit:,} ({limit_name})")
    return body


def _too_deep(what: str) -> str:
    return f"{what} is nested too deep; the limit is {MAX_DEPTH} levels"


class ObjectBody(bytes):
    """A body that holds an object until somebody takes it out.

    Handed from one place to the next, never kept: what carries it may be a Struct the garbage collector does
    not look into, and an object that leads back to its own job would then never be freed.
    """

    _value: Any

    @classmethod
    def wrap(cls, value: Any) -> ObjectBody:
        """A body with this object in it."""
        carried = cls(b"null")
        carried._value = value
        return carried

    def take(self) -> Any:
        """The object, once."""
        value = self._value
        del self._value
        return value


def encode_untyped_payload(value: Any, limit: int) -> tuple[bytes, BodyFormat]:
    """A payload for a topic whose handler is not known here: JSON as given, or bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        return check_bytes(bytes(value), limit=limit), BodyFormat.BYTES
    return encode({} if value is None else value, limit=limit), BodyFormat.JSON


class UnchangedType(Enum):
    """The type of :data:`UNCHANGED`."""

    AS_IT_WAS = "as it was"


UNCHANGED: Final = UnchangedType.AS_IT_WAS
"""Instead of a payload: that of the job that is copied."""
