"""What a task calls when its jobs end: functions beside the handler, checked when the task is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from tidewheel.core.model import JobError
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, InvalidInput
from tidewheel.tasks.annotations import hint_of, parameters_of
from tidewheel.tasks.context import Context
from tidewheel.tasks.signature import is_async, is_context

SuccessCallback = (
    Callable[[Context, Any], object]
    | Callable[[Any], object]
    | Callable[[Context], object]
    | Callable[[], object]
)
"""Called with the context and the result, as far as it takes them; may be async."""
ErrorCallback = (
    Callable[[Context, JobError], object]
    | Callable[[JobError], object]
    | Callable[[Context], object]
    | Callable[[], object]
)
"""Called with the context and the error, as far as it takes them; may be async."""

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Callback:
    """One function, and which of the context and the value (a result or an error) it takes."""

    def __init__(self, option: str, fn: Any) -> None:
        self.option = option
        self.fn = fn
        if not callable(fn):
            raise InvalidInput(f"{option} is {shorten(fn)}; give a function")
        try:
            self.is_async = is_async(fn, option)
            parameters = parameters_of(fn)
        except (ConfigurationError, TypeError, ValueError) as error:
            raise InvalidInput(f"{option} is {shorten(fn)}, which cannot be called: {error}") from None
        given = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
        required = [parameter.name for parameter in given if parameter.default is parameter.empty]
        required += [
            parameter.name
            for parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
        ]
        value = "result" if option == "on_success" else "error"
        if len(required) > 2 or len(required) > len(given):
            raise InvalidInput(
                f"{option} wants {', '.join(required)}; a callback takes at most the context and the {value}"
            )
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters) and len(given) < 2:
            self._takes = 2
        else:
            self._takes = min(2, len(given))
        wants_context = [is_context(hint_of(fn, parameter.name)) for parameter in given[:2]]
        self._context_last = self._takes == 2 and wants_context[1:] == [True]
        self._context_only = self._takes == 1 and wants_context == [True]

    def __call__(self, context: Context, value: object) -> Any:
        """Call the function: the coroutine of an async one, or whatever a plain one returns."""
        if self._takes == 2:
            return self.fn(value, context) if self._context_last else self.fn(context, value)
        if self._takes == 1:
            return self.fn(context if self._context_only else value)
        return self.fn()


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of one task."""

    on_success: Callback | None = None
    on_failure: Callback | None = None
    fallback: Callback | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self | None:
        """Those among a task's checked options; None when it has none, so that nobody looks further."""
        found = {name: options[name] for name in CALLBACK_OPTIONS if name in options}
        return cls(**found) if found else None


CALLBACK_OPTIONS: Final = ("on_success", "on_failure", "fallback")
