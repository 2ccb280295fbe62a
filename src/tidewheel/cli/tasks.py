"""``tidewheel tasks``: the tasks of an app, for people and for programs."""

from __future__ import annotations

from typing import Any, Final

import click

from tidewheel.cli import formats
from tidewheel.cli.app_loader import load_app
from tidewheel.cli.target_options import traceback_option
from tidewheel.cli.terminal import Cell, Column, examples, json_option, print_json, print_table
from tidewheel.tasks.task import Task
from tidewheel.tasks.task_schemas import task_types_document

_COLUMNS: Final = (
    Column("name"),
    Column("topic"),
    Column("attempts", "right"),
    Column("timeout", "right"),
    Column("takes"),
    Column("aliases"),
)


@click.command(
    epilog=examples(
        "tidewheel tasks myproject.jobs:app",
        "tidewheel tasks myproject.jobs:app --openapi > tasks.json",
    )
)
@click.argument("app_reference", metavar="MODULE:APP")
@click.option(
    "--openapi",
    is_flag=True,
    help="Print what each takes and gives back as an OpenAPI document, to make types of for other languages.",
)
@json_option
@traceback_option
def tasks(app_reference: str, openapi: bool, as_json: bool) -> None:
    """List the tasks of an app, and what they take.

    Nothing is opened: it is about the code of the app, and not about a store. With --openapi it prints what
    GET /api/jobs/tasks/openapi.json of a server answers.
    """
    registry = load_app(app_reference).registry
    found = sorted(registry, key=lambda task: task.name)
    if openapi:
        print_json(task_types_document(registry))
    elif as_json:
        print_json([_as_json(task) for task in found])
    else:
        print_table(_COLUMNS, [_cells(task) for task in found], empty="no tasks: register one with @app.task")


def _as_json(task: Task[..., Any]) -> dict[str, Any]:
    return {
        "name": task.name,
        "topic": task.topic,
        "aliases": list(task.aliases),
        "durable": task.durable,
        "max_attempts": task.defaults["max_attempts"],
        "timeout": task.defaults["timeout"],
        "payload_schema": task.json_schema() if task.durable else None,
        "result_schema": task.result_schema() if task.durable else None,
    }


def _cells(task: Task[..., Any]) -> list[Cell]:
    attempts, timeout = task.defaults["max_attempts"], task.defaults["timeout"]
    return [
        Cell(task.name),
        Cell(task.topic),
        Cell("any" if attempts is None else str(attempts)),
        Cell("none" if timeout is None else formats.duration(timeout), plain_text=str(timeout)),
        Cell(_payload_members(task)),
        Cell(", ".join(task.aliases)),
    ]


def _payload_members(task: Task[..., Any]) -> str:
    """The members of its payload; those that may be left out have a question mark."""
    if not task.durable:
        return "any Python objects"
    schema = task.json_schema()
    required = schema.get("required", ())
    members = schema.get("properties", {})
    return ", ".join(name if name in required else f"{name}?" for name in members)
