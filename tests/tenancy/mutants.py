"""Every place in the stores where a tenant is compared, found in their sources, and how to take it away.

Nothing is listed by hand: a predicate that is added tomorrow is a mutant tomorrow.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import pytest

import tidewheel.stores
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.protocol import Store
from tidewheel.stores.sql_files import SqlFile

STORES = Path(tidewheel.stores.__file__).parent

# `x.tenant = …` in SQL: with a parameter, a variable, a column or an array of one, or `min(tenant) =
# max(tenant)`; and the choice to tell what is of all tenants together.
_VALUE = (
    r"(?:ANY \(ARRAY\[[\w.]+(?:\[[\w.]+\])?\]\)|max\([\w.]+\)|[$\w.]+(?:\[[\w.]+(?:\[\w+\])?\])?(?:::text)?)"
)
_PREDICATE = re.compile(rf"(?:min\([\w.]*\btenant\)|[\w.]*\btenant) = {_VALUE}|p_tenant IS NULL(?= THEN)")
_MARK = re.compile(r"\{(?:tenant|key|line)\}")
_FUNCTION = re.compile(r"^CREATE FUNCTION (\w+)\(.*?\$\$.*?\$\$[^;]*;", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Mutant:
    """One predicate of one store."""

    store: str
    place: str  # file, statement or function, and which of several in it
    text: str

    caught_by: ClassVar[tuple[type[BaseException], ...]] = (AssertionError, pytest.fail.Exception)
    """What counts as caught. A statement that the database refuses shows nothing."""

    def __str__(self) -> str:
        return f"{self.store}/{self.place}"

    @asynccontextmanager
    async def alive(self, store: Store) -> AsyncIterator[None]:  # noqa: ARG002 - not all live in the database
        """The store without this predicate."""
        with self.patched():
            yield

    @contextmanager
    def patched(self) -> Iterator[None]:
        """This process without it."""
        yield


# -- Python -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PythonMutant(Mutant):
    """A comparison that is always true, or a key's name without its tenant."""

    # Not made for it.
    caught_by: ClassVar[tuple[type[BaseException], ...]] = (
        Exception,
        pytest.fail.Exception,
    )

    module: str
    function: str
    position: int  # among those of the module

    @contextmanager
    def patched(self) -> Iterator[None]:
        module = importlib.import_module(self.module)
        original, code = _function(vars(module), self.function), self._code(module)
        before, original.__code__ = original.__code__, code
        try:
            yield
        finally:
            original.__code__ = before

    def _code(self, module: ModuleType) -> Any:
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text("utf-8"))
        _, node = _python_sites(tree)[self.position]
        changed = ast.fix_missing_locations(_Replace(node).visit(tree))
        # Run apart from the module itself: what others have imported from it stays what it is.
        apart: dict[str, Any] = {"__name__": module.__name__, "__package__": module.__package__}
        exec(compile(changed, module.__file__, "exec"), apart)  # noqa: S102 - our own source
        return _function(apart, self.function).__code__


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def visit(self, node: ast.AST) -> Any:
        if node is not self._node:
            return self.generic_visit(node)
        value: bool | str = ""
        if isinstance(node, ast.Compare):  # as it would be if no tenant were asked for
            value = not isinstance(node.ops[0], ast.IsNot)
        return ast.copy_location(ast.Constant(value), node)


def _function(names: dict[str, Any], qualified: str) -> FunctionType:
    first, _, rest = qualified.partition(".")
    found = names[first]
    for name in rest.split(".") if rest else ():
        found = vars(found)[name]
    found = getattr(found, "fget", found)
    assert isinstance(found, FunctionType), qualified
    return found


