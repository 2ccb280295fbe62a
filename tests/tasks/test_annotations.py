"""What annotations say about single fields of a payload: other names, and rules."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from tidewheel import BY_PAYLOAD, Alias, ConfigurationError, InvalidPayload, Tidewheel
from tidewheel.core.model import BodyFormat
from tidewheel.tasks.annotations import ValueCheck


def no_vowels(text: str) -> None:
    if set(text) & set("aeiou"):
        raise ValueError("has a vowel in it")


@pytest.fixture
def app() -> Tidewheel:
    return Tidewheel("memory://")


async def test_a_field_is_found_under_either_name_and_kept_under_its_own(app: Tidewheel) -> None:
    """So two payloads that mean the same are the same job where the payload is the key."""

    @app.task(key=BY_PAYLOAD)
    def ship(order_id: Annotated[int, Alias("orderId"), Alias("order")], fast: bool = False) -> int:
        return order_id

    async with app:
        first = await app.enqueue("ship", {"orderId": 7})
        for payload in ({"order_id": 7}, {"order": 7}):
            again = await app.enqueue("ship", payload)
            assert (again.id, again.duplicate) == (first.id, True)
        assert first.payload == {"order_id": 7}
        await app.run_until_idle()
        assert await first.result(0) == 7


def test_a_job_written_before_a_rename_still_fits(app: Tidewheel) -> None:
    """The body in the store has the old name; the handler gets the new one, None by default included."""

    @app.task
    def ship(
        order_id: Annotated[int, Alias("order")], note: Annotated[str, Alias("remark")] | None = None
    ) -> None: ...

    body = b'{"order":7,"remark":"soon"}'
    assert ship.decode(body, BodyFormat.JSON) == ((), {"order_id": 7, "note": "soon"})
    assert ship.decode(b'{"order":7}', BodyFormat.JSON) == ((), {"order_id": 7})


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"orderId": 7, "order_id": 7}, "order_id is given twice, once by another name"),
        ({"order_id": 7, "orderId": 8}, "order_id is given twice, once by another name"),
        ({"orderId": "x"}, r"order_id: expected int, got str"),
        ({"orderid": 7}, r"orderid is not a field of it"),
    ],
)
async def test_a_payload_that_does_not_fit_by_either_name_is_refused(
    app: Tidewheel, payload: dict[str, Any], why: str
) -> None:
    """By the parameter's own name."""

    @app.task
    def ship(order_id: Annotated[int, Alias("orderId")] = 0) -> None: ...

    async with app:
        with pytest.raises(InvalidPayload, match=why):
            await app.enqueue("ship", payload)


def test_an_alias_that_is_another_parameter_is_refused_when_the_task_is_registered(app: Tidewheel) -> None:
    """Nobody could tell which of the two is meant."""
    with pytest.raises(ConfigurationError, match="'order', an alias of parameter order_id, is the name of"):

        @app.task
        def ship(order_id: Annotated[int, Alias("order")], order: int) -> None: ...


async def test_a_rule_is_asked_at_enqueue_and_again_before_the_handler_runs(app: Tidewheel) -> None:
    """What it refuses is never written; the message that is kept has no value of the payload in it."""

    @app.task
    def shout(
        text: Annotated[str, ValueCheck(no_vowels)], end: Annotated[str, ValueCheck(no_vowels)] = "ouch"
    ) -> None: ...

    async with app:
        with pytest.raises(InvalidPayload, match=r"text: has a vowel in it \('loud'\)") as refusal:
            await shout.enqueue(text="loud")
        assert (
            refusal.value.message_without_value
            == "payload does not fit task 'shout': text: has a vowel in it"
        )
        assert refusal.value.places == (("/text", "has a vowel in it"),)
        assert (await app.count()).total == 0
    with pytest.raises(InvalidPayload, match="end: has a vowel"):
        shout.decode(b'{"text":"","end":"a"}', BodyFormat.JSON)
    assert shout.decode(b'{"text":"hmm"}', BodyFormat.JSON) == ((), {"text": "hmm"})
