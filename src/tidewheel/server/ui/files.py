"""The built files of the UI, read once: a list of names, and nothing else of the file system."""

from __future__ import annotations

import functools
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

INDEX: Final = "index.html"
FIRST: Final = (INDEX, "app.js", "app.css", "icon.svg")
"""What every visit begins with. Their names do not change from build to build; their tags do."""
MEDIA_TYPES: Final[Mapping[str, bytes]] = MappingProxyType(
    {
        ".html": b"text/html; charset=utf-8",
        ".js": b"text/javascript; charset=utf-8",
        ".css": b"text/css; charset=utf-8",
        ".svg": b"image/svg+xml",
    }
)
"""By the end of a name. Files that end otherwise are not served."""


@dataclass(frozen=True, slots=True)
class File:
    """One built file, plain and compressed, each with a tag of its own."""

    media_type: bytes
    content: bytes
    tag: bytes
    compressed: bytes
    compressed_tag: bytes


@functools.cache
def built_files() -> Mapping[str, File]:
    """All files by name; none where the UI was not built. Slow the first time: call it on a thread."""
    directory = files("tidewheel.server.ui") / "assets"
    if not all((directory / name).is_file() for name in FIRST):
        return MappingProxyType({})
    read = {}
    for path in directory.iterdir():
        if (kind := MEDIA_TYPES.get(PurePath(path.name).suffix)) is not None:
            read[path.name] = _file(kind, path.read_bytes())
    return MappingProxyType(read)


def are_read() -> bool:
    """Whether the files are in memory, so that asking for them takes no time."""
    return built_files.cache_info().currsize > 0


def tag_of(content: bytes) -> bytes:
    """A strong ETag: other bytes have another one."""
    return b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode()


def _file(media_type: bytes, content: bytes) -> File:
    # Without a time in it the same file has the same bytes, and so the same tag, from every server.
    compressed = gzip.compress(content, mtime=0)
    return File(media_type, content, tag_of(content), compressed, tag_of(compressed))
