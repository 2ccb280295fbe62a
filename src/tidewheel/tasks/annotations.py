"""Read a handler's parameters and their types, in every form that annotations take.

``from __future__ import annotations`` leaves text, Python 3.14 leaves unevaluated references, and a type may
exist only in the function that defines the handler or only under ``TYPE_CHECKING``. In an ``Annotated`` type,
:class:`Alias` gives a payload field another name and :class:`ValueCheck` adds a rule.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import ConfigurationError

_OWN_PACKAGE = __name__.partition(".")[0]

# Users move this import under TYPE_CHECKING, as linters advise; the name alone then has to do.
_CONTEXT_NAMES = frozenset({"Context", "tidewheel.Context", "tidewheel.tasks.context.Context"})
_BATCH_CONTEXT_NAMES = frozenset(
    {"BatchContext", "tidewheel.BatchContext", "tidewheel.tasks.batches.BatchContext"}
)


class UnresolvedContext:
    """Stands for a ``Context`` annotation whose import exists only for the type checker."""


class UnresolvedBatchContext:
    """The same for ``BatchContext``."""


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The handler's parameters, without looking at their annotations."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        signature = inspect.signature(fn, annotation_format=Format.FORWARDREF)
    else:
        signature = inspect.signature(fn)
    return list(signature.parameters.values())


def hints_of(fn: Callable[..., Any], task: str, *, needed: bool = True) -> Mapping[str, Any]:
    """The types of the handler's parameters and of its result, as objects.

    One that cannot be found is an error where it is ``needed`` to read a payload, and left out otherwise.
    """
    target = plain_function(fn)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, TypeError):
        # One name could not be found: look at each annotation by itself, and in more places.
        return _resolve_one_by_one(target, task, needed=needed)


def return_hint_of(fn: Callable[..., Any]) -> Any:
    """The type of a function's result as an object; Any where none is written, or none can be found."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, type):
        return fn
    target = plain_function(fn)
    # Whatever is written on its parameters does not matter here: the result's type is tried by itself, too.
    with contextlib.suppress(Exception):
        return typing.get_type_hints(target, include_extras=True).get("return", Any)
    with contextlib.suppress(Exception):
        return _resolve(_raw_annotations(target).get("return", Any), _names_around(target))
    return Any


def called_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that is called: under partials and callable objects, but not under decorators."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn):
        return fn
    called: Callable[..., Any] = type(fn).__call__
    return called


def hint_of(fn: Callable[..., Any], parameter: str) -> Any:
    """The type of one parameter; None where it has none, or one that cannot be found."""
    target = plain_function(fn)
    annotation = _raw_annotations(target).get(parameter)
    if annotation is None or _text_of(annotation).strip("'\"") in _CONTEXT_NAMES:
        return None if annotation is None else UnresolvedContext
    try:
        return _resolve(annotation, _names_around(target))
    except Exception:  # whatever an annotation raises; who asks here can do without it
        return None


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries the annotations: under partials, decorators and callable objects."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not isinstance(fn, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type):
        fn = type(fn).__call__
    unwrapped: Callable[..., Any] = inspect.unwrap(fn)
    return unwrapped


def _resolve_one_by_one(target: Callable[..., Any], task: str, *, needed: bool) -> Mapping[str, Any]:
    names = _names_around(target)
    hints: dict[str, Any] = {}
    for name, annotation in _raw_annotations(target).items():
        try:
            hints[name] = _resolve(annotation, names)
        except Exception as error:
            text = _text_of(annotation)
            if text.strip("'\"") in _CONTEXT_NAMES:
                hints[name] = UnresolvedContext
            elif text.strip("'\"") in _BATCH_CONTEXT_NAMES:
                hints[name] = UnresolvedBatchContext
            elif (
                needed and name != "return"
            ):  # an unknown result type only means that results stay plain JSON
                raise ConfigurationError(
                    f"task {task!r}: the type {text} of parameter {name} cannot be found ({error}); "
                    "import it at run time, not only under TYPE_CHECKING"
                ) from None
    return hints


def _raw_annotations(target: Callable[..., Any]) -> Mapping[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(target, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(target)


def _resolve(annotation: Any, names: dict[str, Any]) -> Any:
    def holder() -> None: ...

    holder.__annotations__ = {"x": _text_of(annotation) if _is_reference(annotation) else annotation}
    return typing.get_type_hints(holder, globalns=names, localns=names, include_extras=True)["x"]


def _is_reference(annotation: Any) -> bool:
    return isinstance(annotation, str | typing.ForwardRef)


def _text_of(annotation: Any) -> str:
    return annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else str(annotation)


def _names_around(target: Callable[..., Any]) -> dict[str, Any]:
    """What the author of the handler could see: its module, what it closes over, where it was registered."""
    names: dict[str, Any] = dict(getattr(target, "__globals__", {}))
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN_PACKAGE:
        frame = frame.f_back
    if frame is not None and frame.f_globals is getattr(target, "__globals__", None):
        names.update(frame.f_locals)
    if isinstance(target, types.FunctionType):
        names.update(inspect.getclosurevars(target).nonlocals)
    return names


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name under which a payload may give a parameter: ``user_id: Annotated[str, Alias("userId")]``.

    It is stored under the parameter's own name. An older name of a parameter makes a good alias, too: jobs
    that wait since before the change still fit.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """A rule that a type cannot tell: raises ``ValueError`` with what is wrong, without the value itself."""

    check: Callable[[Any], object]


def aliases_in(hint: Any) -> tuple[str, ...]:
    """The other names that a parameter's annotation gives it."""
    return tuple(part.name for part in _metadata_in(hint) if isinstance(part, Alias))


def checks_in(hint: Any) -> tuple[Callable[[Any], object], ...]:
    """The rules that a parameter's annotation has for it."""
    return tuple(part.check for part in _metadata_in(hint) if isinstance(part, ValueCheck))


def _metadata_in(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) is typing.Annotated:
        yield from hint.__metadata__
    else:  # ``x: Annotated[…] = None`` was read as a union with None
        for part in typing.get_args(hint):
            yield from _metadata_in(part) if typing.get_origin(part) is typing.Annotated else ()
