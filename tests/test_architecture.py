"""The arrows of ARCHITECTURE.md, walked: who may import whom."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import tidewheel

PACKAGE = Path(tidewheel.__file__).parent

FOUNDATIONS = {
    "__about__", "carried", "clock", "clock_guard", "conditions", "cron", "errors", "findings",
    "fingerprints", "headers", "ids", "jitter", "limits", "model", "names", "narrowing", "outcome", "payload",
    "retry", "security", "timeline", "urls", "whole", "wording",
}  # fmt: skip
STORE_SEAM = {"stores", "stores.elsewhere", "stores.joining", "stores.protocol"}
HALL = {
    "access", "annotations", "answers", "app", "attention", "background", "batch", "batch_signature",
    "benchmark", "blocking", "blocking_twins", "borrowed", "bulk", "callbacks", "calls", "connections",
    "context", "copying", "declaring", "draft", "enqueueing", "fields", "filtering", "filters", "fleet",
    "glance", "including", "isolation", "job", "lane", "lane_thread", "lifecycle", "limiting", "log_limit",
    "maintenance", "making", "managing", "middleware", "mismatch", "moving", "open_files", "options",
    "orders", "pulling", "questions",
    "reconciliation", "registry", "remedies", "remote", "results", "returns", "schedules", "schema_scripts",
    "schemas", "settings", "shapes", "signature", "steps", "stuck", "succession", "task", "task_types",
    "telemetry", "transaction", "using", "verification", "visibility", "watching",
    "worker_findings",
}  # fmt: skip
DOORS = {"cli", "testing", "server", "beanstalkd", "integrations"}
KINDS_OF_STORES = {"http", "memory", "postgres", "sqlite"}
DATABASE_DRIVERS = {"sqlite3", "asyncpg", "psycopg", "aiosqlite"}


@functools.cache
def modules() -> dict[str, ast.Module]:
    """All of them by name, parsed once. One test walks all of a rule and names whoever breaks it: a test for
    each module would take longer to begin and to report than to run.
    """
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


@functools.cache
def imports(name: str) -> list[str]:
    """Every module imported at run time, lazily or not; imports for the type checker are no arrows."""
    return list(_imports(modules()[name]))


def _imports(tree: ast.Module) -> Iterator[str]:
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING"
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


def ours(name: str) -> Iterator[str]:
    """Imported modules of this package, without its name; a name inside a module counts as that module."""
    for imported in imports(name):
        head, _, rest = imported.partition(".")
        if head == "tidewheel" and rest:
            yield rest if rest in modules() else rest.rpartition(".")[0]


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


def test_imports_point_down() -> None:
    """Foundations know nobody, stores know foundations, nobody but stores looks inside a store."""
    wrong = []
    for name in modules():
        layer = layer_of(name)
        assert layer != "unknown", f"{name} belongs to no layer; add it where it belongs"
        for imported in ours(name):
            if (name, layer_of(imported)) in OPENS:
                continue
            if imported in STORE_SEAM and layer not in {"foundations", *(DOORS - {"testing"})}:
                continue
            if layer_of(imported) not in ALLOWED[layer]:
                wrong.append(f"{name} ({layer}) imports {imported} ({layer_of(imported)})")
    assert not wrong


def test_only_stores_touch_databases() -> None:
    """No SQL above the stores."""
    wrong = []
    for name in modules():
        drivers = DATABASE_DRIVERS & {imported.partition(".")[0] for imported in imports(name)}
        if drivers and layer_of(name) != "stores":
            wrong.append((name, drivers))
    assert not wrong


def test_one_store_alone_speaks_http() -> None:
    """Whose database is another Tidewheel; nobody else imports an HTTP client, nor pays for loading one."""
    users = {name for name in modules() if any(one.split(".")[0] == "httpx2" for one in imports(name))}
    assert users == {"stores", "stores.http.client"}  # the first only looks whether it is there


def test_only_the_cli_prints() -> None:
    """No surprise on standard output."""
    wrong = []
    for name, tree in modules().items():
        if layer_of(name) != "cli":
            calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            if said := calls & {"print", "sys.exit", "exit"}:
                wrong.append((name, said))
    assert not wrong


def test_only_the_beanstalkd_door_knows_tubes() -> None:
    """Everybody else has topics; two words for one thing would soon be two things."""
    wrong = []
    for name, tree in modules().items():
        if layer_of(name) == "beanstalkd" or name == "cli.beanstalkd":  # which shows its options
            continue
        words = {
            word
            for node in ast.walk(tree)
            for word in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "value", ""))
            if isinstance(word, str) and re.search(r"\btubes?\b", word, re.IGNORECASE)
        }
        if words:
            wrong.append((name, words))
    assert not wrong


def test_the_beanstalkd_door_calls_no_store() -> None:
    """It holds an app, as the others do, and has its verbs from ``app.queue``."""
    door = [name for name in modules() if layer_of(name) == "beanstalkd"]
    assert door
    for name in door:
        attributes = {node.attr for node in ast.walk(modules()[name]) if isinstance(node, ast.Attribute)}
        assert not attributes & {"store", "_store"}, name


def test_one_store_does_not_know_another() -> None:
    """What they share lives beside them, not in one of them."""
    for name in modules():
        parts = name.split(".")
        if parts[0] == "stores" and len(parts) > 1 and parts[1] in KINDS_OF_STORES:
            others = KINDS_OF_STORES - {parts[1]}
            for imported in ours(name):
                assert imported.split(".")[1:2] not in [[other] for other in others], (
                    f"{name} imports {imported}"
                )


def test_no_file_has_let_a_second_noun_move_in() -> None:
    """Six hundred lines are a warning sign."""
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 600, path.name
