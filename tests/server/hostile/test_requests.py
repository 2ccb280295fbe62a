"""Requests that say two things at once, or too much: over raw sockets, to a real server."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.server.hostile.target import Target, target, url_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the server is the one of the attacks")

PROXY = "127.0.0.1"
JSON = "Content-Type: application/json"


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


class Client:
    """One connection, on which bytes are sent as they are given and whole answers are read."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 60, (source, 0))
        self._rest = b""

    def send(self, head: str, body: bytes = b"") -> Client:
        self.socket.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        return self

    def answer(self) -> Answer:
        while b"\r\n\r\n" not in self._rest:
            self._read()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", 0))
        while len(self._rest) < size:
            self._read()
        body, self._rest = self._rest[:size], self._rest[size:]
        return Answer(int(status.split()[1]), headers, body)

    def _read(self) -> None:
        piece = self.socket.recv(65_536)
        assert piece, f"hung up after {self._rest!r}"
        self._rest += piece

    @property
    def ended(self) -> bool:
        """Whether the server hangs up, now or soon."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


class Server:
    """A server and the connections of one test to it."""

    def __init__(self, target: Target, key: str, clients: contextlib.ExitStack) -> None:
        self.target = target
        self.key = key
        self._clients = clients

    def client(self, source: str = "127.0.0.1") -> Client:
        made = Client(self.target.port, source)
        self._clients.callback(made.socket.close)
        return made

    def ask(self, head: str, body: bytes = b"") -> Answer:
        return self.client().send(head, body).answer()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, str]]:
    """A server behind a proxy at this address, with few connections for every other, and a key for it."""
    directory = tmp_path_factory.mktemp("server")
    settings = {
        "trusted_proxies": PROXY,
        "max_request_bytes": 100_000,
        "max_connections_per_address": 5,
        "superuser": "root:a password that is long enough",
    }
    command = [sys.executable, "-m", "tidewheel.cli", "keys", "create", "--superuser", "--json", "--url"]
    made = subprocess.run([*command, url_in(directory)], capture_output=True, text=True, check=True)
    with target(directory, settings=settings) as attacked:
        yield attacked, json.loads(made.stdout)["key"]


@pytest.fixture
def server(running: tuple[Target, str]) -> Iterator[Server]:
    with contextlib.ExitStack() as clients:
        yield Server(*running, clients)


def chunked(content: bytes, *trailers: str) -> bytes:
    lines = "".join(f"{trailer}\r\n" for trailer in trailers)
    return b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(content), content, lines.encode())


def test_a_trailer_does_not_authenticate(server: Server) -> None:
    """A key counts in the head, and behind the body it is dropped, for this request and for the next one."""
    head = f"POST /api/jobs/bulk HTTP/1.1\nHost: x\n{JSON}\nTransfer-Encoding: chunked"
    body = chunked(
        b'{"action": "delete", "filter": {"where": "state:failed"}, "preview": true}',
        f"Authorization: Bearer {server.key}",
    )
    assert server.ask(f"{head}\nAuthorization: Bearer {server.key}", body).status == 200
    client = server.client()
    assert client.send(head, body).answer().status == 401
    assert client.send("GET /api/jobs HTTP/1.1\nHost: x").answer().status == 401


def test_a_trailer_is_not_the_proxys_word(server: Server) -> None:
    """The address of a login is what the proxy says in the head, so that guessing is throttled."""
    head = (
        f"POST /api/jobs/session HTTP/1.1\nHost: x\n{JSON}\nTransfer-Encoding: chunked\n"
        "X-Forwarded-For: 203.0.113.9"
    )
    login = json.dumps({"name": "root", "password": "wrong"}).encode()
    statuses = [
        server.ask(head, chunked(login, f"X-Forwarded-For: 198.51.100.{number}")).status
        for number in range(12)
    ]
    assert statuses[:3] == [401] * 3
    assert statuses[-1] == 429


def test_a_trailer_does_not_change_the_content_type(server: Server) -> None:
    """A form of another site stays a form."""
    head = "POST /api/jobs/session HTTP/1.1\nHost: x\nContent-Type: text/plain\nTransfer-Encoding: chunked"
    assert server.ask(head, chunked(b"{}", JSON)).status == 415


@pytest.mark.parametrize("size", [150_000, 20_000_000])
@pytest.mark.parametrize("path", ["enqueue", "session"])
def test_a_client_that_sends_too_large_a_body_reads_the_refusal(server: Server, path: str, size: int) -> None:
    """urllib sends the whole body before it reads: it gets the 413, and no reset."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.target.port}/api/jobs/{path}",
        data=b" " * size,
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"},
    )
    for _ in range(6):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)  # noqa: S310 - our own server
        with refused.value as answer:
            assert (answer.code, json.loads(answer.read())["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    "twice",
    ["Host: x", "Authorization: Bearer x", JSON, "Cookie: tidewheel_session=x", "Content-Encoding: identity",
     "Idempotency-Key: a", "Origin: http://x", "X-CSRF-Token: x", "Tidewheel-Request-Id: a"],
)  # fmt: skip
def test_a_header_that_decides_something_comes_once(server: Server, twice: str) -> None:
    """With two of them a proxy and the server could disagree."""
    host = "" if twice.startswith("Host") else "Host: x\n"
    client = server.client().send(
        f"POST /api/jobs/enqueue HTTP/1.1\n{host}{twice}\n{twice}\nContent-Length: 2", b"{}"
    )
    answer = client.answer()
    assert (answer.status, answer.code) == (400, "malformed_request")
    assert twice.partition(":")[0].lower() in json.loads(answer.body)["detail"]
    assert client.ended


@pytest.mark.parametrize(
    "framing",
    ["Content-Length: 2\nContent-Length: 2", "Content-Length: 2\nContent-Length: 3",
     "Content-Length: 2\nTransfer-Encoding: chunked",
     "Transfer-Encoding: chunked\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
     "Transfer-Encoding: identity", "Content-Length: -2", "Content-Length : 2"],
)  # fmt: skip
def test_a_body_has_one_length(server: Server, framing: str) -> None:
    """Framing that can be read in two ways is refused, and the connection ends."""
    client = server.client().send(f"POST /api/jobs/enqueue HTTP/1.1\nHost: x\n{JSON}\n{framing}", b"{}")
    assert client.answer().code == "malformed_request"
    assert client.ended


@pytest.mark.parametrize("coding", ["gzip", "br", "gzip, identity"])
def test_a_compressed_body_is_refused(server: Server, coding: str) -> None:
    """It is not read as something else, and no bomb is unpacked."""
    body = gzip.compress(b'{"name": "root", "password": "wrong"}')
    head = f"POST /api/jobs/session HTTP/1.1\nHost: x\n{JSON}\nContent-Length: {len(body)}"
    answer = server.ask(f"{head}\nContent-Encoding: {coding}", body)
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert "Content-Encoding" in json.loads(answer.body)["detail"]


def test_requests_sent_ahead_are_answered_in_order_up_to_the_limit(server: Server) -> None:
    """A client may send 16 requests ahead of the answers; with more, the rest is not read."""
    paths = ["/healthz", "/readyz", "/nothing"] * 5
    client = server.client()
    client.socket.sendall("".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths).encode())
    assert [client.answer().status for _ in paths] == [200, 200, 404] * 5
    client.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
    answers = [client.answer()]
    while "connection" not in answers[-1].headers:
        answers.append(client.answer())
    assert {answer.status for answer in answers} == {200}
    assert 16 <= len(answers) <= 18
    assert client.ended


