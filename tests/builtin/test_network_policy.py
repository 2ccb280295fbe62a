"""Which addresses a task may connect to, whatever they are called."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.builtin.network_task_apps import fetching_app, run
from tests.builtin.web_server import Web
from tidewheel import ConfigurationError, State
from tidewheel.builtin.http_client import HttpAddress, InvalidUrl
from tidewheel.builtin.network_policy import ConnectionForbidden, NetworkPolicy

ANY = NetworkPolicy.from_options(["*"], [])


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "0.0.0.0", "localhost",  # noqa: S104
        "::1", "::", "::ffff:127.0.0.1", "::ffff:a00:1", "::127.0.0.1", "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
        "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "192.0.2.1", "198.18.0.1",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "fe80::1", "fc00::1", "fd00::1", "fec0::1", "ff02::1",
        "2001:db8::1", "2001:0:7f00:1::", "168.63.129.16",
        "192.0.0.1", "192.0.0.8", "192.0.0.170", "192.0.0.192", "192.31.196.1", "192.52.193.1", "192.88.99.1",
        "192.175.48.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "100.127.255.255", "239.1.2.3",
        "100::1", "64:ff9b:1::a00:1", "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff::1",
        "2001:0:5db8:d822::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "5f00::1", "4000::1",
        "64:ff9b::c000:1", "64:ff9b::c058:6301", "2002:c058:6301::1", "::ffff:192.88.99.1",
        "::ffff:198.18.0.1",
    ],
)  # fmt: skip
async def test_an_address_that_is_not_public_is_refused(host: str) -> None:
    """However it is written, and whichever address it carries inside."""
    with pytest.raises(ConnectionForbidden, match="not a public address"):
        await ANY.resolve(host, 80)


@pytest.mark.parametrize(
    "host",
    [
        "93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "2002:5db8:d822::1",
        "::ffff:93.184.216.34",
        # The neighbours of what is refused.
        "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1",
        "192.0.1.1", "192.88.98.255", "192.88.100.1", "198.17.255.255", "198.20.0.1", "223.255.255.255",
        "2001:200::1", "2003::1", "3fff:1000::1",
    ],
)  # fmt: skip
async def test_a_public_address_is_allowed(host: str) -> None:
    """Also one that is reached through a gateway."""
    assert await ANY.resolve(host, 80) == [ipaddress.ip_address(host)]


async def test_the_interpreter_has_no_say_in_what_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables differ from version to version: one that calls everything global opens nothing."""
    everything = property(lambda _: True)
    nothing = property(lambda _: False)
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", everything)
        for name in ("is_private", "is_reserved", "is_multicast", "is_loopback", "is_link_local"):
            monkeypatch.setattr(kind, name, nothing)
    for host in (
        "127.0.0.1",
        "10.0.0.1",
        "192.0.0.8",
        "192.88.99.1",
        "224.0.0.1",
        "::1",
        "2001:db8::1",
        "3fff::1",
    ):
        with pytest.raises(ConnectionForbidden):
            await ANY.resolve(host, 80)


async def test_an_allowed_network_is_allowed_and_no_more_than_that() -> None:
    """allowed_networks opens what it names, also for an address that carries it."""
    reach = NetworkPolicy.from_options(["*"], ["10.1.0.0/16", "fd00::/64"])
    for host in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::7"):
        assert await reach.resolve(host, 80)
    for host in ("10.2.0.1", "127.0.0.1", "fd00:1::1"):
        with pytest.raises(ConnectionForbidden):
            await reach.resolve(host, 80)


@pytest.mark.parametrize(
    ("allowed", "host", "fine"),
    [
        ("files.example.org", "files.example.org", True),
        ("files.example.org", "FILES.Example.org.", True),
        ("files.example.org", "evil-files.example.org", False),
        ("files.example.org", "files.example.org.evil.com", False),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "evilexample.org", False),
        ("*", "anything", True),
        ("Bücher.example", "xn--bcher-kva.example", True),
        ("*.Bücher.example", "a.xn--bcher-kva.example", True),
        ("[2001:DB8::1]", "2001:db8:0::1", True),
    ],
)
def test_hosts_are_compared_whole(allowed: str, host: str, fine: bool) -> None:
    """A name that only begins or ends like an allowed one is another name."""
    reach = NetworkPolicy.from_options([allowed], [])
    if fine:
        reach.check_host(host)
    else:
        with pytest.raises(ConnectionForbidden, match="allowed_hosts"):
            reach.check_host(host)


@pytest.mark.parametrize(
    ("hosts", "networks"),
    [("example.org", []), (["http://example.org"], []), (["a*.org"], []), ([""], []), (["*"], ["10.0.0.1/8"]),
     (["*"], ["everywhere"]), (["*"], "10.0.0.0/8"), (["example.org:8080"], []), (["*."], []), ([7], [])],
)  # fmt: skip
def test_configuration_that_cannot_be_meant_is_refused(hosts: Any, networks: Any) -> None:
    """When the tasks are included, not when the first job runs."""
    with pytest.raises(ConfigurationError, match="allowed_"):
        NetworkPolicy.from_options(hosts, networks)


