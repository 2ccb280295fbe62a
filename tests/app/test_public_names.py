"""The public names of the package, which are imported when they are first asked for."""

from __future__ import annotations

import ast
import inspect

import pytest

import tidewheel


def test_every_public_name_has_one_home() -> None:
    """What type checkers see is what programs get: the three lists of the package say the same."""
    tree = ast.parse(inspect.getsource(tidewheel))
    seen = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert seen == tidewheel._HOME_OF
    assert sorted([*seen, "__version__"]) == sorted(tidewheel.__all__)
    for name in tidewheel.__all__:
        assert getattr(tidewheel, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = tidewheel.Nonsense
