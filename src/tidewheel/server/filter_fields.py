"""The fields of the filter language, for help and completion."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidewheel.filtering import describe_fields
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route


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
