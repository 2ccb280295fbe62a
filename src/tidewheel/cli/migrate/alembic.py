"""As a revision of Alembic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from tidewheel.cli.migrate.directory import Directory, values
from tidewheel.cli.migrate.revision import Revision, literal, mark, title
from tidewheel.schema_scripts import Script

_FILE: Final = '''\
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


def write(scripts: Sequence[Script], directory: Directory, after: str | None) -> Revision:
    """A revision that comes after this one, or after the head of the directory."""
    (script,) = scripts
    revisions, followed = _revisions(directory)
    before = directory.last(revisions, followed) if after is None else directory.one(revisions, after)
    digest = sha256(f"{script.place} {script.since} {script.version} {script.steps}".encode())
    revision = digest.hexdigest()[:12]  # like Alembic's own
    content = _FILE.format(
        title=title(scripts),
        revision=revision,
        after=before,
        shown_after=before or "",
        mark=mark(scripts),
        dialect=script.dialect,
        upgrade=literal(script.statements),
        downgrade="None" if script.undo is None else literal(script.undo),
    )
    return Revision(f"{revision}_tidewheel_{script.version}.py", content)


def _revisions(directory: Directory) -> tuple[list[str], Callable[[str], bool]]:
    found = [values(tree) for tree in directory.modules.values()]
    followed: set[str] = set()
    for one in found:
        below = one.get("down_revision") or ()
        followed.update([below] if isinstance(below, str) else below)
    return [one["revision"] for one in found if "revision" in one], followed.__contains__
