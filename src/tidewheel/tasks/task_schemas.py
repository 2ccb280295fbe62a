"""Describe the payloads and results of all durable tasks, for programs in other languages.

``payload_schemas`` returns a JSON Schema: a union of the payloads, distinguished by ``task``.
``task_types_document`` returns an OpenAPI 3.1 document, from which generators make types of payloads and
results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from tidewheel.__about__ import __version__
from tidewheel.tasks.registry import Registry


def payload_schemas(registry: Registry) -> dict[str, Any]:
    """A union of the durable tasks, told apart by ``task``."""
    definitions = {
        task.name: task.json_schema(f"#/$defs/{escape_pointer(task.name)}/$defs/")
        for task in registry
        if task.durable
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs",
        "oneOf": [
            {
                "type": "object",
                "properties": {
                    "task": {"const": name},
                    "payload": {"$ref": f"#/$defs/{escape_pointer(name)}"},
                },
                "required": ["task", "payload"],
            }
            for name in definitions
        ],
        "discriminator": {"propertyName": "task"},
        "$defs": definitions,
    }


def escape_pointer(name: str) -> str:
    """A name as part of a JSON pointer inside a URL."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~")


_COMPONENTS: Final = "#/components/schemas/"
_DEFINITIONS: Final = "#/$defs/"
_VALUES: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data, whatever they look like."""
_BY_NAME: Final = frozenset({"$defs", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose values are schemas by names, which are no keywords."""
_MEMBERS: Final = frozenset({"additionalProperties", "patternProperties", "properties"})
"""Keywords that say which members an object has."""


def task_types_document(registry: Registry) -> dict[str, Any]:
    """An OpenAPI 3.1 document whose schema ``Tasks`` has a property for each durable task: what it takes and
    gives back. There are no paths: it is for programs that make types of it.
    """
    components: dict[str, Any] = {"Tasks": {}}  # the name is taken
    known: dict[str, str] = {}  # what a definition says, with all it refers to: its name here
    tasks: dict[str, Any] = {}
    for task in sorted((task for task in registry if task.durable), key=lambda task: task.name):
        tasks[task.name] = {
            "type": "object",
            "properties": {
                "payload": _hoist_definitions(task.json_schema(), components, known),
                "result": _hoist_definitions(task.result_schema() or {}, components, known),
            },
            "required": ["payload", "result"],
        }
    components["Tasks"] = {
        "description": "Every task by name: what it takes, and what it gives back.",
        "type": "object",
        "properties": tasks,
        "required": list(tasks),
    }
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {"title": "Tasks", "version": __version__},
        "paths": {},
        "components": {"schemas": components},
    }


def _hoist_definitions(
    schema: Mapping[str, Any], components: dict[str, Any], known: dict[str, str]
) -> dict[str, Any]:
    """The schema with its definitions among the components. Two tasks may mean different things by a name."""
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    names = {}  # references as they are: as they will be
    new = {}  # definitions that no task had before, by their names here
    for name, definition in definitions.items():
        needed = {other: definitions[other] for other in sorted(_reachable_definitions(name, definitions))}
        meant = json.dumps([name, needed], sort_keys=True)
        if meant not in known:
            known[meant] = _free_name(name, components)
            components[known[meant]] = {}  # taken, until all references are known
            new[known[meant]] = definition
        names[_DEFINITIONS + escape_pointer(name)] = _COMPONENTS + known[meant]
    components.update({name: _renamed(definition, names) for name, definition in new.items()})
    renamed: dict[str, Any] = _renamed({key: value for key, value in schema.items() if key != "$defs"}, names)
    return renamed


def _reachable_definitions(name: str, definitions: Mapping[str, Any]) -> set[str]:
    """A definition, and all that it needs."""
    by_reference = {_DEFINITIONS + escape_pointer(other): other for other in definitions}
    found = {name}
    waiting = [name]
    while waiting:
        for reference in _references(definitions[waiting.pop()]):
            other = by_reference.get(reference)
            if other is not None and other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
    elif isinstance(schema, str) and schema.startswith(_DEFINITIONS):
        yield schema


def _free_name(name: str, components: Mapping[str, Any]) -> str:
    """The name as components may have it, with a number where it is taken."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    free, number = plain, 1
    while free in components:
        number += 1
        free = f"{plain}_{number}"
    return free


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    """The schema with other references; what is data in it stays as it is."""
    if isinstance(schema, list):
        return [_renamed(part, names) for part in schema]
    if not isinstance(schema, dict):
        return schema
    renamed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _VALUES:
            renamed[key] = value
        elif key in _BY_NAME and isinstance(value, dict):
            renamed[key] = {name: _renamed(part, names) for name, part in value.items()}
        elif key == "$ref":
            renamed[key] = names.get(value, value)
        elif key == "mapping" and isinstance(value, dict):  # of a discriminator, from tags to references
            renamed[key] = {tag: names.get(part, part) for tag, part in value.items()}
        else:
            renamed[key] = _renamed(value, names)
    if renamed.get("type") == "object" and not _MEMBERS & renamed.keys():
        renamed[
            "additionalProperties"
        ] = {}  # as JSON Schema means it; makers of types take it for an empty one
    return renamed
