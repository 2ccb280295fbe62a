"""What tasks take and give back, as an OpenAPI document that other languages make types of."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pydantic

from tidewheel import Tidewheel
from tidewheel.tasks.task_schemas import task_types_document


def schemas(app: Tidewheel) -> dict[str, Any]:
    document = task_types_document(app.registry)
    assert (document["openapi"], document["paths"]) == ("3.1.0", {})
    found: dict[str, Any] = document["components"]["schemas"]
    return found


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


class Line(msgspec.Struct):
    sku: str
    next: Line | None = None


class Card(msgspec.Struct, tag=True):
    number: str


class Transfer(msgspec.Struct, tag=True):
    account: str


class Receipt(pydantic.BaseModel):
    total: float


def test_every_durable_task_has_what_it_takes_and_gives_back() -> None:
    """By name, all of them required, so that types know every name; in the order of the alphabet."""
    app = Tidewheel("memory://")

    @app.task
    def send_digest(user_id: str, copies: int = 1) -> int:
        return copies

    @app.task(name="odd/name {x}", topic="odd")
    def odd() -> None: ...

    @app.task(durable=False)
    def fleeting(anything: object) -> None: ...

    tasks = schemas(app)["Tasks"]
    assert tasks["required"] == list(tasks["properties"]) == ["odd/name {x}", "send_digest"]
    digest = tasks["properties"]["send_digest"]
    assert digest["required"] == ["payload", "result"]
    assert digest["properties"]["payload"]["properties"] == {
        "user_id": {"type": "string"},
        "copies": {"type": "integer", "default": 1},
    }
    assert digest["properties"]["payload"]["required"] == ["user_id"]
    assert digest["properties"]["result"] == {"type": "integer"}
    assert tasks["properties"]["odd/name {x}"]["properties"]["result"] == {}


def test_definitions_become_components_and_references_follow() -> None:
    """Nested, recursive, tagged, of msgspec and of pydantic: all lead to a component that is there."""
    app = Tidewheel("memory://")

    @app.task
    def charge(lines: list[Line], paid_by: Card | Transfer) -> Receipt:
        return Receipt(total=0)

    @app.task
    def refund(line: Line) -> None: ...

    found = schemas(app)
    assert set(found) == {"Tasks", "Line", "Card", "Transfer", *_receipt(found)}
    assert references(found) <= {f"#/components/schemas/{name}" for name in found}
    assert found["Line"]["properties"]["next"]["anyOf"][0] == {"$ref": "#/components/schemas/Line"}
    paid_by = found["Tasks"]["properties"]["charge"]["properties"]["payload"]["properties"]["paid_by"]
    assert paid_by["discriminator"]["mapping"] == {
        "Card": "#/components/schemas/Card",
        "Transfer": "#/components/schemas/Transfer",
    }


def _receipt(found: dict[str, Any]) -> set[str]:
    """A model that is returned may be written in place or apart; it is there either way."""
    result = found["Tasks"]["properties"]["charge"]["properties"]["result"]
    return {result["$ref"].rpartition("/")[2]} if "$ref" in result else set()


def test_two_definitions_of_one_name_stay_two() -> None:
    """Each module has its own Address; a type made of the wrong one would let wrong payloads through."""
    app = Tidewheel("memory://")
    home = msgspec.defstruct("Address", [("street", str)])
    mail = msgspec.defstruct("Address", [("mailbox", str)])
    tasks = msgspec.defstruct("Tasks", [("names", list[str])])

    def visit(to: Any, times: int) -> None: ...
    def write(to: Any, times: int) -> None: ...
    def again(to: Any, tasks: Any) -> None: ...

    visit.__annotations__ = {"to": home, "times": int}
    write.__annotations__ = {"to": mail, "times": int}
    again.__annotations__ = {"to": home, "tasks": tasks}
    for function in (visit, write, again):
        app.task(function)
    found = schemas(app)
    assert set(found) == {"Tasks", "Tasks_2", "Address", "Address_2"}

    def meant(task: str) -> list[str]:
        payload = found["Tasks"]["properties"][task]["properties"]["payload"]
        return list(found[payload["properties"]["to"]["$ref"].rpartition("/")[2]]["properties"])

    assert (meant("visit"), meant("write"), meant("again")) == (["street"], ["mailbox"], ["street"])


def test_any_object_is_not_an_empty_one() -> None:
    """JSON Schema says nothing of members then; makers of types would let none in."""
    app = Tidewheel("memory://")

    @app.task
    def store(anything: dict[str, Any], counts: dict[str, int]) -> None: ...

    payload = schemas(app)["Tasks"]["properties"]["store"]["properties"]["payload"]
    assert payload["properties"]["anything"] == {"type": "object", "additionalProperties": {}}
    assert payload["properties"]["counts"]["additionalProperties"] == {"type": "integer"}
    assert payload["additionalProperties"] is False


def test_data_that_look_like_references_stay_as_they_are() -> None:
    """A default is a value, and a member may be called like a keyword."""
    app = Tidewheel("memory://")

    @app.task
    def quote(line: Line, default: Line, kind: Literal["#/$defs/Line"] = "#/$defs/Line") -> None: ...

    payload = schemas(app)["Tasks"]["properties"]["quote"]["properties"]["payload"]
    assert payload["properties"]["default"] == {"$ref": "#/components/schemas/Line"}
    assert payload["properties"]["kind"]["default"] == "#/$defs/Line"
    assert payload["properties"]["kind"]["enum"] == ["#/$defs/Line"]
