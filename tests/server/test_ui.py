"""The UI as files over HTTP: where it is, who may frame it, what is kept, and what cannot be asked for."""

from __future__ import annotations

import gzip
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

from tests.server.conftest import Asking, asking, make_app
from tidewheel.server import create_api, ui
from tidewheel.server.asgi import PAGE_HEADERS, PAGE_POLICY
from tidewheel.server.ui import ENTRY_FILES, MEDIA_TYPES, BuiltFile, built_files

NOWHERE = (
    "/ui/../app.py",
    "/ui/..%2f..%2fapp.py",
    "/ui/%2e%2e/route.py",
    "/ui/files.py",
    "/ui/assets/app.js",
    "/ui/index.html",
    "/ui/app.js.map",
    "/ui/app.js%00.png",
    "/ui//etc/hosts.txt",
    "/uix",
    "/ui.js",
)
FILES = [name for name in ENTRY_FILES if name != ui.INDEX_FILE]


@pytest.fixture
async def browser(ask: Asking) -> httpx2.AsyncClient:
    """Somebody who is not logged in, and follows nothing by itself."""
    return ask.client(**{"Accept-Encoding": "identity"})


def base_of(answer: httpx2.Response) -> str:
    (base,) = re.findall(r'<base href="([^"]*)">', answer.text)
    return str(base)


@pytest.mark.parametrize("path", ["/", "/ui"])
async def test_the_root_leads_to_the_ui(browser: httpx2.AsyncClient, path: str) -> None:
    """And no browser keeps that in mind: what is there may change."""
    answer = await browser.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


@pytest.mark.parametrize("path", ["/ui/", "/ui/jobs", "/ui/jobs/0190/x", "/ui/jobs?where=state:failed&x=1"])
async def test_every_address_of_the_ui_is_its_one_page(browser: httpx2.AsyncClient, path: str) -> None:
    """Addresses can be shared: the page reads the rest of its address, and its query, by itself."""
    answer = await browser.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert base_of(answer) == "/ui/"


@pytest.mark.parametrize("name", FILES)
async def test_a_file_comes_compressed_and_is_asked_about_again(
    browser: httpx2.AsyncClient, name: str
) -> None:
    """Plain and compressed have tags of their own; a tag that is known saves the body."""
    plain = await browser.get(f"/ui/{name}")
    packed = await browser.get(f"/ui/{name}", headers={"Accept-Encoding": "br, gzip;q=0.8"})
    kind = MEDIA_TYPES[Path(name).suffix].decode()
    assert plain.headers["content-type"] == packed.headers["content-type"] == kind
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content == built_files()[name].content
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert plain.headers["etag"] != packed.headers["etag"]
    for tag in (plain.headers["etag"], f'"other", W/{plain.headers["etag"]}', "*"):
        known = await browser.get(f"/ui/{name}", headers={"If-None-Match": tag})
        assert (known.status_code, known.content) == (304, b"")
        assert known.headers["etag"] == plain.headers["etag"]
    assert (await browser.get(f"/ui/{name}", headers={"If-None-Match": '"other"'})).status_code == 200


@pytest.mark.parametrize("wish", ["gzip;q=0", "identity, gzip;q=0.000", "*;q=0", "gzip;q=0, *", "br", ""])
async def test_nobody_gets_what_they_cannot_unpack(browser: httpx2.AsyncClient, wish: str) -> None:
    """Compression is for those who say that they take it."""
    answer = await browser.get("/ui/app.js", headers={"Accept-Encoding": wish})
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/ui/", *(f"/ui/{name}" for name in FILES)])
async def test_pages_are_guarded(browser: httpx2.AsyncClient, path: str) -> None:
    """Strict headers on everything, once each; the API's own are as they were."""
    answer = await browser.head(path)
    told = [(name.lower(), value) for name, value in answer.headers.raw]
    for name, value in PAGE_HEADERS:
        assert [given for given in told if given[0] == name] == [(name, value)]
    assert answer.content == b""
    whole = await browser.get(path)
    assert answer.headers == whole.headers
    assert b"unsafe" not in PAGE_POLICY
    assert PAGE_POLICY.startswith(b"default-src 'none'; ")
    api = await browser.get("/healthz")
    assert api.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert api.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", NOWHERE)