def _python_sites(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    """The function and the node: comparisons of a tenant, and tenants in the names of keys."""
    found: list[tuple[str, ast.AST]] = []

    def walk(node: ast.AST, names: tuple[str, ...], inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            where, deeper = names, inside
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not inside:
                where, deeper = (*names, child.name), not isinstance(child, ast.ClassDef)
            if isinstance(child, ast.Compare) and any(_is_tenant(part) for part in _operands(child)):
                found.append((".".join(where), child))
            elif (
                isinstance(child, ast.Tuple)
                and isinstance(child.ctx, ast.Load)
                and any(_named(part, "key") for part in child.elts)
            ):
                found.extend((".".join(where), part) for part in child.elts if _is_tenant(part))
            walk(child, where, deeper)

    walk(tree, (), inside=False)
    return found


def _operands(compare: ast.Compare) -> Iterator[ast.AST]:
    for part in (compare.left, *compare.comparators):
        yield part
        if isinstance(part, ast.Tuple):
            yield from part.elts


def _is_tenant(node: ast.AST) -> bool:
    return _named(node, "tenant")


def _named(node: ast.AST, name: str) -> bool:
    return getattr(node, "id", None) == name or getattr(node, "attr", None) == name


def _python_mutants(store: str) -> Iterator[Mutant]:
    for path in sorted((STORES / store).glob("*.py")):
        source = path.read_text("utf-8")
        if "tenant" not in source:  # nothing to find, and parsing takes its time in every process of a run
            continue
        for position, (function, node) in enumerate(_python_sites(ast.parse(source))):
            place = f"{path.name}:{function}#{position}"
            module = f"tidewheel.stores.{store}.{path.stem}"
            yield PythonMutant(store, place, ast.unparse(node), module, function, position)


# -- named statements ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StatementMutant(Mutant):
    """A statement of an ``.sql`` file with a condition that always holds."""

    file: str
    statement: str
    start: int
    without: str

    @contextmanager
    def patched(self) -> Iterator[None]:
        before = SqlFile(f"tidewheel.stores.{self.store}", f"sql/{self.file}")[self.statement]
        after = before[: self.start] + self.without + before[self.start + len(self.text) :]
        # Without the predicate the index of tenants could not serve, and SQLite would refuse the statement.
        after = after.replace("INDEXED BY {index}", "").replace("{hint}", "")
        line = before[: self.start].count("\n")
        old, new = before.splitlines()[line], after.splitlines()[line]
        undo: list[tuple[dict[str, Any], str, Any]] = []
        for name, module in list(sys.modules.items()):
            if not name.startswith(f"tidewheel.stores.{self.store}."):
                continue
            for attribute, value in list(vars(module).items()):
                if isinstance(value, SqlFile) and value._where.endswith(f"/{self.file}"):
                    undo.append((value._statements, self.statement, before))
                    value._statements[self.statement] = after
                elif isinstance(value, str) and old in value:  # put together when the module was imported
                    undo.append((vars(module), attribute, value))
                    setattr(module, attribute, value.replace(old, new))
        assert undo, f"nobody reads {self.file}"
        try:
            yield
        finally:
            for names, name, value in undo:
                names[name] = value


def _statement_mutants(store: str, pattern: re.Pattern[str]) -> Iterator[Mutant]:
    for path in sorted((STORES / store / "sql").glob("*.sql")):
        queries = SqlFile(f"tidewheel.stores.{store}", f"sql/{path.name}")
        for name in queries.names():
            for number, found in enumerate(pattern.finditer(queries[name]), 1):
                without = _WITHOUT.get(found[0], "true")
                place = f"{path.name}:{name}#{number}"
                yield StatementMutant(store, place, found[0], path.name, name, found.start(), without)


_WITHOUT = {
    "{tenant}": "({tenant} OR true)",  # its parameter stays where it was
    "{key}": "? IS NOT NULL AND scope = ? AND key = ? /* {key} */",
    "{line}": "? IS NOT NULL AND limit_key = ? /* {line} */",
}


# -- functions of the schema --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FunctionMutant(Mutant):
    """A function of PostgreSQL's schema, put into the schema of the store for a while."""

    original: str
    changed: str

    @asynccontextmanager
    async def alive(self, store: Store) -> AsyncIterator[None]:
        assert isinstance(store, PostgresStore)
        await self._put(store, self.changed)
        try:
            yield
        finally:
            await self._put(store, self.original)

    async def _put(self, store: PostgresStore, function: str) -> None:
        database = store._database
        connection = await database.connect()
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL search_path = {database.schema}, pg_temp")
                await connection.execute(function.replace("CREATE", "CREATE OR REPLACE", 1))
        finally:
            await connection.close()


def _function_mutants() -> Iterator[Mutant]:
    for path in sorted((STORES / "postgres" / "migrations").rglob("*.sql")):
        text = path.read_text("utf-8")
        met = 0
        for function in _FUNCTION.finditer(text):
            original = function[0]
            code = re.sub(r"--.*", lambda comment: " " * len(comment[0]), original)
            for number, found in enumerate(_PREDICATE.finditer(code), 1):
                met += 1
                changed = original[: found.start()] + "true" + original[found.end() :]
                place = f"{path.name}:{function[1]}#{number}"
                yield FunctionMutant("postgres", place, found[0], original, changed)
        everywhere = len(_PREDICATE.findall(re.sub(r"--.*", "", text)))
        assert met == everywhere, f"{path.name} compares tenants outside of functions; teach this module how"


# -- conditions that Python puts together -------------------------------------------------------------------


@dataclass(frozen=True)
class ConditionMutant(Mutant):
    """An entry of a table of conditions that compares nothing."""

    module: str
    table: str

    @contextmanager
    def patched(self) -> Iterator[None]:
        table = getattr(importlib.import_module(self.module), self.table)
        before = table["tenant"]
        table["tenant"] = ("''", "<>", *before[2:])
        try:
            yield
        finally:
            table["tenant"] = before


def _condition_mutants(store: str) -> Iterator[Mutant]:
    for path in sorted((STORES / store).glob("*.py")):
        source = path.read_text("utf-8")
        if '"tenant":' not in source:
            continue
        for node in ast.parse(source).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Dict):
                continue
            if any(isinstance(key, ast.Constant) and key.value == "tenant" for key in node.value.keys):
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                table, module = ast.unparse(target), f"tidewheel.stores.{store}.{path.stem}"
                yield ConditionMutant(store, f"{path.name}:{table}", "tenant", module, table)


def mutants() -> list[Mutant]:
    """All of them."""
    return [
        *_python_mutants("memory"),
        *_python_mutants("sqlite"),
        *_statement_mutants("sqlite", _MARK),
        *_python_mutants("postgres"),
        *_condition_mutants("postgres"),
        *_statement_mutants("postgres", _PREDICATE),
        *_function_mutants(),
    ]
