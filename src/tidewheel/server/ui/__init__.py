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
from tidewheel.server.route import NoQuery, Permission, Response, Route

INDEX_FILE: Final = "index.html"
ENTRY_FILES: Final = (INDEX_FILE, "app.js", "app.css", "icon.svg")
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
class BuiltFile:
    """One built file, plain and compressed, each with a tag of its own."""

    media_type: bytes
    content: bytes
    etag: bytes
    compressed: bytes
    compressed_etag: bytes


@functools.cache
def built_files() -> Mapping[str, BuiltFile]:
    """All files by name; none where the UI was not built. Slow the first time: call it on a thread."""
    directory = files("tidewheel.server.ui") / "assets"
    if not all((directory / name).is_file() for name in ENTRY_FILES):
        return MappingProxyType({})
    read = {}
    for path in directory.iterdir():
        if (kind := MEDIA_TYPES.get(PurePath(path.name).suffix)) is not None:
            read[path.name] = _file(kind, path.read_bytes())
    return MappingProxyType(read)


def are_files_loaded() -> bool:
    """Whether the files are in memory, so that asking for them takes no time."""
    return built_files.cache_info().currsize > 0


def make_etag(content: bytes) -> bytes:
    """A strong ETag: other bytes have another one."""
    return b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode()


def _file(media_type: bytes, content: bytes) -> BuiltFile:
    # Without a time in it the same file has the same bytes, and so the same tag, from every server.
    compressed = gzip.compress(content, mtime=0)
    return BuiltFile(media_type, content, make_etag(content), compressed, make_etag(compressed))


UI_ROOT: Final = "/ui/"

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


async def redirect_to_ui(request: Request[NoQuery, None]) -> Response:
    return Response(None, 307, ((b"location", (request.mount_path + UI_ROOT).encode()),))


async def serve_page(request: Request[NoQuery, None]) -> Response:
    files = built_files() if are_files_loaded() else await asyncio.to_thread(built_files)
    if not files:
        return Response(NOT_BUILT, 503, media_type=_TEXT)
    name = request.path["page"]
    file = files.get(name) if name != INDEX_FILE else None
    if file is not None:
        if _takes_gzip(request):
            headers = (_VARIES, (b"content-encoding", b"gzip"))
            return _send_unless_cached(
                request, file.compressed, file.compressed_etag, file.media_type, headers
            )
        return _send_unless_cached(request, file.content, file.etag, file.media_type, (_VARIES,))
    if "." in name.rpartition("/")[2]:
        raise Problem(NOT_FOUND, f"the UI has no file {name[:200]}; it begins at {UI_ROOT}")
    index = files[INDEX_FILE]
    page = set_base_href(index.content, request.mount_path + UI_ROOT)
    return _send_unless_cached(request, page, make_etag(page), index.media_type, ())


def set_base_href(page: bytes, base: str) -> bytes:
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


def _send_unless_cached(
    request: Request[Any, Any], content: bytes, tag: bytes, media_type: bytes, headers: Headers
) -> Response:
    """304 when the browser has it already. Proxies that compress make a tag weak; it still says which."""
    known = (request.header(b"if-none-match") or "").encode("latin-1")
    tags = {given.strip().removeprefix(b"W/") for given in known.split(b",")}
    if tag in tags or known == b"*":
        return Response(None, 304, (*headers, (b"etag", tag)))
    return Response(content, 200, (*headers, (b"etag", tag)), media_type)


ROUTES: Final = (
    Route(
        method="GET",
        path="/",
        aliases=("/ui",),
        name="ui_entry",
        summary="To the web UI",
        permission=Permission.PUBLIC,
        handler=redirect_to_ui,
        responses={307: None},
        tag="ui",
        for_browsers=True,
    ),
    Route(
        method="GET",
        path="/ui/{page:path}",
        name="ui",
        summary="The web UI",
        permission=Permission.PUBLIC,
        handler=serve_page,
        responses={200: None},
        tag="ui",
        media_type="text/html",
        for_browsers=True,
    ),
)