async def test_there_is_nothing_but_what_is_listed(browser: httpx2.AsyncClient, path: str) -> None:
    """Names are looked up in a list, never on a disk."""
    answer = await browser.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_the_ui_can_only_be_read(browser: httpx2.AsyncClient, method: str) -> None:
    """Every other method is refused, with what is possible."""
    for path in ("/", "/ui/", "/ui/app.js"):
        answer = await browser.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


async def mounted(mount: str, path: str) -> AsyncIterator[httpx2.Response]:
    api: ASGIApp = create_api(make_app())
    web = Starlette(routes=[Mount(mount, api)])
    transport = httpx2.ASGITransport(app=web)
    async with httpx2.AsyncClient(transport=transport) as client:
        yield await client.get(f"http://tidewheel.test{path}")


@pytest.mark.parametrize(
    ("mount", "path", "base"),
    [
        ("/tidewheel", "/tidewheel/ui/jobs", "/tidewheel/ui/"),
        ("/a/b", "/a/b/ui/", "/a/b/ui/"),
        ("/of/{who}", "/of/%22%3E%3Cscript%3E/ui/", "/of/%22%3E%3Cscript%3E/ui/"),
        ("/of/{who}", "/of/a&b'c/ui/", "/of/a%26b%27c/ui/"),
        ("/{where:path}/x", "//evil.test/x/ui/", "/evil.test/x/ui/"),
    ],
)
async def test_a_mounted_ui_knows_where_it_is(mount: str, path: str, base: str) -> None:
    """Everything in it is relative to its base. A mount that takes parts of the path from its visitors lets
    none of them write markup, or lead to another host.
    """
    async for page in mounted(mount, path):
        assert base_of(page) == base
    async for led in mounted(mount, path.rpartition("ui/")[0]):
        assert (led.status_code, led.headers["location"]) == (307, base)


@pytest.mark.parametrize(
    ("root", "path", "base"), [("/queue", "/queue/ui/", "/queue/ui/"), ("/", "/ui/", "/ui/")]
)
async def test_a_ui_behind_a_prefix_knows_it(ask: Asking, root: str, path: str, base: str) -> None:
    """As servers tell it that were told by their proxy's owner: ``uvicorn --root-path``."""
    transport = httpx2.ASGITransport(app=ask.api, root_path=root)
    async with httpx2.AsyncClient(transport=transport, base_url="http://tidewheel.test") as client:
        assert base_of(await client.get(path)) == base


@pytest.mark.parametrize("off", ["ui", "http_api"])
async def test_the_ui_can_be_switched_off(off: str) -> None:
    """Alone, or with the API it speaks to."""
    settings: dict[str, Any] = {off: False}
    async with asking(make_app(**settings)) as ask:
        root = await ask.with_key(superuser=True)
        for path in ("/", "/ui", "/ui/", "/ui/app.js"):
            assert (await root.get(path)).status_code == 404
        assert (await root.get("/api/jobs")).status_code == (200 if off == "ui" else 404)


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Mapping[str, BuiltFile]]:
    monkeypatch.setattr(ui, "files", lambda _: tmp_path)
    built_files.cache_clear()
    yield MappingProxyType({})
    built_files.cache_clear()


@pytest.mark.usefixtures("not_built")
async def test_a_source_tree_without_a_build_says_how_to_build(browser: httpx2.AsyncClient) -> None:
    """To whoever looks, in words."""
    answer = await browser.get("/ui/")
    assert answer.status_code == 503
    assert "npm run build" in answer.text


def test_compressed_files_are_the_same_from_every_server() -> None:
    """Several servers behind one address agree on their tags."""
    for file in built_files().values():
        assert gzip.decompress(file.compressed) == file.content
        assert file.compressed == gzip.compress(file.content, mtime=0)
