"""Every query of an ``.sql`` file is used, and every query that is used exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidewheel.stores
from tidewheel.core.model import DerivedState, State
from tidewheel.stores.sql_files import SqlFile

STORES = Path(tidewheel.stores.__file__).parent
FILES = [
    path.relative_to(STORES).as_posix()
    for path in sorted(STORES.rglob("*.sql"))
    if "\n-- name: " in "\n" + path.read_text("utf-8")
]


class Usage:
    """The queries that the modules of one store use, found in their sources."""

    def __init__(self, store: str) -> None:
        self.names: dict[str, set[str]] = {}
        """By file: the queries it has."""
        self.used: dict[str, set[str]] = {}
        """By file: the queries that some module names."""
        self.unknown: list[str] = []
        """Queries that a module names and that are in no file."""
        trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted((STORES / store).glob("*.py"))}
        self._texts = set().union(*(_texts(tree) | _states(tree) for tree in trees.values()))
        for path, tree in trees.items():
            module = importlib.import_module(
                f"tidewheel.stores.{store}.{path.stem}".removesuffix(".__init__")
            )
            files = {name: value for name, value in vars(module).items() if isinstance(value, SqlFile)}
            for queries in files.values():
                self.names.setdefault(_file_of(queries), set(queries.names()))
            self._read(path.name, tree, files)

    def _read(self, file: str, tree: ast.Module, files: dict[str, SqlFile]) -> None:
        for node in ast.walk(tree):
            match node:
                case ast.Subscript(value=ast.Name(id=name), slice=key) if name in files:
                    self._use(f"{file}:{node.lineno}", tree, files[name], key)
                case ast.Attribute(value=ast.Name(id=name), attr="names") if name in files:
                    self.used.setdefault(_file_of(files[name]), set()).update(files[name].names())

    def _use(self, place: str, tree: ast.Module, queries: SqlFile, key: ast.expr) -> None:
        names = set(queries.names())
        used = self.used.setdefault(_file_of(queries), set())
        match key:
            case ast.Constant() | ast.IfExp():
                said = _texts(key)
            case ast.JoinedStr():
                pattern = re.compile("".join(map(_pattern, key.values)))
                said = {name for name in names if pattern.fullmatch(name)} or {ast.unparse(key)}
            case ast.Name():
                # The name comes in as an argument, or from a table: any text of the store may be it.
                said = set(_arguments(tree, key.id))
                used |= self._texts & names
            case _:
                said = {ast.unparse(key)}
        used |= said & names
        self.unknown += [f"{place}: {name}" for name in sorted(said - names)]


def _file_of(queries: SqlFile) -> str:
    """Return the path below ``stores``, whichever package it was given with."""
    package, _, path = queries._where.partition("/")
    return f"{package.removeprefix('tidewheel.stores.').replace('.', '/')}/{path}"


def _texts(tree: ast.AST) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _states(tree: ast.AST) -> set[str]:
    """States are texts, and some queries are called like the state they look for."""
    kinds = {"State": State, "DerivedState": DerivedState}
    return {
        kinds[node.value.id][node.attr].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in kinds
    }


def _pattern(part: ast.expr) -> str:
    return re.escape(part.value) if isinstance(part, ast.Constant) and isinstance(part.value, str) else ".+"


def _arguments(tree: ast.Module, parameter: str) -> Iterator[str]:
    """Texts that calls in this module pass as this parameter, to functions that use it as a query's name."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or not _uses(function, parameter):
            continue
        parameters = [argument.arg for argument in function.args.args]
        if parameter not in parameters:
            continue
        position = parameters.index(parameter) - (parameters[0] == "self")
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _called(call) == function.name:
                passed = [word.value for word in call.keywords if word.arg == parameter]
                passed += call.args[position : position + 1]
                yield from (text for one in passed for text in _texts(one))


def _uses(function: ast.AST, parameter: str) -> bool:
    return any(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id == parameter
        for node in ast.walk(function)
    )


def _called(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


@pytest.fixture(scope="module")
def usages() -> dict[str, Usage]:
    return {store: Usage(store) for store in ("sqlite", "postgres")}


@pytest.mark.parametrize("file", FILES)
def test_every_query_of_a_file_is_used(file: str, usages: dict[str, Usage]) -> None:
    """A query that no module names any more is to be deleted, or was renamed on one side only."""
    usage = usages[file.partition("/")[0]]
    assert file in usage.names, "no module reads this file"
    assert usage.names[file] - usage.used[file] == set()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_every_query_that_is_used_exists(store: str, usages: dict[str, Usage]) -> None:
    """A query with a misspelt name would be missed only when its verb is called."""
    assert usages[store].unknown == []
    assert len(usages[store].used) > 10