async def test_a_name_is_resolved_once_and_its_address_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers a good address for the check and a bad one for the use gets nowhere."""
    answers = ["127.0.0.1", "127.0.0.2"]
    resolve = socket.getaddrinfo

    def rebinding(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host == "rebinding.example.org":
            host = answers.pop(0)
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with Web(b"public").serving() as web, Web(b"secret", host="127.0.0.2", port=web.port).serving() as inside:
        url = f"http://rebinding.example.org:{web.port}/"
        job = await run(fetching_app(tmp_path), "download_file", {"url": url, "dest": "one"})
        assert job.state is State.COMPLETED, job.error
        assert (tmp_path / "one").read_bytes() == b"public"
        assert web.requests[0]["Host"] == f"rebinding.example.org:{web.port}"
        job = await run(fetching_app(tmp_path), "download_file", {"url": url, "dest": "two"})
        assert inside.requests == []
    assert job.error is not None
    assert job.error.code == "forbidden_address"


async def test_of_several_addresses_only_the_allowed_ones_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with a good and a bad address is reached at the good one."""
    resolve = socket.getaddrinfo

    def mixed(host: Any, *args: Any, **kwargs: Any) -> Any:
        if host != "mixed.example.org":
            return resolve(host, *args, **kwargs)
        return [entry for one in ("127.0.0.2", "127.0.0.1") for entry in resolve(one, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", mixed)
    with Web(b"public").serving() as web, Web(b"secret", host="127.0.0.2", port=web.port).serving() as inside:
        url = f"http://mixed.example.org:{web.port}/"
        job = await run(fetching_app(tmp_path), "download_file", {"url": url, "dest": "one"})
        assert inside.requests == []
    assert job.state is State.COMPLETED, job.error


async def test_a_host_that_nobody_knows_is_an_error_with_its_name(tmp_path: Path) -> None:
    """And one that may pass: names come and go."""
    payload = {"url": "http://nobody.invalid/", "dest": "one"}
    job = await run(fetching_app(tmp_path), "download_file", payload)
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("host_not_found", True)


class Encrypted:
    """A server with a certificate for ``localhost`` that nobody but its file vouches for."""

    def __init__(self, directory: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        self.certificate = directory / "certificate.pem"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret = directory / "key.pem"
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, secret)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/down":
                    self.send_response(302)
                    self.send_header("Location", "http://localhost/")
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", "6")
                self.end_headers()
                self.wfile.write(b"sealed" if self.path != "/down" else b"")

            def log_message(self, *_: object) -> None:
                """Nothing on stderr."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Clients that do not trust it hang up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Encrypted:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


async def test_https_is_checked_by_name_though_connected_to_by_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate must be for the name in the URL, and somebody must vouch for it; http is no way on."""
    (tmp_path / "root").mkdir()
    app = fetching_app(tmp_path / "root")
    with Encrypted(tmp_path) as server:
        url = f"https://localhost:{server.port}"
        job = await run(app, "download_file", {"url": f"{url}/a", "dest": "a"})
        assert job.error is not None
        assert job.error.code == "connection_failed"
        assert "certificate" in job.error.message.lower()
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        job = await run(app, "download_file", {"url": f"{url}/a", "dest": "a"})
        assert job.state is State.COMPLETED, job.error
        assert (tmp_path / "root" / "a").read_bytes() == b"sealed"
        resolve = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *rest, **more: resolve(host.rstrip("."), *rest, **more)
        )
        job = await run(app, "download_file", {"url": f"https://localhost.:{server.port}/a", "dest": "d"})
        assert job.state is State.COMPLETED, job.error  # the dot is for resolvers, not for certificates
        job = await run(app, "download_file", {"url": f"https://127.0.0.1:{server.port}/a", "dest": "b"})
        assert job.error is not None
        assert "certificate" in job.error.message.lower()
        job = await run(app, "download_file", {"url": f"{url}/down", "dest": "c"})
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("forbidden_address", False)


def test_a_name_in_another_script_is_asked_for_as_names_are() -> None:
    """In a certificate, in a header and on a list it has one form."""
    where = HttpAddress.parse("http://Bücher.example/größe?q=ä#top")
    assert (where.host, where.authority) == ("xn--bcher-kva.example", "xn--bcher-kva.example")
    assert where.target == "/gr%C3%B6%C3%9Fe?q=%C3%A4"


@pytest.mark.parametrize("url", ["http://user:sesame/x@example.org/", "http://u:sesame\u2100@example.org/"])
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """What cannot be taken apart may have a password anywhere."""
    with pytest.raises(InvalidUrl) as refused:
        HttpAddress.parse(url)
    assert "sesame" not in str(refused.value)


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    """Signed URLs carry their secret in the query; errors and logs do not repeat it."""
    assert str(HttpAddress.parse("https://example.org/file?signature=secret#x")) == "https://example.org/file"
