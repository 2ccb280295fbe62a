"""Export our schema SQL as a migration of Django or Alembic.

The migrations in the directory are parsed without running them. SQL that an earlier export wrote is left
out, and the rest becomes one new file that follows the last migration. An existing file is never overwritten.
A Django migration has the SQL for SQLite and for PostgreSQL, because many projects develop on one and run on
the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click

from tidewheel.__about__ import __version__
from tidewheel.admin.migration_scripts import MigrationScript, write_migration_script

EXPORT_MARKER: Final = "tidewheel_exported"
"""The name in such a file that says what is in it. Later exports go by it."""


@dataclass(frozen=True, slots=True)
class MigrationFile:
    """Its name and what stands in it."""

    name: str
    content: str


def migration_title(scripts: Iterable[MigrationScript]) -> str:
    """What is in it, for people."""
    parts = [
        f"{script.target}, "
        + (
            f"version {script.from_version} to {script.to_version}"
            if script.from_version
            else f"version {script.to_version}"
        )
        + (" with row-level security" if script.has_row_level_security else "")
        for script in scripts
    ]
    return f"Tables of Tidewheel {__version__}: {'; '.join(parts)}."


def export_marker_line(scripts: Iterable[MigrationScript]) -> str:
    """The line that later exports go by."""
    done = {
        script.target: {"version": script.to_version, "rls": script.has_row_level_security}
        for script in scripts
    }
    return f"{EXPORT_MARKER} = {done!r}  # later exports go by this"


def statements_literal(statements: Sequence[str]) -> str:
    """As Python source that people can read."""
    return "[\n" + "".join(f"{_quoted(statement)},\n" for statement in statements) + "]"


def _quoted(statement: str) -> str:
    if '"""' in statement or "\\" in statement or statement.endswith('"'):
        return repr(statement)
    return f'"""{statement}"""'


MAX_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class ExportState:
    """What migrations of a directory have already."""

    version: int
    rls: bool


class MigrationDirectory:
    """The Python files of one directory, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(path.glob("*.py"))
        if len(files) > MAX_FILES:
            raise click.UsageError(f"{path} has {len(files):,} files; {MAX_FILES:,} are possible")
        self.modules = {file.stem: _parse(file) for file in files if file.stem != "__init__"}

    def export_state(self, place: str) -> ExportState:
        """Up to where, for these tables."""
        marks = [
            mark
            for tree in self.modules.values()
            if isinstance(mark := module_constants(tree).get(EXPORT_MARKER), dict)
        ]
        mine = [mark[place] for mark in marks if place in mark]
        return ExportState(
            version=max((mark["version"] for mark in mine), default=0),
            rls=any(mark["rls"] for mark in mine),
        )

    def find_head(self, names: Iterable[str], followed: Callable[[str], bool]) -> str | None:
        """The one that no other comes after; None where there are none."""
        heads = [name for name in names if not followed(name)]
        if len(heads) > 1:
            raise click.UsageError(
                f"{self.path} has several last migrations ({', '.join(sorted(heads)[:5])}); name one of them "
                "with --after"
            )
        return heads[0] if heads else None

    def resolve_name(self, names: Iterable[str], wanted: str) -> str:
        """The one that is called so, or that alone begins so: a file has to give its whole name.

        In a directory that has none it is taken as it is: the others are in another directory then.
        """
        known = sorted(names)
        found = [name for name in known if name.startswith(wanted)]
        if wanted in found or not known:
            return wanted
        if len(found) != 1:
            raise click.UsageError(
                f"--after is {wanted!r}, and {len(found)} of {len(known)} migrations in {self.path} begin "
                f"so; name one of them ({', '.join((found or known)[-5:])})"
            )
        return found[0]


def module_constants(tree: ast.Module) -> dict[str, Any]:
    """What the names of a module are, as far as that is written there."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                try:
                    found[target.id] = ast.literal_eval(node.value)  # type: ignore[arg-type]
                except (ValueError, TypeError):
                    continue  # something that is computed, and none of what is looked for
    return found


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())  # which says itself how it is encoded
    except (OSError, SyntaxError, ValueError) as error:
        raise click.UsageError(f"{file} cannot be read as Python: {error}") from error


