"""The OpenAPI 3.1 document, made from the route table: the types that check input describe it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc
from typing import Any, Final

import msgspec
from msgspec.inspect import (
    CollectionType,
    DataclassType,
    DateTimeType,
    StructType,
    Type,
    UnionType,
    multi_type_info,
)

from tidewheel.__about__ import __version__
from tidewheel.server.problems import (
    CSRF_FAILED,
    HEADERS_TOO_LARGE,
    INTERNAL_ERROR,
    INVALID_INPUT,
    MALFORMED_JSON,
    NOT_AUTHENTICATED,
    NOT_OPEN,
    NOT_PERMITTED,
    REQUEST_TIMEOUT,
    STORE_UNAVAILABLE,
    TIMED_OUT,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    URI_TOO_LONG,
    ProblemDocument,
    ProblemType,
)
from tidewheel.server.route import NoQuery, Permission, Route

_parameter = re.compile(r"\{(\w+)(?::(\w+))?\}")
# Topics made over beanstalkd's wire can be paused, too; a slash in one may be sent as it is or as %2F.
_PATTERNS: Final = {
    "topic": r"^[A-Za-z0-9_+/;.$()-]{1,200}$",
    "key": "^[0-9a-f]{16}$",
    "superuser": "^[^:/]{1,100}$",
}
"""What parameters in a path look like, where they are no ids of jobs."""
_REFERENCE: Final = "#/components/schemas/{name}"

_STATUS_TEXTS: Final = {
    200: "As asked",
    201: "Made",
    202: "Accepted",
    204: "Done",
}
PERMISSION_TEXTS: Final = {
    Permission.PUBLIC: "Open to anybody.",
    Permission.ENQUEUE: "For whom `enqueue_rule` allows it; keys and tokens need the scope `enqueue`.",
    Permission.READ: "For whom `manage_rule` allows it, about the jobs it lets them see; "
    "keys and tokens need the scope `read` or `manage`.",
    Permission.MANAGE: "For whom `manage_rule` allows it, about the jobs it lets them see; "
    "keys and tokens need the scope `manage`.",
    Permission.SUPERUSER: "For superusers.",
    Permission.WORK: "For workers: superusers whose keys and tokens have the scope `work`.",
    Permission.SESSION: "For people who log in.",
}


def build_document(routes: Sequence[Route]) -> dict[str, Any]:
    """The whole document; the same for every app."""
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    for name, schema in components.items():
        if "description" in schema:
            components[name] = {**schema, "description": cleandoc(schema["description"])}
    for described in multi_type_info(types):
        _mark_times(described, components, set())
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, by_type, components)
        for path in route.paths:
            own = operation if path == route.path else _alias(operation, path)
            paths.setdefault(openapi_path(path), {})[route.method.lower()] = own
    for kind in types:  # their members are listed as parameters; nobody refers to them
        if any(kind is route.query for route in routes):
            components.pop(kind.__name__, None)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Tidewheel",
            "version": __version__,
            "summary": "A durable job queue.",
            "description": "Errors are problem documents (RFC 9457) with stable types.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a JWT."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "tidewheel_session",
                    "description": "A session; what changes something needs X-CSRF-Token, too.",
                },
            },
        },
    }


def _mark_times(kind: Type, components: dict[str, Any], seen: set[type]) -> None:
    """Say of every time that it is one, which msgspec does only of those that it checks."""
    match kind:
        case UnionType(types):
            for part in types:
                _mark_times(part, components, seen)
        case CollectionType(item):
            _mark_times(item, components, seen)
        case StructType(cls) | DataclassType(cls) if cls not in seen:
            seen.add(cls)
            for field in kind.fields:
                _mark_times(field.type, components, seen)
                options = field.type.types if isinstance(field.type, UnionType) else (field.type,)
                if any(isinstance(option, DateTimeType) for option in options):
                    described = components[cls.__name__]["properties"][field.encode_name]
                    for option in described.get("anyOf", [described]):
                        if option.get("type") == "string":
                            option["format"] = "date-time"


def openapi_path(path: str) -> str:
    """A path as OpenAPI writes it."""
    return _parameter.sub(r"{\1}", path)


def _types(routes: Iterable[Route]) -> list[type]:
    found: dict[type, None] = {ProblemDocument: None}
    for route in routes:
        for kind in (route.query, route.body, *route.responses.values()):
            if kind is not None and kind is not NoQuery:
                found[kind] = None
    return list(found)


def _operation(route: Route, by_type: dict[type, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": PERMISSION_TEXTS[route.permission],
        "tags": [route.tag],
        "security": _security(route),
    }
    parameters = [
        *_path_parameters(route),
        *_query_parameters(route, by_type, components),
        *_header_parameters(route),
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": by_type[route.body]}},
        }
    operation["responses"] = {
        **{str(status): _response(route, status, by_type) for status in sorted(route.responses)},
        **_problems(route),
    }
    return operation


def _alias(operation: dict[str, Any], path: str) -> dict[str, Any]:
    suffix = "root" if path.endswith("/") else "alias"
    return {**operation, "operationId": f"{operation['operationId']}_{suffix}"}


def _security(route: Route) -> list[dict[str, list[str]]]:
    known: list[dict[str, list[str]]] = [{"bearer": []}, {"session": []}]
    if route.permission is Permission.PUBLIC:
        return []
    if route.permission in {Permission.SUPERUSER, Permission.WORK}:
        return known
    return [*known, {}]  # a rule may be open to all


def _path_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name, kind in _parameter.findall(route.path):
        schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if kind == "uuid":
            schema = {"type": "string", "format": "uuid"}
        elif name in _PATTERNS:
            schema = {"type": "string", "pattern": _PATTERNS[name]}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(
    route: Route, by_type: dict[type, Any], components: dict[str, Any]
) -> Iterable[dict[str, Any]]:
    if route.query is NoQuery:
        return
    schema = by_type[route.query]
    if "$ref" in schema:
        schema = components[schema["$ref"].rpartition("/")[2]]
    for name, described in schema["properties"].items():
        shown = _without_null(described)
        parameter = {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": {key: value for key, value in shown.items() if key != "description"},
        }
        if "description" in shown:
            parameter["description"] = shown["description"]
        yield parameter


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is null; as text there is no such thing."""
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    return {**options[0], **rest}


