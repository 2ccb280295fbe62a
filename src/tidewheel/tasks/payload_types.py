"""Payload shapes that follow from a handler's parameters, and the type of its result.

``FieldsPayload``: ordinary parameters, one field each. ``ObjectPayload``: one dataclass or msgspec Struct.
``ModelPayload``: one pydantic model, by its own rules and without importing it. ``BytesPayload``: raw bytes.
A JSON payload is read back with the worker's own decoder before it is accepted, so the worker can read it.
Fields left at their default are not written: the handler's own default applies when the job runs.
``ReturnType`` reads a stored JSON result as the annotated type, or as plain JSON where it does not fit.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from tidewheel.core import payload
from tidewheel.core.model import BodyFormat
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, InvalidPayload
from tidewheel.tasks.annotations import aliases_in, checks_in, return_hint_of
from tidewheel.tasks.payload_errors import describe_mismatch

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

NO_DEFAULT: Final = inspect.Parameter.empty


class PayloadType(Protocol):
    """How a payload of one task is written and read."""

    format: BodyFormat

    def from_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The payload a typed call means."""

    def encode(self, value: Any, limit: int) -> bytes:
        """A payload as a body that :meth:`decode` accepts."""

    def decode(self, body: bytes) -> Arguments:
        """The arguments for the handler, the context aside."""

    def schema(self, prefix: str) -> dict[str, Any]:
        """JSON Schema; references start with ``prefix``."""


class FieldsPayload:
    """An object with one field for each parameter."""

    format = BodyFormat.JSON

    def __init__(
        self,
        task: str,
        parameters: list[inspect.Parameter],
        types: Mapping[str, Any],
        *,
        extra: Any = NO_DEFAULT,
        reserved: str | None = None,
    ) -> None:
        self._task = task
        self._names = tuple(parameter.name for parameter in parameters)
        self._positional = tuple(
            parameter.name for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY
        )
        self._positional_only = tuple(
            parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY
        )
        self.defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.default is not NO_DEFAULT
        }
        self._extra = extra  # the type of **kwargs, EMPTY when the handler has none
        self._reserved = reserved  # the context's name, which a payload may not fill
        fields = [
            (name, types[name], msgspec.UNSET) if name in self.defaults else (name, types[name])
            for name in self._names
        ]
        self.type = msgspec.defstruct(
            "Payload", fields, kw_only=True, forbid_unknown_fields=extra is NO_DEFAULT, module=__name__
        )
        self._read = strict_reader(self.type)
        self._aliases = _aliases(task, self._names, types)
        self._checks = [(name, check) for name in self._names for check in checks_in(types[name])]

    def from_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not args:
            return kwargs
        if len(args) > len(self._positional):
            raise InvalidPayload(
                f"payload does not fit task {self._task!r}: {len(args)} positional arguments are given, "
                f"it takes {len(self._positional)} ({', '.join(self._positional) or 'none'})"
            )
        named = dict(zip(self._positional, args, strict=False))
        for name in named:
            if name in kwargs:
                raise InvalidPayload(f"payload does not fit task {self._task!r}: {name} is given twice")
        return {**named, **kwargs}

    def encode(self, value: Any, limit: int) -> bytes:
        body = payload.encode(value, limit=limit)
        if self._aliases:
            body = self._by_own_names(body)
        self._decode(body)
        return body

    def decode(self, body: bytes) -> Arguments:
        if self._aliases:  # a job written by others, or by an older version of this task
            body = self._by_own_names(body)
        kwargs = msgspec.structs.asdict(self._decode(body))
        # Left-out fields are left out of the call as well, so the handler's own defaults apply.
        for name in self.defaults:
            if kwargs[name] is msgspec.UNSET:
                del kwargs[name]
        if self._extra is not NO_DEFAULT:
            kwargs.update(self._extras(body))
        if not self._positional_only:
            return (), kwargs
        args = [kwargs.pop(name) if name in kwargs else self.defaults[name] for name in self._positional_only]
        return tuple(args), kwargs

    def _decode(self, body: bytes) -> Any:
        try:
            values = self._read(body)
        except (ValueError, RecursionError) as error:
            raise describe_mismatch(self._task, error, body, self._names) from None
        for name, check in self._checks:
            self._apply(check, name, getattr(values, name))
        if self._extra is not NO_DEFAULT:
            self._extras(body)
        return values

    def _apply(self, check: Callable[[Any], object], name: str, value: Any) -> None:
        if value is msgspec.UNSET:
            return
        try:
            check(value)
        except ValueError as error:
            kept = f"payload does not fit task {self._task!r}: {name}: {error}"
            refusal = InvalidPayload(f"{kept} ({shorten(value)})")
            refusal.message_without_value = kept
            refusal.places = ((payload.pointer_to([name]), str(error)),)
            raise refusal from None

    def _by_own_names(self, body: bytes) -> bytes:
        """The body with each field under its parameter's own name, so that equal payloads stay equal."""
        try:
            fields = msgspec.json.decode(body)
        except (ValueError, RecursionError):
            return body  # whoever reads it next says what is wrong with it
        if not isinstance(fields, dict) or not self._aliases.keys() & fields.keys():
            return body
        renamed: dict[str, Any] = {}
        for given, value in fields.items():
            name = self._aliases.get(given) or given
            if name in renamed:
                raise InvalidPayload(
                    f"payload does not fit task {self._task!r}: {name} is given twice, once by another name; "
                    "give one of them"
                )
            renamed[name] = value
        return msgspec.json.encode(renamed)

    def _extras(self, body: bytes) -> dict[str, Any]:
        extras = {name: value for name, value in msgspec.json.decode(body).items() if name not in self._names}
        if self._reserved in extras:
            raise InvalidPayload(
                f"payload does not fit task {self._task!r}: {self._reserved} is the handler's context; "
                "a payload cannot set it"
            )
        if self._extra is Any:
            return extras
        for name, value in extras.items():
            try:
                extras[name] = msgspec.convert(value, self._extra, str_keys=True, dec_hook=decode_foreign)
                refuse_unknown_fields(value, extras[name])
            except ValueError as error:
                raise describe_mismatch(self._task, error, body, self._names, inside=name) from None
        return extras

    def schema(self, prefix: str) -> dict[str, Any]:
        schema = schema_of(self.type, prefix)
        for name, default in self.defaults.items():
            try:
                value = payload.decode(payload.encode(default, limit=1_000_000))
            except ValueError:
                continue  # a default that is no JSON (a sentinel, say) cannot be shown, only used
            schema["properties"][name]["default"] = value
        return schema


