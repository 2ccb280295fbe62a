"""A call as it is: the payload of a task that is not durable, any objects, neither written nor read.

What is checked is what Python checks when the function is called: that every argument has a parameter, and
every parameter without a default an argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tidewheel.carried import Carried
from tidewheel.errors import ConfigurationError, InvalidPayload
from tidewheel.model import BodyFormat
from tidewheel.shapes import Arguments
from tidewheel.signature import Handler


class CallSignature(Handler):
    """How one task's arguments are checked, carried, and handed to its function."""

    format = BodyFormat.JSON

    def __init__(self, fn: Callable[..., Any], task: str) -> None:
        super().__init__(fn, task, types_needed=False)
        own = [parameter for parameter in self.parameters if parameter.name != self.context]
        kinds = {parameter.name: parameter.kind for parameter in own}
        variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        self._signature = inspect.Signature(own)
        self._named = tuple(name for name, kind in kinds.items() if kind not in variable)
        self._by_position = [
            name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_ONLY
        ]
        self._extra = next(
            (name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None
        )
        self._spreads = inspect.Parameter.VAR_POSITIONAL in kinds.values()
        if self._spreads and not self.context_fits_anywhere:
            raise ConfigurationError(
                f"task {task!r} takes *args after {self.context}; make the context its first parameter"
            )

    # -- the way in -------------------------------------------------------------------------------------

    def encode_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> bytes:  # noqa: ARG002
        """The call itself, carried, or ``InvalidPayload``. No limit: nothing is written."""
        return Carried.of(self._bind(args, kwargs))

    def encode_payload(self, value: Any, limit: int) -> bytes:  # noqa: ARG002
        """A payload given whole: a mapping names the arguments, anything else is the only one."""
        if value is None:
            return Carried.of(self._bind((), {}))
        if isinstance(value, Mapping):
            return Carried.of(self._bind((), dict(value)))
        return Carried.of(self._bind((value,), {}))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The arguments, by name where they can be, so that a context fits in between."""
        if self.context in kwargs:
            raise InvalidPayload(
                f"payload does not fit task {self.task!r}: {self.context} is the handler's context; "
                "a payload cannot set it"
            )
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidPayload(
                f"payload does not fit task {self.task!r}: {error}; "
                f"its parameters are {', '.join(self._named) or 'none'}"
            ) from None
        if self._spreads:
            return bound.args, bound.kwargs
        named = dict(bound.arguments)
        if self._extra is not None:
            named.update(named.pop(self._extra, {}))
        return tuple(named.pop(name) for name in self._by_position if name in named), named

    # -- the way out ------------------------------------------------------------------------------------

    def decode(self, body: bytes, body_format: BodyFormat) -> Arguments:  # noqa: ARG002
        """The handler's arguments: the objects the caller gave."""
        if not isinstance(body, Carried):
            raise InvalidPayload(
                f"task {self.task!r} is not durable: it takes objects of its own process, no stored payload"
            )
        args, kwargs = body.take()
        return args, dict(kwargs)  # the context is added to it, and the next attempt has another one

    def decode_result(self, body: bytes | None) -> Any:  # noqa: ARG002
        """Nothing: a result that was not written cannot be read. The lane has the object."""
        return None

    def result_schema(self) -> dict[str, Any] | None:
        """There is none: results are objects, too."""
        return None

    def json_schema(self, prefix: str = "#/$defs/") -> dict[str, Any]:  # noqa: ARG002
        """There is none."""
        raise ConfigurationError(
            f"task {self.task!r} is not durable; it takes Python objects, which no JSON Schema describes"
        )
