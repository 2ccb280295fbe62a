"""Tests do not depend on the speed of the machine: they wait for conditions, with one limit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent

LEAST_SECONDS = 30
"""A limit below this is too short for a condition that comes true on a machine whose cores are all taken."""

CLOCKS = re.compile(r"\b(monotonic|perf_counter|loop\(\)\.time|loop\.time)\(\)")
TIMEOUTS = re.compile(r"(raises|suppress)\(.*(Timeout|timeout)")

MEANT = {
    "bench/test_program.py": "expects no answer within its patience",
    "faults/test_half_open.py": "compared with one wait per connection, which is what it is about",
    "server/hostile": "promises limits, which are many times what is measured",
}
"""Files that may compare elapsed time with a bound, and why."""


def hopes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each assertion and wait that needs a fast machine."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            elapsed = _elapsed_names(function)
            yield from _short_defaults(function)
            yield from _in_body(function.body, elapsed, expected=False)


def _short_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in defaults:
        if argument.arg == "patience" and default is not None and _is_short(default):
            yield function.lineno, f"patience={ast.unparse(default)}"


def _elapsed_names(function: ast.AST) -> set[str]:
    return {
        ast.unparse(node.targets[0])
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _is_elapsed(node.value, set())
    }


def _is_elapsed(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in names
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and CLOCKS.search(ast.unparse(node.left)) is not None
    )


def _in_body(body: list[ast.stmt], names: set[str], *, expected: bool) -> Iterator[tuple[int, str]]:
    """``expected``: a timeout here is what the test is about."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.Assert):
            yield from _bounds(statement, names)
        inner = expected
        if isinstance(statement, ast.With | ast.AsyncWith):
            inner = expected or any(
                TIMEOUTS.search(ast.unparse(item.context_expr)) for item in statement.items
            )
        if isinstance(statement, ast.Try):
            inner = expected or any(
                "Timeout" in ast.unparse(handler.type or statement.body[0]) for handler in statement.handlers
            )
        if not inner:
            for node in _expressions(statement):
                yield from _short_waits(node)
        for field in ("body", "orelse", "finalbody"):
            yield from _in_body(getattr(statement, field, []), names, expected=inner)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield what belongs to a statement itself, without the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt | ast.excepthandler):
            yield from ast.walk(child)


def _bounds(statement: ast.Assert, names: set[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(statement.test):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for smaller, operation, larger in zip(sides, node.ops, sides[1:], strict=False):
            if (
                isinstance(operation, ast.Lt | ast.LtE)
                and _is_elapsed(smaller, names)
                and "PATIENCE" not in ast.unparse(larger)
                and not (isinstance(value := getattr(larger, "value", None), int) and value >= LEAST_SECONDS)
            ):
                yield statement.lineno, ast.unparse(statement)


def _short_waits(node: ast.AST) -> Iterator[tuple[int, str]]:
    if not isinstance(node, ast.Call):
        return
    name, limit = ast.unparse(node.func), None
    if name.endswith(".result"):
        limit = next((keyword.value for keyword in node.keywords if keyword.arg == "timeout"), None)
    elif name == "asyncio.timeout" and node.args:
        limit = node.args[0]
    elif name == "asyncio.wait_for" and len(node.args) == 2:
        limit = node.args[1]
    elif name.endswith(".communicate"):
        limit = next((keyword.value for keyword in node.keywords if keyword.arg == "timeout"), None)
    else:
        limit = next((keyword.value for keyword in node.keywords if keyword.arg == "patience"), None)
    if limit is not None and _is_short(limit):
        yield node.lineno, ast.unparse(node)


def _is_short(limit: ast.expr) -> bool:
    value = limit.value if isinstance(limit, ast.Constant) else None
    return isinstance(value, int | float) and 0 < value < LEAST_SECONDS


def test_no_test_needs_a_fast_machine() -> None:
    """Where other programs take every core, a correct answer comes late; PATIENCE is the limit for it."""
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        name, text = path.relative_to(TESTS).as_posix(), path.read_text("utf-8")
        if name.startswith(tuple(MEANT)) or not re.search(
            r"monotonic|perf_counter|time\(\)|timeout|wait_for", text
        ):
            continue
        found += [f"tests/{name}:{line}: {what}" for line, what in hopes(ast.parse(text))]
    assert found == []


def test_both_kinds_of_hope_are_found() -> None:
    """And a timeout that is expected is none."""
    text = """
async def test_something():
    assert time.monotonic() - began < 2
    took = time.perf_counter() - began
    assert 0 < took < 3
    await job.result(timeout=5)
    async with asyncio.timeout(1):
        await asyncio.wait_for(thing(), 2)
    with pytest.raises(ResultTimeout):
        await job.result(timeout=0.1)
    await job.result(timeout=PATIENCE)
    assert time.monotonic() - began >= 2
    process.communicate(timeout=20)
def until(condition, patience=20.0):
    until(condition, patience=5)
"""
    assert sorted(line for line, _ in hopes(ast.parse(text))) == [3, 5, 6, 7, 8, 13, 14, 15]