class ObjectPayload:
    """One parameter that is the payload."""

    format = BodyFormat.JSON

    def __init__(self, task: str, parameter: inspect.Parameter, type_: Any) -> None:
        self._task = task
        self._parameter = parameter
        self._by_position = parameter.kind is parameter.POSITIONAL_ONLY
        self._fields = _field_names(type_)
        self.type = type_
        self._read = self._reader(type_)

    def _reader(self, type_: Any) -> Callable[[bytes], Any]:
        return strict_reader(type_)

    def from_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return single_argument(self._task, self._parameter, args, kwargs)

    def encode(self, value: Any, limit: int) -> bytes:
        body = payload.encode(value, limit=limit)
        self._decode(body)
        return body

    def decode(self, body: bytes) -> Arguments:
        value = self._decode(body)
        return ((value,), {}) if self._by_position else ((), {self._parameter.name: value})

    def _decode(self, body: bytes) -> Any:
        try:
            return self._read(body)
        except (ValueError, RecursionError) as error:
            raise describe_mismatch(self._task, error, body, self._fields) from None

    def schema(self, prefix: str) -> dict[str, Any]:
        return schema_of(self.type, prefix)


class ModelPayload(ObjectPayload):
    """One parameter that is a pydantic model."""

    def _reader(self, type_: Any) -> Callable[[bytes], Any]:
        return model_reader(type_)

    def schema(self, prefix: str) -> dict[str, Any]:
        schema: dict[str, Any] = self.type.model_json_schema(ref_template=prefix + "{model}")
        return schema


