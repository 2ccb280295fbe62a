"""As a migration of Django."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from tidewheel.cli.migrate.directory import Directory
from tidewheel.cli.migrate.revision import Revision, literal, mark, title
from tidewheel.schema_scripts import Script

_FILE: Final = '''\
"""{title}

Written by `tidewheel migrate --export django`.
"""

from django.db import migrations

{mark}


class Statements(migrations.RunSQL):
    """SQL for SQLite or for PostgreSQL; on the other one it does nothing."""

    def __init__(self, vendor, sql, reverse_sql=None):
        self.vendor = vendor
        super().__init__(sql, reverse_sql)

    def deconstruct(self):
        name, _, arguments = super().deconstruct()
        return name, [], {{"vendor": self.vendor, **arguments}}

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        vendor = schema_editor.connection.vendor
        if vendor not in ("sqlite", "postgresql"):
            raise RuntimeError(f"Tidewheel needs SQLite or PostgreSQL, not {{vendor}}; see DATABASE_ROUTERS")
        if vendor == self.vendor:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        if schema_editor.connection.vendor == self.vendor:
            super().database_backwards(app_label, schema_editor, from_state, to_state)


{statements}
class Migration(migrations.Migration):
    dependencies = {dependencies!r}
    operations = [
{operations}    ]
'''


def write(scripts: Sequence[Script], directory: Directory, after: str | None) -> Revision:
    """A migration that comes after this one, or after the last of the directory."""
    label = directory.path.resolve().parent.name
    if after is None:
        followed = _followed(directory, label)
        before = directory.last(filter(_NUMBERED.match, directory.modules), followed.__contains__)
        dependencies = [] if before is None else [(label, before)]
    else:
        app, dot, name = after.rpartition(".")
        # What other apps have is not known here; Django says what it does not find.
        dependencies = [(app, name) if dot else (label, directory.one(directory.modules, name))]
    number = max((int(name[:4]) for name in directory.modules if _NUMBERED.match(name)), default=0) + 1
    statements = operations = ""
    for script in sorted(scripts, key=lambda script: script.dialect, reverse=True):
        name = script.dialect.upper()
        undo = "None" if script.undo is None else literal(script.undo)
        statements += f"{name} = {literal(script.statements)}\n\nUNDO_{name} = {undo}\n\n"
        operations += f"        Statements({script.dialect!r}, {name}, UNDO_{name}),\n"
    content = _FILE.format(
        title=title(scripts),
        mark=mark(scripts),
        dependencies=dependencies,
        statements=statements,
        operations=operations,
    )
    return Revision(f"{number:04}_tidewheel.py", content)


_NUMBERED: Final = re.compile(r"\d{4}_")


def _followed(directory: Directory, label: str) -> set[str]:
    """Migrations that another one in the directory comes after."""
    return {
        name.value
        for tree in directory.modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Tuple) and len(node.elts) == 2
        for app, name in [node.elts]
        if isinstance(app, ast.Constant) and app.value == label
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    }
