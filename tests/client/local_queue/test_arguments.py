"""What a non-durable task takes: any objects, as they are, checked only against the function's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidewheel import BY_PAYLOAD, ConfigurationError, Context, InvalidInput, InvalidPayload, Tidewheel
from tidewheel.core.model import BodyFormat
from tidewheel.core.payload import ObjectBody
from tidewheel.tasks.signature import InProcessSignature

if TYPE_CHECKING:
    from decimal import NoSuchThing  # type: ignore[attr-defined]

LIMIT = 2  # bytes; nothing is written, so nothing is too large


def call(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """What the handler gets for this call, with a context where it takes one."""
    signature = InProcessSignature(fn, "t")
    body = signature.encode_call(args, kwargs, LIMIT)
    return signature.invoke("CONTEXT", *signature.decode(body, BodyFormat.JSON))


class Marker:
    """An object that no JSON can carry."""


def test_objects_arrive_as_they_were_given() -> None:
    """The same objects, not copies."""

    def handler(first: Marker, second: Any, *, third: object = None) -> tuple[Any, ...]:
        return first, second, third

    one, two = Marker(), {"a": [lambda: 1]}
    assert call(handler, one, two) == (one, two, None)
    assert call(handler, one, second=two)[1] is two
    assert call(handler, one, two, third=one)[2] is one


def test_the_context_fits_wherever_the_function_has_it() -> None:
    """First, in between, by keyword only, beside ``*args`` and ``**kwargs``."""

    def first(ctx: Context, a: int, *rest: int, **more: int) -> Any:
        return ctx, a, rest, more

    def between(a: int, ctx: Context, b: int) -> Any:
        return a, ctx, b

    def last(a: int, /, b: int = 5, *, ctx: Context, **more: int) -> Any:
        return a, b, ctx, more

    def spread(*rest: int, ctx: Context) -> Any:
        return rest, ctx

    assert call(first, 1, 2, 3, z=4) == ("CONTEXT", 1, (2, 3), {"z": 4})
    assert call(between, 1, 2) == (1, "CONTEXT", 2)
    assert call(last, 1, z=2) == (1, 5, "CONTEXT", {"z": 2})
    assert call(spread, 1, 2) == ((1, 2), "CONTEXT")


def test_a_context_in_front_of_args_must_be_the_first() -> None:
    """Otherwise there is no telling which argument is which."""

    def handler(a: int, ctx: Context, *rest: int) -> None: ...

    with pytest.raises(ConfigurationError, match="make the context its first parameter"):
        InProcessSignature(handler, "t")


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"c": 1}, "got an unexpected keyword argument 'c'"),
        ((1,), {"a": 1}, "multiple values for argument 'a'"),
        ((1,), {"ctx": 1}, "ctx is the handler's context"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(
    args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    """With the words Python has for it, and the parameters there are."""

    def handler(ctx: Context, a: int, b: int = 1) -> None: ...

    with pytest.raises(InvalidPayload, match=words):
        InProcessSignature(handler, "t").encode_call(args, kwargs, LIMIT)


def test_a_payload_given_whole_names_the_arguments_or_is_the_only_one() -> None:
    """``app.enqueue("name", {...})`` and ``app.enqueue("name", thing)``."""

    def handler(thing: Any = "nothing") -> Any:
        return thing

    signature = InProcessSignature(handler, "t")
    marker = Marker()
    for given, got in (({"thing": marker}, marker), (marker, marker), (b"raw", b"raw"), (None, "nothing")):
        body = signature.encode_payload(given, LIMIT)
        assert signature.invoke(None, *signature.decode(body, BodyFormat.JSON)) == got
    with pytest.raises(InvalidPayload, match="unexpected keyword argument 'thong'"):
        signature.encode_payload({"thong": 1}, LIMIT)


def test_each_attempt_gets_arguments_of_its_own() -> None:
    """The context of one attempt is not kept for the next."""

    def handler(a: int, ctx: Context) -> Any:
        return ctx

    signature = InProcessSignature(handler, "t")
    arguments = signature._bind((1,), {})
    for attempt in ("first", "second"):
        decoded = signature.decode(ObjectBody.wrap(arguments), BodyFormat.JSON)
        assert signature.invoke(attempt, *decoded) == attempt
    assert arguments == ((), {"a": 1})


def test_types_are_not_looked_at() -> None:
    """Not even those that exist for the type checker alone; the context is found all the same."""

    def handler(ctx: Context, thing: NoSuchThing, other: Marker) -> tuple[Any, ...]:
        return ctx, thing, other

    assert call(handler, 1, other=2) == ("CONTEXT", 1, 2)


def test_a_carried_object_looks_like_null_and_is_taken_once() -> None:
    """Nobody who takes it for bytes sees or keeps the object."""
    carried = ObjectBody.wrap(marker := Marker())
    assert carried == b"null"
    assert carried.take() is marker
    with pytest.raises(AttributeError):
        carried.take()


def test_a_stored_payload_is_none_of_its_business() -> None:
    """A job that somebody wrote into a store cannot reach a non-durable handler."""

    def handler(a: int) -> None: ...

    with pytest.raises(InvalidPayload, match="is not durable"):
        InProcessSignature(handler, "t").decode(b'{"a": 1}', BodyFormat.JSON)


# -- registration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"isolation": "process"}, 'durable is False together with isolation="process"'),
        ({"key": BY_PAYLOAD}, "key is BY_PAYLOAD, but task 'handler' is not durable"),
        ({"memory_limit": "1GB"}, "memory_limit"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_task_is_registered(
    options: dict[str, Any], words: str
) -> None:
    """With the task and the place it is written at."""
    app = Tidewheel("memory://")

    def handler() -> None: ...

    with pytest.raises(ConfigurationError, match=words):
        app.task(durable=False, **options)(handler)
    assert len(app.registry) == 0


@pytest.mark.parametrize("value", ["no", 0, None])
def test_durable_is_true_or_false(value: Any) -> None:
    """Text that means no would be true."""
    app = Tidewheel("memory://")
    with pytest.raises(ConfigurationError, match="it must be True or False"):
        app.task(name="handler", durable=value)(lambda: None)


def test_a_key_by_payload_is_refused_for_one_job_too() -> None:
    """Where it is said, not when it is used."""
    app = Tidewheel("memory://")

    @app.task(durable=False)
    def handler() -> None: ...

    with pytest.raises(InvalidInput, match="give a key as text"):
        handler.options(key=BY_PAYLOAD)


def test_durable_workers_take_no_lanes_of_non_durable_tasks() -> None:
    """Neither under their name, nor their topic, nor a topic they are routed to."""
    app = Tidewheel("memory://")

    @app.task(durable=False, topic="shared", aliases=["once"])
    def mine() -> None: ...

    @app.task(topic="shared")
    def theirs() -> None: ...

    @app.task(durable=False, topic="alone")
    def other() -> None: ...

    lanes = {(lane.topic, lane.task) for lane in app.registry.lanes()}
    assert lanes == {("shared", "theirs"), ("theirs", ""), ("theirs", "theirs")}
    asked_for = {(lane.topic, lane.task) for lane in app.registry.lanes(["shared", "alone", "elsewhere"])}
    assert asked_for == {("shared", "theirs"), ("elsewhere", "theirs")}


async def test_a_worker_without_durable_tasks_says_so() -> None:
    """It would run for ever and do nothing."""
    app = Tidewheel("memory://")
    app.task(durable=False, name="mine")(lambda: None)
    async with app:
        with pytest.raises(ConfigurationError, match="no durable task is registered"):
            app.worker()


def test_json_schema_describes_what_json_can_say() -> None:
    """The union leaves non-durable tasks out; asked for one of them alone it is an error."""
    app = Tidewheel("memory://")

    @app.task(durable=False)
    def mine(thing: Marker) -> None: ...

    @app.task
    def theirs(a: int) -> None: ...

    assert list(app.json_schema()["$defs"]) == ["theirs"]
    with pytest.raises(ConfigurationError, match="no JSON Schema describes"):
        mine.json_schema()