def test_connections_from_one_address_are_limited_but_not_those_of_a_proxy(server: Server) -> None:
    """The sixth is refused with the reason; a trusted proxy may have any number."""
    kept = [server.client("127.0.0.3") for _ in range(5)]
    for client in kept:
        assert client.send("GET /healthz HTTP/1.1\nHost: x").answer().status == 200
    refused = server.client("127.0.0.3").answer()
    assert (refused.status, refused.code) == (503, "too_many_connections")
    assert "max_connections_per_address" in json.loads(refused.body)["detail"]
    for client in kept:
        client.socket.close()
    behind = [server.client(PROXY) for _ in range(20)]
    for client in behind:
        assert client.send("GET /healthz HTTP/1.1\nHost: x").answer().status == 200
        client.socket.close()


def test_too_many_headers_are_refused(server: Server) -> None:
    """Their number is limited as well as their size."""
    lines = "\n".join(f"a{number}: b" for number in range(300))
    assert server.ask(f"GET /healthz HTTP/1.1\nHost: x\n{lines}").code == "headers_too_large"


@pytest.mark.parametrize(
    "request_line", ["POST /api/jobs/enqueue", "POST /api/jobs/bulk", "PUT /api/jobs/limits/x"]
)
def test_an_error_does_not_echo_a_hostile_name(server: Server, request_line: str) -> None:
    """The answer to a long name is short, wherever the name is quoted."""
    body = b'{"' + b"nmae" * 20_000 + b'": 1}'
    head = f"{request_line} HTTP/1.1\nHost: x\n{JSON}\nContent-Length: {len(body)}"
    answer = server.ask(f"{head}\nAuthorization: Bearer {server.key}", body)
    assert answer.status == 422
    assert len(answer.body) < 5000
    assert re.search(r"80,000 characters", answer.body.decode())


@pytest.mark.parametrize(
    "request_line", ["POST /api/jobs/enqueue", "POST /api/jobs/bulk", "PUT /api/jobs/limits/x"]
)
def test_a_name_that_imitates_a_path_is_only_a_name(server: Server, request_line: str) -> None:
    """The path of an error is not read out of a name, step by step: with 4 MB that took two seconds."""
    name = "x - at `$" + ".a" * 20_000
    body = json.dumps({name: 1}).encode()
    head = f"{request_line} HTTP/1.1\nHost: x\n{JSON}\nContent-Length: {len(body)}"
    answer = server.ask(f"{head}\nAuthorization: Bearer {server.key}", body)
    assert answer.status == 422
    assert len(answer.body) < 5000
    assert f"({len(name):,} characters) is unknown here" in json.loads(answer.body)["detail"]
