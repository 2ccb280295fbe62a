"""Read a task's parameters once, at registration, and map calls to payloads and back.

:class:`Signature` serves durable tasks: it checks a call, encodes it as a body, and decodes the body into the
handler's arguments. :class:`InProcessSignature` serves tasks that are not durable. Their arguments are any
objects of this process, neither written nor read. It checks only what Python checks when the function is
called: every argument has a parameter, and every parameter without a default has an argument.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidewheel.core import payload
from tidewheel.core.model import BodyFormat
from tidewheel.core.payload import ObjectBody
from tidewheel.errors import ConfigurationError, InvalidPayload
from tidewheel.tasks.annotations import UnresolvedContext, called_function, hints_of, parameters_of
from tidewheel.tasks.context import Context
from tidewheel.tasks.payload_types import (
    NO_DEFAULT,
    Arguments,
    BytesPayload,
    FieldsPayload,
    ModelPayload,
    ObjectPayload,
    PayloadType,
    ReturnType,
    is_model,
    nested_types,
    plain_values,
)


class HandlerParameters:
    """A task's function, its parameters, and which of them is the context."""

    context_type: type = Context
    unresolved_context: type = UnresolvedContext

    def __init__(self, fn: Callable[..., Any], task: str, *, types_needed: bool = True) -> None:
        self.task = task
        self._fn = fn
        self.is_async = is_async(fn, f"task {task!r}")
        self.hints = hints_of(fn, task, needed=types_needed)
        self.parameters = parameters_of(fn)
        self.context = self._find_context()
        self._context_first = bool(
            self.parameters
            and self.parameters[0].name == self.context
            and self.parameters[0].kind is not inspect.Parameter.KEYWORD_ONLY
        )

    def _find_context(self) -> str | None:
        kind, unresolved = self.context_type, self.unresolved_context
        found = [
            parameter
            for parameter in self.parameters
            if is_context(self.hints.get(parameter.name), kind, unresolved)
        ]
        if not found:
            return None
        if len(found) > 1:
            raise ConfigurationError(
                f"task {self.task!r} has {len(found)} parameters of type {kind.__name__} "
                f"({', '.join(parameter.name for parameter in found)}); a handler gets one"
            )
        if found[0].kind is inspect.Parameter.POSITIONAL_ONLY and found[0] is not self.parameters[0]:
            raise ConfigurationError(
                f"task {self.task!r}: the positional-only context {found[0].name} must be the first parameter"
            )
        return found[0].name

    @property
    def context_fits_anywhere(self) -> bool:
        """Whether any number of arguments by position leaves the context its place."""
        kinds = {parameter.name: parameter.kind for parameter in self.parameters}
        return (
            self.context is None
            or self._context_first
            or kinds[self.context] is inspect.Parameter.KEYWORD_ONLY
        )

    def invoke(self, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the handler; a coroutine for an async one."""
        if self.context is None:
            return self._fn(*args, **kwargs)
        if self._context_first:
            return self._fn(context, *args, **kwargs)
        kwargs[self.context] = context
        return self._fn(*args, **kwargs)


class Signature(HandlerParameters):
    """How one task's payload is checked, written, read, and handed to its function."""

    def __init__(self, fn: Callable[..., Any], task: str) -> None:
        super().__init__(fn, task)
        self._payload = self._shape()
        self.format = self._payload.format
        self._returns = self._return_type()

    def _shape(self) -> PayloadType:
        return payload_type_of(self.task, self.parameters, self.hints, self.context)

    def _return_type(self) -> ReturnType:
        return ReturnType(self.hints.get("return", Any))

    # -- the way in -------------------------------------------------------------------------------------

    def encode_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> bytes:
        """The body of a typed call, or ``InvalidPayload``."""
        return self._payload.encode(self._payload.from_call(args, kwargs), limit)

    def encode_payload(self, value: Any, limit: int) -> bytes:
        """The body of a payload given whole, by name or in bulk; None is an empty one."""
        if self.format is BodyFormat.BYTES:
            return self._payload.encode(b"" if value is None else value, limit)
        if value is None:
            value = {}
        elif isinstance(value, bytes | bytearray | memoryview):
            value = _parsed(bytes(value))  # a task that takes no bytes reads them as JSON
        return self._payload.encode(value, limit)

    # -- the way out ------------------------------------------------------------------------------------

    def decode(self, body: bytes, body_format: BodyFormat) -> Arguments:  # noqa: ARG002
        """The handler's arguments, or ``InvalidPayload``. The task decides how a body is read."""
        return self._payload.decode(body)

    def normalize(self, body: bytes) -> Any:
        """Return a checked JSON body as plain values: what the handler reads, defaults included."""
        args, kwargs = self._payload.decode(body)
        read = plain_values(self._payload.from_call(args, kwargs))
        if isinstance(self._payload, FieldsPayload):
            return {**plain_values(self._payload.defaults), **read}
        return read

    def decode_result(self, body: bytes | None) -> Any:
        """A stored result as the type the handler is annotated to return."""
        return None if body is None else self._returns.read(body)

    def result_schema(self) -> dict[str, Any] | None:
        """JSON Schema of what the handler is annotated to return; None where that is nothing or unknown."""
        return self._returns.schema()

    def json_schema(self, prefix: str = "#/$defs/") -> dict[str, Any]:
        """JSON Schema of the payload, complete in itself; references start with ``prefix``."""
        schema = {**self._payload.schema(prefix), "title": self.task}
        if doc := inspect.getdoc(self._fn):
            schema.setdefault("description", doc.partition("\n\n")[0].replace("\n", " "))
        return schema


def _parsed(body: bytes) -> Any:
    value = payload.parse(body)
    try:
        payload.refuse_duplicate_members(body)
    except payload.DuplicateMember as error:
        raise InvalidPayload(f"payload: {error}") from None
    return value


def is_async(fn: Callable[..., Any], what: str) -> bool:
    """Whether calling it gives a coroutine; generators are refused."""
    # What is called counts, not what it wraps: an async wrapper around a sync function is async.
    target = called_function(fn)
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise ConfigurationError(f"{what} is a generator; a handler returns its result, it does not yield")
    return inspect.iscoroutinefunction(target)


def is_context(hint: Any, kind: type = Context, unresolved: type = UnresolvedContext) -> bool:
    """Whether a parameter of this type wants the context."""
    if hint is unresolved:
        return True
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return any(is_context(choice, kind, unresolved) for choice in typing.get_args(hint))
    hint = typing.get_origin(hint) or hint
    return isinstance(hint, type) and issubclass(hint, kind)


def payload_type_of(
    task: str, parameters: list[inspect.Parameter], hints: typing.Mapping[str, Any], context: str | None
) -> PayloadType:
    """How a payload looks that fills these parameters."""
    extra: Any = NO_DEFAULT
    own: list[inspect.Parameter] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise ConfigurationError(
                f"task {task!r} takes *{parameter.name}; payload fields have names, "
                "use named parameters or **kwargs"
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = hints.get(parameter.name, Any)
        elif parameter.name != context:
            own.append(parameter)
    kinds = {parameter.name: _field_type(parameter, hints) for parameter in own}
    try:
        if len(own) == 1 and extra is NO_DEFAULT:
            (parameter,) = own
            kind = kinds[parameter.name]
            if kind is bytes:
                return BytesPayload(task, parameter)
            if is_model(kind):
                return ModelPayload(task, parameter, kind)
            if _is_record(kind):
                _refuse_foreign(task, parameter.name, kind)
                return ObjectPayload(task, parameter, kind)
        for name, kind in kinds.items():
            _refuse_foreign(task, name, kind)
        if extra is not NO_DEFAULT:
            _refuse_foreign(task, "**kwargs", extra)
        return FieldsPayload(task, own, kinds, extra=extra, reserved=context)
    except TypeError as error:  # msgspec's word for a type, or a union of types, it cannot tell apart
        raise ConfigurationError(f"task {task!r} has parameters that no payload can fill: {error}") from None


def _field_type(parameter: inspect.Parameter, hints: typing.Mapping[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    # ``x: str = None`` is common and means an optional one.
    return hint | None if parameter.default is None and hint is not Any else hint


def _is_record(kind: Any) -> bool:
    kind = typing.get_origin(kind) or kind
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def _refuse_foreign(task: str, parameter: str, kind: Any) -> None:
    """A type that JSON cannot carry is an error when the task is registered, not when its first job runs."""
    for part in nested_types(kind):
        if isinstance(part, msgspec.inspect.CustomType) and not is_model(part.cls):
            raise ConfigurationError(
                f"task {task!r}: parameter {parameter} uses {part.cls.__name__}, "
                "which JSON cannot carry; use plain types, dataclasses, Structs or pydantic models"
            )


class InProcessSignature(HandlerParameters):
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
        return ObjectBody.wrap(self._bind(args, kwargs))

    def encode_payload(self, value: Any, limit: int) -> bytes:  # noqa: ARG002
        """A payload given whole: a mapping names the arguments, anything else is the only one."""
        if value is None:
            return ObjectBody.wrap(self._bind((), {}))
        if isinstance(value, Mapping):
            return ObjectBody.wrap(self._bind((), dict(value)))
        return ObjectBody.wrap(self._bind((value,), {}))

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
        if not isinstance(body, ObjectBody):
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
