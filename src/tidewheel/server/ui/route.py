"""What browsers get: the UI's one page under every path below ``/ui/``, and the files it needs.

Anybody may have them, because they hold no data: what a page shows it asks the API for, as whoever logged in.
"""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any, Final

from tidewheel.server.problems import NOT_FOUND, Headers, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import Answer, Nothing, Permission, Route
from tidewheel.server.ui.files import INDEX, are_read, built_files, tag_of

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
