"""The web UI: built files for browsers, and the routes that serve them.

The one page of the UI answers every path below ``/ui/``. The routes are public because the files hold no
data: a page asks the HTTP API for everything it shows, with the login of its user. The files are read once,
into a map of names; no request reaches the file system.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

from tidewheel.server.problems import NOT_FOUND, Headers, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import Answer, Nothing, Permission, Route

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


HOME: Final = "/ui/"

NOT_BUILT: Final = (
    b"The web UI is not in this source tree.\n\n"
    b"Build it, with Node 20.19 or newer:\n\n"
    b"    cd ui && npm ci && npm run build\n\n"
    b"then start the server again. Released packages carry it.\n"
)
_TEXT: Final = b"text/plain; charset=utf-8"
_VARIES: Final = (b"vary", b"accept-encoding")
_base = re.compile(rb"<base\b[^>]*>")
_refused = re.compile(r"q=0(\.0{0,3})?")


async def lead_home(request: Request[Nothing, None]) -> Answer:
    return Answer(None, 307, ((b"location", (request.root + HOME).encode()),))


async def show(request: Request[Nothing, None]) -> Answer:
    files = built_files() if are_read() else await asyncio.to_thread(built_files)
    if not files:
        return Answer(NOT_BUILT, 503, media_type=_TEXT)
    name = request.path["page"]
    file = files.get(name) if name != INDEX else None
    if file is not None:
        if _takes_gzip(request):
            headers = (_VARIES, (b"content-encoding", b"gzip"))
            return _unless_known(request, file.compressed, file.compressed_tag, file.media_type, headers)
        return _unless_known(request, file.content, file.tag, file.media_type, (_VARIES,))
    if "." in name.rpartition("/")[2]:
        raise Problem(NOT_FOUND, f"the UI has no file {name[:200]}; it begins at {HOME}")
    index = files[INDEX]
    page = with_base(index.content, request.root + HOME)
    return _unless_known(request, page, tag_of(page), index.media_type, ())


def with_base(page: bytes, base: str) -> bytes:
    """The page, told where the addresses in it begin."""
    tag = f'<base href="{html.escape(base)}">'.encode()
    return _base.sub(lambda _: tag, page, count=1)


def _takes_gzip(request: Request[Any, Any]) -> bool:
    weights = {}
    for part in (request.header(b"accept-encoding") or "").lower().split(","):
        coding, _, weight = part.partition(";")
        weights[coding.strip()] = weight.strip()
    wish = weights.get("gzip", weights.get("*"))
    return wish is not None and _refused.fullmatch(wish) is None


def _unless_known(
    request: Request[Any, Any], content: bytes, tag: bytes, media_type: bytes, headers: Headers
) -> Answer:
    """304 when the browser has it already. Proxies that compress make a tag weak; it still says which."""
    known = (request.header(b"if-none-match") or "").encode("latin-1")
    tags = {given.strip().removeprefix(b"W/") for given in known.split(b",")}
    if tag in tags or known == b"*":
        return Answer(None, 304, (*headers, (b"etag", tag)))
    return Answer(content, 200, (*headers, (b"etag", tag)), media_type)


ROUTES: Final = (
    Route(
        method="GET",
        path="/",
        aliases=("/ui",),
        name="ui_entry",
        summary="To the web UI",
        permission=Permission.PUBLIC,
        handler=lead_home,
        answers={307: None},
        tag="ui",
        page=True,
    ),
    Route(
        method="GET",
        path="/ui/{page:path}",
        name="ui",
        summary="The web UI",
        permission=Permission.PUBLIC,
        handler=show,
        answers={200: None},
        tag="ui",
        media_type="text/html",
        page=True,
    ),
)