class BytesPayload:
    """One raw parameter."""

    format = BodyFormat.BYTES

    def __init__(self, task: str, parameter: inspect.Parameter) -> None:
        self._task = task
        self._parameter = parameter

    def from_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return single_argument(self._task, self._parameter, args, kwargs)

    def encode(self, value: Any, limit: int) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise InvalidPayload(
                f"payload does not fit task {self._task!r}: it takes bytes, got {type(value).__name__} "
                f"({shorten(value)})"
            )
        return payload.check_bytes(bytes(value), limit=limit)

    def decode(self, body: bytes) -> Arguments:
        by_position = self._parameter.kind is self._parameter.POSITIONAL_ONLY
        return ((body,), {}) if by_position else ((), {self._parameter.name: body})

    def schema(self, prefix: str) -> dict[str, Any]:  # noqa: ARG002 - nothing to refer to
        return {"type": "string", "contentEncoding": "base64"}


def single_argument(
    task: str, parameter: inspect.Parameter, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The one argument of a call whose single parameter is the payload."""
    given = (*args, *kwargs.values())
    if len(given) == 1 and (args or parameter.name in kwargs):
        return given[0]
    if not given and parameter.default is not NO_DEFAULT:
        return parameter.default
    raise InvalidPayload(
        f"payload does not fit task {task!r}: it takes exactly one argument, {parameter.name}; "
        f"given are {len(args)} by position and {', '.join(kwargs) or 'none'} by name"
    )


def is_model(type_: Any) -> bool:
    """Whether a type is a pydantic model, by what it can do."""
    return isinstance(type_, type) and all(
        callable(getattr(type_, name, None)) for name in ("model_validate", "model_json_schema", "model_dump")
    )


def model_reader(type_: Any) -> Callable[[bytes], Any]:
    """How a model reads JSON, by its own JSON rules: in a strict model a date is text there."""
    reader: Callable[[bytes], Any] | None = getattr(type_, "model_validate_json", None)
    return reader or (lambda body: type_.model_validate(msgspec.json.decode(body)))


def strict_reader(type_: Any) -> Callable[[bytes], Any]:
    """Return a decoder that also refuses unknown fields of dataclasses and TypedDicts.

    msgspec drops those silently. Structs and pydantic models say themselves what they do with unknown fields.
    """
    read = msgspec.json.Decoder(type_, dec_hook=decode_foreign).decode
    records = (msgspec.inspect.DataclassType, msgspec.inspect.TypedDictType)
    if not any(isinstance(part, records) for part in nested_types(type_)):
        return read

    def read_strictly(body: bytes) -> Any:
        value = read(body)
        refuse_unknown_fields(msgspec.json.decode(body), value)
        return value

    return read_strictly


def refuse_unknown_fields(given: Any, value: Any, path: str = "$") -> None:
    """Raise ``msgspec.ValidationError`` if ``value``, read from ``given``, has lost a field of it.

    Members of sets are not checked: their order differs from that of the JSON list.
    """
    if isinstance(given, dict):
        if dataclasses.is_dataclass(value):
            kept = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        elif isinstance(value, msgspec.Struct):
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            kept = {name: getattr(value, field) for name, field in names}
            given = {name: item for name, item in given.items() if name in kept}
        elif isinstance(value, dict):
            # Keys may have become numbers or dates; only a TypedDict drops some, and its keys stay texts.
            kept = value if len(value) < len(given) else dict(zip(given, value.values(), strict=True))
        else:
            return
        for name, item in given.items():
            if name not in kept:
                raise msgspec.ValidationError(f"Object contains unknown field `{name}` - at `{path}`")
            refuse_unknown_fields(item, kept[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(value, list | tuple):
        for index, (item, kept_item) in enumerate(zip(given, value, strict=False)):
            refuse_unknown_fields(item, kept_item, f"{path}[{index}]")


def nested_types(kind: Any) -> Iterator[msgspec.inspect.Type]:
    """Every type that a type consists of, itself included, each once."""
    seen: set[int] = set()
    pending: list[Any] = [msgspec.inspect.type_info(kind)]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple | list):
            pending.extend(part)
        elif isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, msgspec.inspect.Type):
                yield part
            pending.extend(getattr(part, name) for name in part.__struct_fields__ if name != "default")


def decode_foreign(type_: Any, value: Any) -> Any:
    """Models nested in other types."""
    if is_model(type_):
        return model_reader(type_)(msgspec.json.encode(value))
    raise TypeError(f"{type_!r} cannot be read from JSON")


def plain_values(value: Any) -> Any:
    """Return what a handler finds in ``value`` as plain JSON, for rules that judge it.

    Unlike the JSON that is stored it has every member under each name it can be read or written by, also
    members that a model leaves out or masks when it is written, and those that were left at their default.
    """
    if is_model(type(value)):
        return _model_values(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_values(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        found = {} if config.tag_field is None else {config.tag_field: config.tag}
        for names in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            found |= dict.fromkeys(names, plain_values(getattr(value, names[0])))
        return found
    if isinstance(value, Mapping):
        names = msgspec.to_builtins(dict.fromkeys(value), str_keys=True, enc_hook=str)
        return dict(zip(names, map(plain_values, value.values()), strict=True))
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_values(item) for item in value]
    reveal = getattr(value, "get_secret_value", None)
    return plain_values(reveal()) if callable(reveal) else msgspec.to_builtins(value, enc_hook=str)


def _model_values(model: Any) -> Any:
    fields = getattr(type(model), "model_fields", None)
    if fields is None:  # only looks like a pydantic model
        return model.model_dump(mode="json", by_alias=True)
    if fields.keys() == {"root"} and hasattr(type(model), "__pydantic_root_model__"):
        return plain_values(model.root)
    found = plain_values(getattr(model, "model_extra", None) or {})
    for name in getattr(type(model), "model_computed_fields", ()):
        found[name] = plain_values(getattr(model, name))
    values = {name: plain_values(getattr(model, name)) for name in fields}
    found |= {field.alias or name: values[name] for name, field in fields.items()}
    for name, field in fields.items():
        choices = getattr(field.validation_alias, "choices", [field.validation_alias])
        for other in (name, field.serialization_alias, *choices):
            if isinstance(other, str):
                found.setdefault(other, values[name])
    return found


def schema_of(type_: Any, prefix: str) -> dict[str, Any]:
    """JSON Schema of any type we accept, complete in itself."""
    from_models: dict[str, Any] = {}

    def schema_of_model(model: Any) -> dict[str, Any]:
        if not is_model(model):
            raise NotImplementedError
        schema: dict[str, Any] = model.model_json_schema(ref_template=prefix + "{model}")
        from_models.update(schema.pop("$defs", {}))
        return schema

    (reference,), definitions = msgspec.json.schema_components(
        [type_], schema_hook=schema_of_model, ref_template=prefix + "{name}"
    )
    structs = {
        part.cls.__name__ for part in nested_types(type_) if isinstance(part, msgspec.inspect.StructType)
    }
    for definition in definitions.values():  # of dataclasses and TypedDicts: unknown fields are refused
        if "properties" in definition and definition.get("title") not in structs:
            definition.setdefault("additionalProperties", False)
    own = reference.get("$ref", "").removeprefix(prefix)
    # A type that refers to itself must stay among the definitions; any other one is shown in place.
    schema = dict(definitions[own]) if own else dict(reference)
    rest = {**definitions, **from_models}
    if own and prefix + own not in _references(list(rest.values())):
        del rest[own]
    return {**schema, "$defs": rest} if rest else schema


def _references(value: Any) -> set[str]:
    found: set[str] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$ref"), str):
                found.add(item["$ref"])
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return found


def _aliases(task: str, names: tuple[str, ...], types: Mapping[str, Any]) -> dict[str, str]:
    """Every other name of a parameter, with its own."""
    found: dict[str, str] = {}
    for name in names:
        for alias in aliases_in(types[name]):
            if alias in names or alias in found:
                raise ConfigurationError(
                    f"task {task!r}: {alias!r}, an alias of parameter {name}, is the name of another one"
                )
            found[alias] = name
    return found


def _field_names(type_: Any) -> tuple[str, ...]:
    for attribute in ("__struct_encode_fields__", "__dataclass_fields__", "model_fields"):
        if names := getattr(type_, attribute, None):
            return tuple(names)
    return ()


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
    def from_function(cls, fn: Callable[..., Any]) -> ReturnType:
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
