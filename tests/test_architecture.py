"""The arrows of ARCHITECTURE.md, walked: who may import whom."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import windlass

PACKAGE = Path(windlass.__file__).parent

FOUNDATIONS = {
    "__about__", "carried", "clock", "conditions", "errors", "findings", "fingerprints", "headers", "ids",
    "model", "names", "narrowing", "outcome", "payload", "retry", "security", "timeline", "urls", "whole",
    "wording",
}  # fmt: skip
STORE_SEAM = {"stores", "stores.joining", "stores.protocol"}
HALL = {
    "access", "annotations", "answers", "app", "attention", "background", "benchmark", "blocking",
    "blocking_twins", "borrowed", "bulk", "callbacks", "calls", "connections", "context", "copying",
    "enqueueing", "fields", "filtering", "filters", "fleet", "glance", "including", "isolation", "job",
    "lane", "lane_thread", "lifecycle", "making", "managing", "mismatch", "moving", "open_files", "options",
    "orders", "pulling", "questions", "reconciliation", "registry", "remedies", "results", "returns",
    "schema_scripts", "schemas", "settings", "shapes", "signature", "steps", "stuck", "succession", "task",
    "telemetry", "transaction", "using", "verification", "visibility", "watching",
}  # fmt: skip
DOORS = {"cli", "testing", "server", "beanstalkd", "integrations"}
DATABASE_DRIVERS = {"sqlite3", "asyncpg", "psycopg", "aiosqlite"}


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield name, ast.parse(path.read_text("utf-8"))


MODULES = dict(_modules())
each_module = pytest.mark.parametrize("name", MODULES, ids=lambda name: name or "windlass")


def imports(tree: ast.Module) -> Iterator[str]:
    """Every module imported at run time, lazily or not; imports for the type checker are no arrows."""
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def ours(tree: ast.Module) -> Iterator[str]:
    """Imported modules of this package, without its name; a name inside a module counts as that module."""
    for name in imports(tree):
        head, _, rest = name.partition(".")
        if head == "windlass" and rest:
            yield rest if rest in MODULES else rest.rpartition(".")[0]


def layer_of(name: str) -> str:
    head = name.partition(".")[0]
    if name in FOUNDATIONS:
        return "foundations"
    if head in {"stores", "worker", "tasks"} | DOORS:
        return head
    return "hall" if head in HALL or name == "" else "unknown"


ALLOWED = {
    "foundations": {"foundations"},
    "stores": {"foundations", "stores"},
    "worker": {"foundations", "hall", "worker"},  # and the seam of the stores, see below
    "hall": {"foundations", "hall", "worker"},
    "tasks": {"foundations", "hall", "tasks"},  # like a program of a user's
    **{door: {"foundations", "hall", "worker", door} for door in DOORS},
}
ALLOWED["cli"] = ALLOWED["cli"] | {"tasks"}  # what they did is compared with the disk
ALLOWED["testing"] = ALLOWED["testing"] | {"stores"}  # the conformance suite drives stores directly

OPENS = {
    ("cli.serve", "server"), ("cli.demo.door", "server"),
    ("cli.beanstalkd", "beanstalkd"), ("cli.early", "beanstalkd"),
    ("integrations.flask", "cli"), ("integrations.django.command", "cli"),
}  # fmt: skip
"""Doors do not know each other, but for the commands that open one."""


@each_module
def test_imports_point_down(name: str) -> None:
    """Foundations know nobody, stores know foundations, nobody but stores looks inside a store."""
    tree = MODULES[name]
    layer = layer_of(name)
    assert layer != "unknown", f"{name} belongs to no layer; add it where it belongs"
    for imported in ours(tree):
        if (name, layer_of(imported)) in OPENS:
            continue
        if imported in STORE_SEAM and layer not in {"foundations", *(DOORS - {"testing"})}:
            continue
        assert layer_of(imported) in ALLOWED[layer], (
            f"{name} ({layer}) imports {imported} ({layer_of(imported)})"
        )


@each_module
def test_only_stores_touch_databases_and_only_the_cli_prints(name: str) -> None:
    """No SQL above the stores, no surprise on standard output."""
    tree = MODULES[name]
    if layer_of(name) != "stores":
        assert not DATABASE_DRIVERS & {imported.partition(".")[0] for imported in imports(tree)}
    if layer_of(name) != "cli":
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not calls & {"print", "sys.exit", "exit"}


@each_module
def test_only_the_beanstalkd_door_knows_tubes(name: str) -> None:
    """Everybody else has topics; two words for one thing would soon be two things."""
    if layer_of(name) == "beanstalkd" or name == "cli.beanstalkd":  # which shows its options
        return
    words = {
        word
        for node in ast.walk(MODULES[name])
        for word in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "value", ""))
        if isinstance(word, str) and re.search(r"\btubes?\b", word, re.IGNORECASE)
    }
    assert not words


@each_module
def test_the_beanstalkd_door_calls_no_store(name: str) -> None:
    """It holds an app, as the others do, and has its verbs from ``app.queue``."""
    if layer_of(name) == "beanstalkd":
        attributes = {node.attr for node in ast.walk(MODULES[name]) if isinstance(node, ast.Attribute)}
        assert not attributes & {"store", "_store"}


def test_one_store_does_not_know_another() -> None:
    """What they share lives beside them, not in one of them."""
    for name, tree in MODULES.items():
        parts = name.split(".")
        if parts[0] == "stores" and len(parts) > 1 and parts[1] in {"memory", "sqlite", "postgres"}:
            others = {"memory", "sqlite", "postgres"} - {parts[1]}
            for imported in ours(tree):
                assert imported.split(".")[1:2] not in [[other] for other in others], (
                    f"{name} imports {imported}"
                )


def test_no_file_has_let_a_second_noun_move_in() -> None:
    """Six hundred lines are a warning sign."""
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 600, path.name
