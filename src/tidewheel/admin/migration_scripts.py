"""The SQL of migrations and grants, for those who run it themselves."""

from __future__ import annotations

from tidewheel.stores import Script, look_at_schema, write_grants, write_script

__all__ = ["Script", "missing_script", "write_grants", "write_script"]


async def missing_script(url: str, *, rls: bool = False) -> Script:
    """What ``migrate`` would run on this store now. It is looked at, and not changed."""
    version, secured = await look_at_schema(url)
    script = write_script(url, since=version, rls=rls)
    # As with migrate: where there is row-level security, every step sets it up anew.
    return write_script(url, since=version, rls=True) if secured and script.steps else script