def _header_parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name, meaning in route.parameters.items():
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": meaning,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }


def _response(route: Route, status: int, by_type: dict[type, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _STATUS_TEXTS[status]}
    kind = route.responses[status]
    if kind is not None:
        answer["content"] = {route.media_type: {"schema": by_type[kind]}}
    elif status != 204:
        answer["content"] = {route.media_type: {"schema": {"type": "string"}}}
        if route.media_type == "application/json":
            answer["content"] = {route.media_type: {"schema": {"type": "object"}}}
    return answer


def route_problems(route: Route) -> tuple[ProblemType, ...]:
    """Every problem a route may answer: its own, and those of all routes of its kind."""
    found = [*route.problems, INVALID_INPUT, INTERNAL_ERROR, TIMED_OUT, STORE_UNAVAILABLE, NOT_OPEN]
    found += (URI_TOO_LONG, HEADERS_TOO_LARGE)
    if route.permission is not Permission.PUBLIC:
        found += (NOT_AUTHENTICATED, NOT_PERMITTED)
        if route.is_mutation:
            found.append(CSRF_FAILED)
    if route.body is not None:
        found += (MALFORMED_JSON, TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, REQUEST_TIMEOUT)
    return tuple(dict.fromkeys(found))


def _problems(route: Route) -> dict[str, Any]:
    by_status: dict[int, list[ProblemType]] = {}
    for kind in route_problems(route):
        by_status.setdefault(kind.status, []).append(kind)
    return {
        str(status): {
            "description": "; ".join(f"`{kind.code}`: {kind.meaning}" for kind in kinds),
            "content": {
                "application/problem+json": {"schema": {"$ref": _REFERENCE.format(name="ProblemDocument")}}
            },
        }
        for status, kinds in sorted(by_status.items())
    }
