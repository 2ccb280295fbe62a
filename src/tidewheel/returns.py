"""What a function returns: stored as JSON, and read back as the type it is annotated with."""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from tidewheel import payload
from tidewheel.annotations import return_hint_of
from tidewheel.shapes import decode_foreign, is_model, model_reader, schema_of


class ReturnType:
    """The annotation of one function's result.

    Python does not hold a function to its annotation, and an older version may have had another one. The
    work is done either way, so a result of another type is given as plain JSON rather than withheld.
    """

    __slots__ = ("_hint", "_reader")

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        self._reader: Callable[[bytes], Any] | None = None

    @classmethod
    def of(cls, fn: Callable[..., Any]) -> ReturnType:
        """What ``fn`` returns, or what comes of awaiting that."""
        hint = return_hint_of(fn)
        origin = typing.get_origin(hint)
        if isinstance(origin, type) and issubclass(origin, Awaitable):
            hint = typing.get_args(hint)[-1]
        return cls(hint)

    def read(self, body: bytes) -> Any:
        """A stored result as that type."""
        if self._reader is None:
            self._reader = _reader(self._hint)
        try:
            return self._reader(body)
        except ValueError:
            return payload.decode(body)

    def schema(self) -> dict[str, Any] | None:
        """JSON Schema of it; None where there is none, or where JSON Schema has no words for it."""
        if self._hint is Any or self._hint is None or self._hint is types.NoneType:
            return None
        try:
            return schema_of(self._hint, "#/$defs/")
        except (TypeError, ValueError, RuntimeError):
            # What msgspec and pydantic say to a type that no schema describes. It only is for people to read.
            return None


def _reader(hint: Any) -> Callable[[bytes], Any]:
    if hint is Any or hint is None or hint is types.NoneType:
        return payload.decode
    if is_model(hint):
        return model_reader(hint)
    try:
        return msgspec.json.Decoder(hint, dec_hook=decode_foreign).decode
    except TypeError:  # a return type msgspec cannot read; the result stays plain
        return payload.decode
