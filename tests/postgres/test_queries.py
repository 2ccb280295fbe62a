"""Named statements: each is used, and each name that is used exists."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tidewheel.stores import postgres
from tidewheel.stores.sql_files import Queries

STORE = Path(postgres.__file__).parent
FILES = ["grants.sql", *(f"sql/{path.name}" for path in sorted((STORE / "sql").glob("*.sql")))]
ALL_AT_ONCE = {"sql/integrity_checks.sql", "sql/security_checks.sql"}
"""Every statement of these is run, whatever it is called."""


def _readers(file: str) -> list[tuple[ast.Module, str]]:
    """The modules that read a file, each with the name it gives the statements."""
    found = []
    for path in sorted(STORE.glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                given = [argument.value for argument in node.value.args if isinstance(argument, ast.Constant)]
                if file in given and isinstance(target := node.targets[0], ast.Name):
                    found.append((tree, target.id))
    return found


def _asked_for(tree: ast.Module, variable: str) -> set[object]:
    """The names in ``variable["name"]``."""
    return {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == variable
        if isinstance(node.slice, ast.Constant)
    }


@pytest.mark.parametrize("file", FILES)
def test_every_statement_is_used_and_every_name_exists(file: str) -> None:
    """Names also travel as arguments, so a text of a module that reads the file counts as a use."""
    names: set[object] = set(Queries("tidewheel.stores.postgres", file).names())
    readers = _readers(file)
    assert readers, f"no module reads {file}"
    for tree, variable in readers:
        assert _asked_for(tree, variable) <= names
    texts: set[object] = {
        node.value for tree, _ in readers for node in ast.walk(tree) if isinstance(node, ast.Constant)
    }
    # A verb of the pull role comes from the store, which names it.
    texts |= {
        node.value
        for node in ast.walk(ast.parse((STORE / "store.py").read_text("utf-8")))
        if isinstance(node, ast.Constant)
    }
    if file not in ALL_AT_ONCE:
        assert names <= texts, f"never used: {names - texts}"
