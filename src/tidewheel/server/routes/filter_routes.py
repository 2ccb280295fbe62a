"""Filters over HTTP: list the fields of the filter language, and check filter permissions.

A filter may ask only for values that its caller may see. Otherwise a caller who may ask whether a hidden text
begins with an *a* would know the text after a few dozen questions.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, cast

from msgspec import Meta, Struct

from tidewheel.admin.filters import MAX_SEARCH_LENGTH, JobFilters, describe_fields, parse_filter
from tidewheel.admin.filters.fields import read_state
from tidewheel.core.conditions import Compare, ComparePayload, ContainsText, Field, leaves
from tidewheel.errors import InvalidFilter, InvalidInput, NotPermitted
from tidewheel.server.field_types import TenantName
from tidewheel.server.problems import Problem, invalid_input_problem, problem_at
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route


def check_filter_permissions(request: Request[Any, Any], where: str | None, text: str | None) -> None:
    """Refuse a filter, or a text to search for, that looks at what this caller would not be shown."""
    if text is not None:
        _check_text_search(request)
    if where is None:
        return
    settings, redaction = request.app.settings, request.api.redaction
    asked = parse_filter(where, now=request.app.clock.now(), uuids=settings.tenant_uuids)
    for leaf in leaves(asked.condition):
        match leaf:
            case Compare(Field.WORKER, _, _) if not request.caller.superuser:
                raise NotPermitted("worker can be asked for by superusers only; leave it out of where")
            case ComparePayload(path, _, _):
                _check_payload_search(request)
                if redaction.hides(path):  # from everybody: a superuser is not shown it either
                    name = ".".join(map(str, path))
                    raise InvalidInput(
                        f"payload.{name} is hidden by the setting redact; leave it out of where"
                    )
            case ContainsText(_, in_payload=True):
                _check_text_search(request)
            case _:
                continue


def _check_text_search(request: Request[Any, Any]) -> None:
    """A text is looked for in the whole payload, hidden parts included."""
    _check_payload_search(request)
    if request.api.redaction.is_active and not request.caller.superuser:
        raise NotPermitted(
            "payloads can be searched for a text by superusers only, because the setting redact hides parts "
            "of them; ask for a member, as in payload.user_id:42, or for a text in errors: error:timeout"
        )


def _check_payload_search(request: Request[Any, Any]) -> None:
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


async def list_fields(request: Request[NoQuery, None]) -> Response:
    del request
    return Response(
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
        path=f"{API_ROOT}/filter-fields",
        name="filter_fields",
        summary="The fields of the filter language",
        permission=Permission.READ,
        handler=list_fields,
        responses={200: FieldList},
        tag="jobs",
    ),
)


Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


SearchText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_SEARCH_LENGTH)]


class JobsFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs. ``handler_id`` is another name for ``task``, ``status`` for ``state``."""

    where: SearchText | None = None
    topic: SearchText | None = None
    task: Annotated[str, Meta(max_length=MAX_SEARCH_LENGTH)] | None = None
    handler_id: SearchText | None = None
    state: SearchText | None = None
    status: SearchText | None = None
    tenant: TenantName | None = None
    key: SearchText | None = None
    correlation_id: SearchText | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    text: SearchText | None = None

    def filters(self, request: Request[Any, Any], pointer: str | None = None) -> JobFilters:
        """The same under the names of the Python API, without what was not given.

        ``pointer``: where in the body it is; None is the query.
        """

        def wrong(name: str, detail: str) -> Problem:
            if pointer is None:
                return invalid_input_problem(detail, parameter=name)
            return invalid_input_problem(detail, pointer=f"{pointer}/{name}")

        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("where", "topic", "task", "tenant", "key", "correlation_id", "text")
        }
        given["created_after"], given["created_before"] = self.created_after, self.created_before
        for ours, theirs in (("task", "handler_id"), ("state", "status")):
            value, other = getattr(self, ours), getattr(self, theirs)
            if value is not None and other is not None:
                raise wrong(theirs, f"{ours} and {theirs} are the same; give one of them")
            given[ours] = other if value is None else value
        if given["state"] is not None:
            try:
                given["state"] = str(read_state(given["state"]))
            except InvalidInput as error:
                raise wrong("state" if self.status is None else "status", str(error)) from None
        if given["tenant"] is not None and request.context is not None:
            raise wrong("tenant", "tenant can be chosen by superusers only; leave it out")
        try:
            check_filter_permissions(request, self.where, self.text)
        except InvalidFilter as error:
            if pointer is None:
                raise
            raise problem_at(error, f"{pointer}/where") from None
        chosen = {name: value for name, value in given.items() if value is not None}
        return cast("JobFilters", chosen)  # the app checks every value