_DJANGO_TEMPLATE: Final = '''\
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


def write_django_migration(
    scripts: Sequence[MigrationScript], directory: MigrationDirectory, after: str | None
) -> MigrationFile:
    """A migration that comes after this one, or after the last of the directory."""
    label = directory.path.resolve().parent.name
    if after is None:
        followed = _dependencies(directory, label)
        before = directory.find_head(filter(_NUMBERED.match, directory.modules), followed.__contains__)
        dependencies = [] if before is None else [(label, before)]
    else:
        app, dot, name = after.rpartition(".")
        # What other apps have is not known here; Django says what it does not find.
        dependencies = [(app, name) if dot else (label, directory.resolve_name(directory.modules, name))]
    number = max((int(name[:4]) for name in directory.modules if _NUMBERED.match(name)), default=0) + 1
    statements = operations = ""
    for script in sorted(scripts, key=lambda script: script.dialect, reverse=True):
        name = script.dialect.upper()
        undo = "None" if script.undo is None else statements_literal(script.undo)
        statements += f"{name} = {statements_literal(script.statements)}\n\nUNDO_{name} = {undo}\n\n"
        operations += f"        Statements({script.dialect!r}, {name}, UNDO_{name}),\n"
    content = _DJANGO_TEMPLATE.format(
        title=migration_title(scripts),
        mark=export_marker_line(scripts),
        dependencies=dependencies,
        statements=statements,
        operations=operations,
    )
    return MigrationFile(f"{number:04}_tidewheel.py", content)


_NUMBERED: Final = re.compile(r"\d{4}_")


def _dependencies(directory: MigrationDirectory, label: str) -> set[str]:
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


_ALEMBIC_TEMPLATE: Final = '''\
"""{title}

Revision ID: {revision}
Revises: {shown_after}

Written by `tidewheel migrate --export alembic`.
"""

from alembic import op

revision = {revision!r}
down_revision = {after!r}
branch_labels = None
depends_on = None

{mark}


def upgrade() -> None:
    run(UPGRADE)


def downgrade() -> None:
    if DOWNGRADE is None:
        raise NotImplementedError("there is no way back from this version of Tidewheel; restore a backup")
    run(DOWNGRADE)


def run(statements: list[str]) -> None:
    context = op.get_context()
    if context.dialect.name != {dialect!r}:
        raise RuntimeError("this revision is for {dialect}; export one for the other database")
    for statement in statements:
        # Not op.execute: it takes colons for parameters, and doubles percent signs where it only prints.
        if context.as_sql:
            context.impl.static_output(f"{{statement}};")
        else:
            op.get_bind().exec_driver_sql(statement, execution_options={{"no_parameters": True}})


UPGRADE = {upgrade}

DOWNGRADE = {downgrade}
'''


def write_alembic_revision(
    scripts: Sequence[MigrationScript], directory: MigrationDirectory, after: str | None
) -> MigrationFile:
    """A revision that comes after this one, or after the head of the directory."""
    (script,) = scripts
    revisions, followed = _revisions(directory)
    before = (
        directory.find_head(revisions, followed)
        if after is None
        else directory.resolve_name(revisions, after)
    )
    digest = sha256(f"{script.target} {script.from_version} {script.to_version} {script.steps}".encode())
    revision = digest.hexdigest()[:12]  # like Alembic's own
    content = _ALEMBIC_TEMPLATE.format(
        title=migration_title(scripts),
        revision=revision,
        after=before,
        shown_after=before or "",
        mark=export_marker_line(scripts),
        dialect=script.dialect,
        upgrade=statements_literal(script.statements),
        downgrade="None" if script.undo is None else statements_literal(script.undo),
    )
    return MigrationFile(f"{revision}_tidewheel_{script.to_version}.py", content)


def _revisions(directory: MigrationDirectory) -> tuple[list[str], Callable[[str], bool]]:
    found = [module_constants(tree) for tree in directory.modules.values()]
    followed: set[str] = set()
    for one in found:
        below = one.get("down_revision") or ()
        followed.update([below] if isinstance(below, str) else below)
    return [one["revision"] for one in found if "revision" in one], followed.__contains__


def export_migration(tool: str, url: str, where: Path, *, after: str | None, rls: bool) -> Path | None:
    """The file that was written; None when the directory has all of it already."""
    directory = MigrationDirectory(where)
    if tool == "django":  # many projects of Django's develop and test on the one and run on the other
        other = "postgresql:" if url.startswith("sqlite:") else "sqlite:///any.db"
        parts = [
            _new_steps(each, directory, rls=rls and each.startswith("postgres")) for each in (url, other)
        ]
    else:
        parts = [_new_steps(url, directory, rls=rls)]
    scripts = [script for script in parts if script.steps]
    if not scripts:
        return None
    write = write_django_migration if tool == "django" else write_alembic_revision
    revision: MigrationFile = write(scripts, directory, after)
    path = where / revision.name
    try:
        with path.open("x", encoding="utf-8") as file:  # never over another file, whoever made it
            file.write(revision.content)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _new_steps(url: str, directory: MigrationDirectory, *, rls: bool) -> MigrationScript:
    whole = write_migration_script(url, since=0)
    exported = directory.export_state(whole.target)
    script = write_migration_script(url, since=exported.version, rls=rls and not exported.rls)
    # As with migrate: where there is row-level security, every step sets it up anew.
    return (
        write_migration_script(url, since=exported.version, rls=True)
        if exported.rls and script.steps
        else script
    )
