"""The SQL of migrations and grants, for those who run it themselves."""

from __future__ import annotations

from tidewheel.stores import MigrationScript, read_schema_version, write_grants, write_migration_script

__all__ = ["MigrationScript", "missing_script", "write_grants", "write_migration_script"]


async def missing_script(url: str, *, rls: bool = False) -> MigrationScript:
    """What ``migrate`` would run on this store now. It is looked at, and not changed."""
    version, secured = await read_schema_version(url)
    script = write_migration_script(url, since=version, rls=rls)
    # As with migrate: where there is row-level security, every step sets it up anew.
    return write_migration_script(url, since=version, rls=True) if secured and script.steps else script
