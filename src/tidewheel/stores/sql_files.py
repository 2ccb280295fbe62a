"""Named SQL statements, kept in ``.sql`` files beside the store that uses them.

A statement starts at ``-- name: something`` and runs to the next one. Further ``--`` lines say why.
"""

from __future__ import annotations

from importlib.resources import files


class SqlFile:
    """The statements of one file, by name: ``queries["claim"]``."""

    def __init__(self, package: str, path: str) -> None:
        """``path``: where the file is inside the package, with slashes, such as ``sql/claims.sql``."""
        self._where = f"{package}/{path}"
        self._statements: dict[str, str] = {}
        name = None
        for line in files(package).joinpath(*path.split("/")).read_text("utf-8").splitlines():
            if line.startswith("-- name: "):
                name = line.removeprefix("-- name: ").strip()
                if name in self._statements:
                    raise ValueError(f"{self._where} names {name!r} twice")
                self._statements[name] = ""
            elif name is not None and not line.lstrip().startswith("--"):
                self._statements[name] += line + "\n"
        self._statements = {key: text.strip() for key, text in self._statements.items()}

    def __getitem__(self, name: str) -> str:
        return self._statements[name]

    def names(self) -> list[str]:
        return list(self._statements)
