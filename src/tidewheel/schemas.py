"""JSON Schema of the payloads of all tasks, for programs in other languages."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tidewheel.registry import Registry


def payload_schemas(registry: Registry) -> dict[str, Any]:
    """A union of the durable tasks, told apart by ``task``."""
    definitions = {
        task.name: task.json_schema(f"#/$defs/{pointer(task.name)}/$defs/")
        for task in registry
        if task.durable
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs",
        "oneOf": [
            {
                "type": "object",
                "properties": {"task": {"const": name}, "payload": {"$ref": f"#/$defs/{pointer(name)}"}},
                "required": ["task", "payload"],
            }
            for name in definitions
        ],
        "discriminator": {"propertyName": "task"},
        "$defs": definitions,
    }


def pointer(name: str) -> str:
    """A name as part of a JSON pointer inside a URL."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~")
