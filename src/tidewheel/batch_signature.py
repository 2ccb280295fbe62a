"""The payload of a batch handler: that of one item of the list it takes."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from tidewheel.annotations import UnresolvedBatchContext
from tidewheel.batch import BatchContext
from tidewheel.errors import ConfigurationError
from tidewheel.returns import ReturnType
from tidewheel.signature import Signature, shape_of


class BatchSignature(Signature):
    """How the items of a batch are checked, written and read one by one, and handed over together."""

    context_type = BatchContext
    unresolved_context = UnresolvedBatchContext

    def __init__(self, fn: Callable[..., Any], task: str) -> None:
        super().__init__(fn, task)
        (self._items,) = (
            parameter for parameter in self.parameters if parameter.name != self.context
        )  # one: see _shape

    def _shape(self) -> Any:
        own = [parameter for parameter in self.parameters if parameter.name != self.context]
        if len(own) != 1 or own[0].kind in (own[0].VAR_POSITIONAL, own[0].VAR_KEYWORD):
            raise ConfigurationError(
                f"task {self.task!r} is a batch handler and takes "
                f"{', '.join(str(parameter) for parameter in own) or 'nothing'}; it takes one list of items, "
                "and a BatchContext if it likes"
            )
        name = own[0].name
        item = _item_of(self.hints.get(name, Any))
        if item is None:
            raise ConfigurationError(
                f"task {self.task!r} is a batch handler, but its parameter {name} is no list; "
                "annotate it as list[Item], where Item is what one job carries"
            )
        parameter = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return shape_of(self.task, [parameter], {name: item}, None)

    def _return_type(self) -> ReturnType:
        """Of one result: the handler returns a list of them, in which errors may be, or None."""
        hint = self.hints.get("return", Any)
        if hint in (None, type(None)):
            return ReturnType(None)
        return ReturnType(_without_errors(_item_of(hint)))

    def item(self, body: bytes) -> Any:
        """One job's item, or ``InvalidPayload``."""
        args, kwargs = self._payload.decode(body)
        return args[0] if args else kwargs[self._items.name]

    def invoke_batch(self, context: BatchContext | None, items: list[Any]) -> Any:
        """Call the handler; a coroutine for an async one."""
        if self._items.kind is self._items.KEYWORD_ONLY:
            return self.invoke(context, (), {self._items.name: items})
        return self.invoke(context, (items,), {})


def _item_of(hint: Any) -> Any:
    """The type of what a list holds; None for what is no list."""
    if hint is Any or hint in (list, Sequence):
        return Any
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (*lists,) = (part for part in map(_item_of, typing.get_args(hint)) if part is not None)
        return lists[0] if len(lists) == 1 else None
    if origin is typing.Annotated:
        return _item_of(typing.get_args(hint)[0])
    return typing.get_args(hint)[0] if origin in (list, Sequence) else None


def _without_errors(hint: Any) -> Any:
    """Errors stand for jobs that did not complete; they are no results."""
    if hint is None:
        return Any
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return Any if _is_error(hint) else hint
    kept = tuple(part for part in typing.get_args(hint) if not _is_error(part))
    return typing.Union[kept] if kept else Any  # noqa: UP007 - a tuple of any length


def _is_error(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseException)
