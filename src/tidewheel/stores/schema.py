"""A migration as SQL that somebody else runs, instead of Tidewheel."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class MigrationScript:
    """Everything that takes a schema from one version to another, and records that it did."""

    dialect: str  # as SQLAlchemy and Django call it: sqlite or postgresql
    target: str  # which tables these are: those of a SQLite file, or a schema
    from_version: int  # the version it is for; 0 is none yet
    to_version: int  # the version it leads to
    steps: tuple[str, ...]  # as migrate calls them; empty when there is nothing to do
    text: str  # all of it in one transaction, for psql or sqlite3
    statements: tuple[str, ...]  # one by one and without a transaction, for a tool that has one of its own
    undo: tuple[str, ...] | None  # takes all of it away again; None where there is no way back

    @property
    def has_row_level_security(self) -> bool:
        """Whether it sets up row-level security."""
        return "rls" in self.steps


def check_version(since: int, newest: int) -> None:
    """A version that this Tidewheel knows."""
    if not 0 <= since <= newest:
        raise ConfigurationError(
            f"the schema version is {since}; this Tidewheel knows 0 (no tables yet) to {newest}"
        )
