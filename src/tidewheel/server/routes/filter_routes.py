"""Filters over HTTP: list the fields of the filter language, and check filter permissions.

A filter may ask only for values that its caller may see. Otherwise a caller who may ask whether a hidden text
begins with an *a* would know the text after a few dozen questions.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from tidewheel.admin.filters import describe_fields, parse
from tidewheel.core.conditions import Compare, ComparePayload, Field, HoldsText, leaves
from tidewheel.errors import InvalidInput, NotPermitted
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route


def refuse_peeping(request: Request[Any, Any], where: str | None, text: str | None) -> None:
    """Refuse a filter, or a text to search for, that looks at what this caller would not be shown."""
    if text is not None:
        _refuse_search(request)
    if where is None:
        return
    settings, redaction = request.app.settings, request.api.redaction
    asked = parse(where, now=request.app.clock.now(), uuids=settings.tenant_uuids)
    for leaf in leaves(asked.condition):
        match leaf:
            case Compare(Field.WORKER, _, _) if not request.caller.superuser:
                raise NotPermitted("worker can be asked for by superusers only; leave it out of where")
            case ComparePayload(path, _, _):
                _refuse_readers(request)
                if redaction.hides(path):  # from everybody: a superuser is not shown it either
                    name = ".".join(map(str, path))
                    raise InvalidInput(
                        f"payload.{name} is hidden by the setting redact; leave it out of where"
                    )
            case HoldsText(_, in_payload=True):
                _refuse_search(request)
            case _:
                continue


def _refuse_search(request: Request[Any, Any]) -> None:
    """A text is looked for in the whole payload, hidden parts included."""
    _refuse_readers(request)
    if request.api.redaction.hides_something and not request.caller.superuser:
        raise NotPermitted(
            "payloads can be searched for a text by superusers only, because the setting redact hides parts "
            "of them; ask for a member, as in payload.user_id:42, or for a text in errors: error:timeout"
        )


def _refuse_readers(request: Request[Any, Any]) -> None:
    if not request.caller.sees_payloads:
        raise NotPermitted("payloads can be searched with the scope manage only; leave them out")


class FieldShape(Struct, frozen=True, kw_only=True):
    """A field: what it is about, what its values are, and how it is asked for."""

    name: str
    aliases: tuple[str, ...]
    kind: str
    operators: tuple[str, ...]
    help: str
    example: str


class FieldList(Struct, frozen=True):
    items: tuple[FieldShape, ...]


async def list_fields(request: Request[Nothing, None]) -> Answer:
    del request
    return Answer(
        FieldList(
            tuple(
                FieldShape(
                    name=field.name,
                    aliases=field.aliases,
                    kind=str(field.kind),
                    operators=tuple(str(operator) for operator in field.operators),
                    help=field.help,
                    example=field.example,
                )
                for field in describe_fields()
            )
        )
    )


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/filter-fields",
        name="filter_fields",
        summary="The fields of the filter language",
        permission=Permission.READ,
        handler=list_fields,
        answers={200: FieldList},
        tag="jobs",
    ),
)
