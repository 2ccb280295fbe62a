from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypedDict
from uuid import UUID, uuid4

import msgspec
import pydantic
import pytest

from tidewheel import ConfigurationError, Context, InvalidPayload
from tidewheel.core.model import BodyFormat
from tidewheel.tasks.signature import Signature

if TYPE_CHECKING:
    from tidewheel import Context as Hidden

LIMIT = 65_536
CONTEXT: Any = object()


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    number: int
    lines: list[Line]
    placed: datetime | None = None


class Address(TypedDict, total=False):
    city: str


class Label(msgspec.Struct):
    text: str
    line: Line | None = None


class Parcel(msgspec.Struct, forbid_unknown_fields=True):
    weight: Annotated[float, msgspec.Meta(gt=0)]


class Invoice(pydantic.BaseModel):
    total: int
    due: datetime | None = None
    lines: list[Line] = []


def round_trip(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """What the handler receives for this call, after a journey through a store."""
    signature = Signature(fn, "t")
    body = signature.encode_call(args, kwargs, LIMIT)
    decoded_args, decoded_kwargs = signature.decode(body, signature.format)
    return signature.invoke(CONTEXT, decoded_args, decoded_kwargs)


def test_every_supported_type_arrives_as_it_was_sent() -> None:
    """What was enqueued is what the handler gets, in the types it asked for."""

    def handler(  # type: ignore[no-untyped-def]
        text: str,
        number: int,
        ratio: float,
        flag: bool,
        when: datetime,
        ident: UUID,
        colour: Colour,
        mode: Literal["a", "b"],
        maybe: Optional[int],  # noqa: UP045 - the old spelling must work too
        items: list[dict[str, int]],
        order: Order,
        parcel: Parcel,
        invoice: Invoice,
        anything: Any,
        plain=None,
    ):
        return locals()

    sent: dict[str, Any] = {
        "text": "ä\u2028",
        "number": 2**63 - 1,
        "ratio": 0.5,
        "flag": True,
        "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "ident": uuid4(),
        "colour": Colour.RED,
        "mode": "b",
        "maybe": None,
        "items": [{"x": 1}],
        "order": Order(1, [Line("s", 2)], datetime(2026, 1, 1, tzinfo=UTC)),
        "parcel": Parcel(1.5),
        "invoice": Invoice(total=3, lines=[Line("s")]),
        "anything": [1, {"a": None}],
        "plain": "x",
    }
    assert round_trip(handler, **sent) == sent


def test_left_out_fields_get_the_handlers_own_default() -> None:
    """Defaults are not written into the job; the handler's apply when it runs."""
    default = ["mutable"]

    def handler(a: int, b: list[str] = default, *, c: str = "c") -> Any:
        return a, b, c

    assert Signature(handler, "t").encode_call((1,), {}, LIMIT) == b'{"a":1}'
    assert round_trip(handler, 1) == (1, default, "c")
    assert round_trip(handler, 1, ["x"], c="y") == (1, ["x"], "y")


def test_a_default_of_none_makes_a_field_optional() -> None:
    """``x: str = None`` is common; None is then a value."""

    def handler(x: str = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return x

    assert round_trip(handler, x=None) is None


def test_positional_arguments_are_named() -> None:
    """A job's payload has names whatever way the call was written."""

    def handler(a: int, b: int, /, c: int, *, d: int = 4) -> Any:
        return a, b, c, d

    assert Signature(handler, "t").encode_call((1, 2), {"c": 3}, LIMIT) == b'{"a":1,"b":2,"c":3}'
    assert round_trip(handler, 1, 2, 3) == (1, 2, 3, 4)


def test_positional_only_parameters_with_defaults_may_be_left_out() -> None:
    """The default fills the position."""

    def handler(a: int, b: int = 7, /) -> Any:
        return a, b

    assert round_trip(handler, 1) == (1, 7)


@pytest.mark.parametrize("position", ["first", "middle", "last", "keyword"])
def test_the_context_is_found_by_annotation_wherever_it_stands(position: str) -> None:
    """Neither its name nor its place matters, and it is no part of the payload."""

    def first(c: Context, a: int, b: int) -> Any:
        return c, a, b

    def middle(a: int, anything: Context, b: int) -> Any:
        return anything, a, b

    def last(a: int, b: int, ctx: Context | None) -> Any:
        return ctx, a, b

    def keyword(a: int, b: int, *, ctx: Context) -> Any:
        return ctx, a, b

    fn = {"first": first, "middle": middle, "last": last, "keyword": keyword}[position]
    assert round_trip(fn, a=1, b=2) == (CONTEXT, 1, 2)
    assert round_trip(fn, 1, 2) == (CONTEXT, 1, 2)


def test_a_context_imported_only_for_the_type_checker_is_recognised() -> None:
    """Linters move imports under TYPE_CHECKING; the handler still gets its context."""

    namespace: dict[str, Any] = {}
    exec("def handler(ctx: 'tidewheel.Context', a: int): return ctx, a", namespace)  # noqa: S102
    assert round_trip(namespace["handler"], a=1) == (CONTEXT, 1)


def test_a_type_that_cannot_be_found_is_named() -> None:
    """Registration says which parameter and how to repair it."""

    def handler(x: Hidden, y: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(
        ConfigurationError, match=r"the type .* of parameter \w cannot be found .*TYPE_CHECKING"
    ):
        Signature(handler, "t")


def test_types_defined_inside_a_function_are_found() -> None:
    """Annotations are text here, and the type is only a local name."""

    @dataclass
    class Local:
        n: int

    def handler(a: Local, b: int) -> Local:
        return Local(a.n + b)

    assert round_trip(handler, a=Local(1), b=2) == Local(3)


def test_one_dataclass_struct_or_model_is_the_payload_itself() -> None:
    """No wrapper object around the only parameter."""

    def dataclass_handler(order: Order) -> Any:
        return order

    def struct_handler(ctx: Context, parcel: Parcel) -> Any:
        return parcel

    def model_handler(invoice: Invoice, /) -> Any:
        return invoice

    order = Order(1, [Line("s")])
    assert Signature(dataclass_handler, "t").encode_call((Order(1, []),), {}, LIMIT) == (
        b'{"number":1,"lines":[],"placed":null}'
    )
    assert round_trip(dataclass_handler, order) == order
    assert round_trip(struct_handler, parcel=Parcel(2)) == Parcel(2)
    assert round_trip(model_handler, Invoice(total=1)) == Invoice(total=1)
    assert round_trip(dataclass_handler, {"number": 1, "lines": []}) == Order(1, [])


def test_a_bytes_parameter_gets_the_raw_body() -> None:
    """Raw bodies are stored as they are."""

    def handler(ctx: Context, data: bytes) -> Any:
        return data

    signature = Signature(handler, "t")
    assert signature.format is BodyFormat.BYTES
    assert round_trip(handler, b"\x00\xff") == b"\x00\xff"
    assert signature.decode(b'{"a":1}', BodyFormat.JSON) == ((), {"data": b'{"a":1}'})


def test_a_task_without_bytes_reads_raw_bodies_as_json() -> None:
    """A body put by another program is JSON to a task that expects fields."""

    def handler(a: int) -> Any:
        return a

    signature = Signature(handler, "t")
    assert signature.decode(b' {"a": 1} ', BodyFormat.BYTES) == ((), {"a": 1})
    assert signature.encode_payload(b' {"a": 1} ', LIMIT) == b'{"a":1}'
    for broken in (b"\xff", b"{", b""):
        with pytest.raises(InvalidPayload, match="'t'"):
            signature.decode(broken, BodyFormat.BYTES)


def test_extra_fields_go_to_kwargs_where_the_handler_has_them() -> None:
    """``**kwargs`` accepts anything of its annotated type."""

    def handler(a: int, **rest: int) -> Any:
        return a, rest

    def anything(ctx: Context, **rest: Any) -> Any:
        return rest

    assert round_trip(handler, a=1, b=2) == (1, {"b": 2})
    assert round_trip(anything, x=[1], y=None) == {"x": [1], "y": None}
    with pytest.raises(InvalidPayload, match=r"b: expected int, got str \('x'\)"):
        round_trip(handler, a=1, b="x")
    with pytest.raises(InvalidPayload, match="ctx is the handler's context"):
        Signature(anything, "t").encode_payload({"ctx": 1}, LIMIT)


def test_a_handler_without_parameters_takes_an_empty_payload_only() -> None:
    """Nothing to fill, nothing to accept."""

    def handler() -> Any:
        return "ran"

    assert round_trip(handler) == "ran"
    assert Signature(handler, "t").encode_payload(None, LIMIT) == b"{}"
    with pytest.raises(InvalidPayload, match="the task takes no fields"):
        Signature(handler, "t").encode_payload({"a": 1}, LIMIT)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, r"number is missing; the task takes number, lines, placed"),
        ({"number": "1", "lines": []}, r"number: expected int, got str \('1'\)"),
        ({"number": 1.5, "lines": []}, r"number: expected int, got float \(1.5\)"),
        ({"number": 95.0, "lines": []}, r"number: .*\(95.0\); a number with a decimal point is no integer"),
        ({"number": 1, "lines": [{"sku": "a"}, {"sku": 2}]}, r"lines\[1\].sku: expected str, got int \(2\)"),
        ({"number": 1, "lines": [{}]}, r"lines\[0\].sku is missing"),
        (
            {"number": 1, "lines": [], "placed": "soon"},
            r"placed: invalid RFC3339 encoded datetime \('soon'\)",
        ),
        ([1], r"the payload: expected object, got array \(\[1\]\)"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_task_field_and_value(payload: Any, message: str) -> None:
    """The message names the task, the place, the value and what was expected."""

    def handler(order: Order) -> None: ...

    with pytest.raises(InvalidPayload, match="payload does not fit task 't': " + message):
        Signature(handler, "t").encode_payload(payload, LIMIT)


@pytest.mark.parametrize(
    ("payload", "places"),
    [
        ({}, ["/number"]),
        ({"number": 1, "lines": [{"sku": "a"}, {"sku": 2}]}, ["/lines/1/sku"]),
        ({"number": 1, "lines": [{}]}, ["/lines/0/sku"]),
        ([1], [""]),
    ],
)
def test_a_refusal_points_at_the_part_that_does_not_fit(payload: Any, places: list[str]) -> None:
    """Forms show it at the field."""

    def handler(order: Order) -> None: ...

    with pytest.raises(InvalidPayload) as refused:
        Signature(handler, "t").encode_payload(payload, LIMIT)
    assert [place for place, _ in refused.value.places] == places


def test_a_refusal_points_at_every_part_that_a_model_refuses() -> None:
    """Pydantic finds all of them at once."""

    def handler(invoice: Invoice) -> None: ...

    with pytest.raises(InvalidPayload) as refused:
        Signature(handler, "t").encode_payload({"total": "x", "lines": [{"sku": 1}]}, LIMIT)
    assert [place for place, _ in refused.value.places] == ["/total", "/lines/0/sku"]


def test_misspelt_and_unknown_fields_are_refused_with_the_nearest_name() -> None:
    """A typo is found at enqueue, not in the night."""

    def handler(user_id: str, language: str = "en") -> None: ...

    with pytest.raises(InvalidPayload, match=r"usr_id is not a field of it \(did you mean user_id\?\)"):
        Signature(handler, "t").encode_payload({"user_id": "1", "usr_id": "1"}, LIMIT)


LINE = {"sku": "x"}
UNKNOWN = {"sku": "x", "cuont": 2}


@pytest.mark.parametrize(
    ("kind", "fits", "does_not", "place"),
    [
        (Line, LINE, UNKNOWN, "/cuont"),
        (Order, {"number": 1, "lines": [LINE]}, {"number": 1, "lines": [LINE, UNKNOWN]}, "/lines/1/cuont"),
        (list[Line], [LINE], [UNKNOWN], "/value/0/cuont"),
        (dict[int, Line], {"1": LINE}, {"1": UNKNOWN}, "/value/1/cuont"),
        (tuple[int, Line], [1, LINE], [1, UNKNOWN], "/value/1/cuont"),
        (Line | None, LINE, UNKNOWN, "/value/cuont"),
        (Address, {"city": "Bonn"}, {"city": "Bonn", "ctiy": "Bonn"}, "/value/ctiy"),
        (list[Address], [{}], [{"ctiy": "Bonn"}], "/value/0/ctiy"),
        (Label, {"text": "a", "newer": 1}, {"text": "a", "line": UNKNOWN}, "/line/cuont"),
    ],
)
def test_unknown_fields_inside_a_parameter_are_refused(
    kind: Any, fits: Any, does_not: Any, place: str
) -> None:
    """A typo in a dataclass or TypedDict is found at enqueue, at any depth; Structs follow their own rule."""

    def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = kind
    signature = Signature(handler, "t")
    whole = not place.startswith("/value")

    def payload(value: Any) -> Any:
        return value if whole else {"value": value}

    signature.encode_payload(payload(fits), LIMIT)
    with pytest.raises(InvalidPayload, match="is not a field of it") as refused:
        signature.encode_payload(payload(does_not), LIMIT)
    assert [found for found, _ in refused.value.places] == [place]
    with pytest.raises(InvalidPayload, match="is not a field of it"):
        signature.decode(msgspec.json.encode(payload(does_not)), BodyFormat.JSON)


def test_unknown_fields_in_further_fields_are_refused() -> None:
    """The types of ``**kwargs`` are as strict as those of named parameters."""

    def handler(**lines: Line) -> None: ...

    signature = Signature(handler, "t")
    signature.encode_payload({"first": LINE}, LIMIT)
    with pytest.raises(InvalidPayload, match=r"first\.cuont is not a field of it"):
        signature.encode_payload({"first": UNKNOWN}, LIMIT)


def test_the_schema_of_a_dataclass_says_that_unknown_fields_are_refused() -> None:
    """What a schema admits is what the queue takes."""

    def handler(order: Order, label: Label, address: Address) -> None: ...

    definitions = Signature(handler, "t").json_schema()["$defs"]
    closed = {name for name, schema in definitions.items() if schema.get("additionalProperties") is False}
    assert closed == {"Order", "Line", "Address"}


def test_wrong_calls_are_refused_like_wrong_payloads() -> None:
    """Too many arguments, or one given twice, never reach the store."""

    def handler(a: int) -> None: ...

    def single(order: Order) -> None: ...

    signature = Signature(handler, "t")
    with pytest.raises(InvalidPayload, match="2 positional arguments are given, it takes 1"):
        signature.encode_call((1, 2), {}, LIMIT)
    with pytest.raises(InvalidPayload, match="a is given twice"):
        signature.encode_call((1,), {"a": 2}, LIMIT)
    with pytest.raises(InvalidPayload, match="takes exactly one argument, order"):
        Signature(single, "t").encode_call((), {"odrer": 1}, LIMIT)


def test_a_models_own_rules_apply_and_are_explained() -> None:
    """Pydantic models validate themselves, alone or nested."""

    def alone(invoice: Invoice) -> None: ...

    def nested(invoice: Invoice, n: int) -> None: ...

    with pytest.raises(InvalidPayload, match=r"'t': total: Input should be a valid integer.*\('x'\)"):
        Signature(alone, "t").encode_payload({"total": "x"}, LIMIT)
    with pytest.raises(InvalidPayload, match="'t': invoice"):
        Signature(nested, "t").encode_payload({"invoice": {"total": "x"}, "n": 1}, LIMIT)


@pytest.mark.parametrize("body", [b'{"a":"x"}', b"[]", b"{", b"[" * 5000])
def test_a_stored_body_that_does_not_fit_is_an_invalid_payload(body: bytes) -> None:
    """The worker tells a bad body from a failing handler, however bad the body is."""

    def handler(a: int) -> None: ...

    with pytest.raises(InvalidPayload):
        Signature(handler, "t").decode(body, BodyFormat.JSON)


def test_results_come_back_in_the_annotated_type() -> None:
    """A typed result is typed after its journey, too."""

    def order() -> Order: ...  # type: ignore[empty-body]

    def invoice() -> Invoice: ...  # type: ignore[empty-body]

    def untyped():  # type: ignore[no-untyped-def]
        ...

    body = b'{"number":1,"lines":[{"sku":"a","count":2}]}'
    assert Signature(order, "t").decode_result(body) == Order(1, [Line("a", 2)])
    assert Signature(invoice, "t").decode_result(b'{"total":3}') == Invoice(total=3)
    assert Signature(untyped, "t").decode_result(b"[1]") == [1]
    assert Signature(order, "t").decode_result(None) is None


def test_a_result_of_another_type_is_given_as_plain_json() -> None:
    """The work is done; an annotation that lies does not withhold it."""

    def handler() -> int: ...  # type: ignore[empty-body]

    assert Signature(handler, "t").decode_result(b'"text"') == "text"


def test_sync_async_and_wrapped_handlers_are_told_apart() -> None:
    """What is called decides, not what it wraps."""

    async def coroutine(a: int) -> None: ...

    def plain(a: int) -> int:
        return a

    @functools.wraps(plain)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    class Callable:
        async def __call__(self, a: int) -> None: ...

    assert Signature(coroutine, "t").is_async
    assert not Signature(plain, "t").is_async
    assert Signature(wrapper, "t").is_async
    assert Signature(Callable(), "t").is_async
    assert not Signature(functools.partial(plain, 1), "t").is_async
    assert round_trip(functools.partial(plain, a=1)) == 1


def test_a_signature_that_no_payload_can_fill_is_refused_when_registered() -> None:
    """Better at import than at three in the morning."""

    def star(*items: int) -> None: ...

    def foreign(x: complex) -> None: ...

    def union(x: Order | Line) -> None: ...

    def generator() -> Any:
        yield 1

    def two(a: Context, b: Context) -> None: ...

    for fn, message in (
        (star, r"takes \*items"),
        (foreign, "uses complex, which JSON cannot carry"),
        (union, "no payload can fill"),
        (generator, "is a generator"),
        (two, "2 parameters of type Context"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            Signature(fn, "t")


def test_the_schema_describes_fields_defaults_and_nested_types() -> None:
    """The schema is what forms and other languages are built from."""

    def handler(ctx: Context, order: Order, invoice: Invoice, mode: Literal["a"] = "a", n: int = 3) -> None:
        """Handle it.

        At length.
        """

    schema = Signature(handler, "t").json_schema()
    assert schema["title"] == "t"
    assert schema["description"] == "Handle it."
    assert schema["required"] == ["order", "invoice"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["n"] == {"type": "integer", "default": 3}
    assert schema["properties"]["order"] == {"$ref": "#/$defs/Order"}
    assert set(schema["$defs"]) == {"Order", "Line"}
    assert "ctx" not in schema["properties"]
