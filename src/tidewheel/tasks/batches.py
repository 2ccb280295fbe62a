"""Batches: one call of a handler for several jobs of its task.

:class:`Batch` sets the size (at most 1,000 jobs) and the wait for more jobs (at most 60 seconds).
:class:`BatchContext` holds the context of each job. :class:`BatchSignature` checks, encodes and decodes items
one by one: the payload of a job is one item of the list that the handler takes.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, overload

from tidewheel.core.names import shorten
from tidewheel.core.validation import check_integer, check_seconds
from tidewheel.errors import ConfigurationError, InvalidInput
from tidewheel.tasks.annotations import UnresolvedBatchContext
from tidewheel.tasks.context import Context
from tidewheel.tasks.payload_types import ReturnType
from tidewheel.tasks.signature import Signature, payload_type_of

MAX_BATCH_SIZE: Final = 1000
"""Jobs of one call: as many as a store claims and settles at a time."""
MAX_BATCH_WAIT: Final = 60.0
"""Seconds a batch may wait for more jobs: the first of them waits as long, and holds a slot."""


@dataclass(frozen=True, slots=True, init=False)
class Batch:
    """Up to ``size`` jobs for one call; one that is not full waits at most ``wait`` seconds for more."""

    size: int
    wait: float

    def __init__(self, size: int, wait: float | timedelta = 0.0) -> None:
        seconds = check_seconds("batch wait", wait, 0)
        if seconds > MAX_BATCH_WAIT:
            raise InvalidInput(f"batch wait is {seconds:g} s; the limit is {MAX_BATCH_WAIT:g} s")
        object.__setattr__(self, "size", check_integer("batch size", size, 1, MAX_BATCH_SIZE))
        object.__setattr__(self, "wait", seconds)


def check_batch(given: Any) -> Batch | None:
    """What a task was given for ``batch``."""
    if given is None or isinstance(given, Batch):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise InvalidInput(f"batch is {shorten(given)}; give a number of jobs, or Batch(size=…, wait=…)")
    return Batch(given)


class BatchContext(Sequence[Context]):
    """The run of a batch: the context of each of its jobs, in the order of the items."""

    __slots__ = ("_contexts",)

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._contexts = tuple(contexts)

    @overload
    def __getitem__(self, index: int) -> Context: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Context, ...]: ...
    def __getitem__(self, index: int | slice) -> Context | tuple[Context, ...]:
        return self._contexts[index]

    def __len__(self) -> int:
        return len(self._contexts)

    def __iter__(self) -> Iterator[Context]:
        return iter(self._contexts)

    @property
    def task(self) -> str:
        """The name of the task, as its first job has it."""
        return self._contexts[0].job.task

    @property
    def tenant(self) -> str:
        """Whose jobs these are: all of one tenant."""
        return self._contexts[0].tenant

    @property
    def worker(self) -> str:
        """The name of the worker that runs them."""
        return self._contexts[0].worker

    @property
    def cancelled(self) -> bool:
        """True once every one of them should stop. Which ones should, each context says."""
        return all(context.cancelled for context in self._contexts)

    @property
    def shutting_down(self) -> bool:
        """True once the worker has been told to stop."""
        return self._contexts[0].shutting_down

    def __repr__(self) -> str:
        return f"<BatchContext of {len(self)} jobs>"


class BatchSignature(Signature):
    """How the items of a batch are checked, written and read one by one, and handed over together."""

    context_type = BatchContext
    unresolved_context = UnresolvedBatchContext

    def __init__(self, fn: Callable[..., Any], task: str) -> None:
        super().__init__(fn, task)
        # One: see _shape.
        (self._items,) = (parameter for parameter in self.parameters if parameter.name != self.context)

    def _shape(self) -> Any:
        own = [parameter for parameter in self.parameters if parameter.name != self.context]
        if len(own) != 1 or own[0].kind in (own[0].VAR_POSITIONAL, own[0].VAR_KEYWORD):
            raise ConfigurationError(
                f"task {self.task!r} is a batch handler and takes "
                f"{', '.join(str(parameter) for parameter in own) or 'nothing'}; it takes one list of items, "
                "and a BatchContext if it likes"
            )
        name = own[0].name
        item = _item_type(self.hints.get(name, Any))
        if item is None:
            raise ConfigurationError(
                f"task {self.task!r} is a batch handler, but its parameter {name} is no list; "
                "annotate it as list[Item], where Item is what one job carries"
            )
        parameter = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return payload_type_of(self.task, [parameter], {name: item}, None)

    def _return_type(self) -> ReturnType:
        """Of one result: the handler returns a list of them, in which errors may be, or None."""
        hint = self.hints.get("return", Any)
        if hint in (None, type(None)):
            return ReturnType(None)
        return ReturnType(_without_errors(_item_type(hint)))

    def decode_item(self, body: bytes) -> Any:
        """One job's item, or ``InvalidPayload``."""
        args, kwargs = self._payload.decode(body)
        return args[0] if args else kwargs[self._items.name]

    def invoke_batch(self, context: BatchContext | None, items: list[Any]) -> Any:
        """Call the handler; a coroutine for an async one."""
        if self._items.kind is self._items.KEYWORD_ONLY:
            return self.invoke(context, (), {self._items.name: items})
        return self.invoke(context, (items,), {})


def _item_type(hint: Any) -> Any:
    """The type of what a list holds; None for what is no list."""
    if hint is Any or hint in (list, Sequence):
        return Any
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (*lists,) = (part for part in map(_item_type, typing.get_args(hint)) if part is not None)
        return lists[0] if len(lists) == 1 else None
    if origin is typing.Annotated:
        return _item_type(typing.get_args(hint)[0])
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
