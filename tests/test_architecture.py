"""The import directions of ARCHITECTURE.md: one table, package → packages it may import."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import tidewheel

PACKAGE = Path(tidewheel.__file__).parent

CORE = {"__about__", "core", "errors", "settings"}
BELOW_CLIENT = CORE | {"access", "stores", "telemetry"}
BELOW_WORKER = BELOW_CLIENT | {"client", "tasks"}
BELOW_APP = BELOW_WORKER | {"admin", "pull", "remote", "schedules", "worker"}
BELOW_DOORS = BELOW_APP | {"app", "builtin", "verification"}

ALLOWED: dict[str, set[str]] = {
    "__about__": set(),
    "errors": set(),
    "core": {"errors"},
    "settings": {"core", "errors"},
    "stores": {"__about__", "core", "errors"},
    "access": CORE | {"stores"},
    "telemetry": CORE | {"stores"},
    "client": BELOW_CLIENT,
    "tasks": BELOW_CLIENT | {"client"},
    "worker": BELOW_WORKER,
    "schedules": BELOW_WORKER | {"worker"},
    "pull": BELOW_WORKER | {"worker"},
    "remote": BELOW_WORKER | {"pull", "schedules", "worker"},
    "admin": BELOW_WORKER | {"schedules", "worker"},
    "app": BELOW_APP | {"verification"},  # the check when a worker starts
    "": BELOW_DOORS,  # the public names, imported when they are used
    "builtin": BELOW_WORKER | {"admin"},
    "verification": BELOW_DOORS,
    "server": BELOW_DOORS,
    "beanstalkd": BELOW_DOORS,
    "testing": BELOW_DOORS,
    "cli": BELOW_DOORS | {"beanstalkd", "server"},
    "integrations": BELOW_DOORS | {"cli"},
}
"""The only imports between packages, at any place of a module; those for the type checker are not counted."""

IMPORTED_LATE = {
    "access.access_control": "PyJWT and cryptography take longer to import than all of Tidewheel",
    "app": "a program pays for the parts of the app that it uses",
    "beanstalkd.listener": "listens for early clients before anything else is imported",
    "cli": "listens for early clients of beanstalkd before it imports the commands",
    "cli.beanstalkd": "--help and -v need no server, and garbage collection is off while it is imported",
    "cli.command_group": "--help imports no command and no tables",
    "cli.completion": "completing the name of a command needs no store",
    "integrations.django": "Django imports it while it reads INSTALLED_APPS, before models can be used",
    "integrations.django.apps": "as above",
    "integrations.django.project": "django.tasks is optional",
    "stores": "the URL decides which store and which driver is needed; drivers are optional",
    "testing.plugin": "pytest loads it wherever Tidewheel is installed",
    "worker": "processes that run no handlers use parts of it",
    "worker.executor": "only isolated tasks need the pool of processes",
}
"""The only modules that import others of this package inside functions, each with its reason."""

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


def _imports(tree: ast.AST) -> Iterator[str]:
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
        if head == "tidewheel":
            yield rest if rest in modules() else rest.rpartition(".")[0]


def package_of(name: str) -> str:
    return name.partition(".")[0]


def test_packages_import_only_what_the_table_allows() -> None:
    """Imports point down."""
    wrong = []
    for name in modules():
        package = package_of(name)
        assert package in ALLOWED, f"{package} is no package of the table"
        allowed = ALLOWED[package] | {package}
        above = [imported for imported in ours(name) if package_of(imported) not in allowed]
        wrong += [f"{name} imports {imported}" for imported in above]
    assert not wrong


def test_no_modules_import_each_other_in_a_cycle() -> None:
    """Imports inside functions are counted, so that none of them hides a cycle."""
    cyclic = {name: set(ours(name)) - {name} for name in modules()}
    while True:
        imported = set().union(*cyclic.values())
        ends = {name for name in cyclic if name not in imported or not cyclic[name] & cyclic.keys()}
        if not ends:
            break
        cyclic = {name: others - ends for name, others in cyclic.items() if name not in ends}
    assert cyclic == {}


def test_modules_import_each_other_at_the_top_of_the_file() -> None:
    """A reader sees there what a module needs. The exceptions have reasons."""
    late = set()
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                imported.partition(".")[0] == "tidewheel" for imported in _imports(node)
            ):
                late.add(name)
    assert late == IMPORTED_LATE.keys()


def test_only_stores_touch_databases() -> None:
    """No SQL above the stores."""
    wrong = []
    for name in modules():
        drivers = DATABASE_DRIVERS & {imported.partition(".")[0] for imported in imports(name)}
        if drivers and package_of(name) != "stores":
            wrong.append((name, drivers))
    assert not wrong


def test_one_store_alone_speaks_http() -> None:
    """Whose database is another Tidewheel; nobody else imports an HTTP client, nor pays for loading one."""
    users = {name for name in modules() if any(one.split(".")[0] == "httpx2" for one in imports(name))}
    assert users == {"stores", "stores.http.api_client"}  # the first only looks whether it is there


def test_only_the_cli_prints() -> None:
    """No surprise on standard output."""
    wrong = []
    for name, tree in modules().items():
        if package_of(name) != "cli":
            calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
            if said := calls & {"print", "sys.exit", "exit"}:
                wrong.append((name, said))
    assert not wrong


def test_only_the_beanstalkd_door_knows_tubes() -> None:
    """Everybody else has topics; two words for one thing would soon be two things."""
    wrong = []
    for name, tree in modules().items():
        if package_of(name) == "beanstalkd" or name == "cli.beanstalkd":  # which shows its options
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
    door = [name for name in modules() if package_of(name) == "beanstalkd"]
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
