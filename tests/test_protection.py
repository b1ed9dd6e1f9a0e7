"""Who may ask a real daemon, and how: by a web configuration file of Prometheus' format."""

import base64
import os
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import bcrypt
import pytest
import trustme

from solpi_exporter.protection import Gate, ProtectionError, load
from tests.http_client import request
from tests.scraped_demo import free_port
from tests.serving import eventually

PASSWORD = "open sesame"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
USERS = f"basic_auth_users:\n  prometheus: {HASH}\n"
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"
CLIENTS = TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the certificates of a server and a client, and of who has signed both."""
    folder = tmp_path_factory.mktemp("certificates")
    signer = trustme.CA()
    signer.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, of in (("server", "127.0.0.1"), ("client", "prometheus")):
        made = signer.issue_cert(of)
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        made.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
    return folder


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def written(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


@contextmanager
def protected(folder: Path, text: str) -> Iterator[int]:
    """Run a daemon that is protected by a file of this text; yield its port."""
    port = free_port()
    command = [sys.executable, "-m", "solpi_exporter", "run", "--no-gpu", "--no-probe", "--listen", f"127.0.0.1:{port}"]
    command += ["--web.config.file", str(written(folder, text))]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            assert eventually(lambda: listens(port))
            yield port
        finally:
            process.kill()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def context_of(folder: Path, *, with_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if with_certificate:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


def plainly(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics")
    connection.getresponse()


def status(port: int, context: ssl.SSLContext) -> int:
    connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status
    finally:
        connection.close()


def test_without_a_password_nothing_is_told(tmp_path: Path) -> None:
    """On every page, on none, and for a wrong one; with it, all of them."""
    with protected(tmp_path, USERS) as port:
        for path in ("/", "/metrics", "/-/healthy", "/-/ready", "/nowhere"):
            answer = request(port, path)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Basic realm="solpi-exporter"')
        for wrong in (
            basic("prometheus", "guess"),
            basic("nobody", PASSWORD),
            "Basic %",
            "Bearer x",
            "Basic /w==",
            "Basic \xff",
        ):
            assert request(port, "/metrics", Authorization=wrong).status == 401
        assert request(port, "/metrics", Authorization=basic("prometheus", PASSWORD)).status == 200
        assert request(port, "/nowhere", Authorization=basic("prometheus", PASSWORD)).status == 404


def test_it_speaks_tls_alone_where_it_is_asked_to(authority: Path) -> None:
    """Whoever trusts its certificate is answered, and who speaks plainly is not."""
    with protected(authority, TLS) as port:
        assert status(port, context_of(authority)) == 200
        with pytest.raises(OSError, match=r"reset|closed|BadStatus|Remote end"):
            plainly(port)


def test_a_client_without_a_certificate_is_turned_away(authority: Path) -> None:
    """Where one is asked for; one that the authority has signed will do."""
    with protected(authority, CLIENTS) as port:
        assert status(port, context_of(authority, with_certificate=True)) == 200
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|eof"):
            status(port, context_of(authority))


def test_half_a_handshake_holds_nobody_up(authority: Path) -> None:
    """Three hundred peers that begin one and go no further; prometheus_client's own server stood still for one."""
    context = context_of(authority)
    with protected(authority, TLS) as port, ExitStack() as peers:
        for _ in range(300):
            peer = peers.enter_context(socket.create_connection(("127.0.0.1", port), 5.0))
            peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01")
        took = []
        for _ in range(11):
            begun = time.perf_counter()
            assert status(port, context) == 200
            took.append(time.perf_counter() - begun)

    assert statistics.median(took) < 0.1, took


def test_who_does_not_exist_takes_as_long_as_a_wrong_password() -> None:
    """Else names could be guessed by the time that an answer takes."""
    gate = Gate({"prometheus": bcrypt.hashpw(b"x", bcrypt.gensalt(10))})

    def seconds(name: str) -> float:
        found = []
        for number in range(5):
            begun = time.perf_counter()
            assert not gate.admits(basic(name, str(number)))
            found.append(time.perf_counter() - begun)
        return min(found)

    assert 0.5 < seconds("prometheus") / seconds("nobody") < 2.0


def test_credentials_are_worked_out_once() -> None:
    """And of no more than so many is remembered what came of them."""
    gate = Gate({"prometheus": HASH.encode()})
    right = basic("prometheus", PASSWORD)

    assert gate.known(right) is None
    assert gate.admits(right)
    assert gate.known(right) is True


def test_headers_come_with_every_answer(tmp_path: Path) -> None:
    """In place of our own of that name."""
    text = "http_server_config:\n  headers:\n    X-Frame-Options: SAMEORIGIN\n    Cache-Control: no-store\n"
    with protected(tmp_path, text) as port:
        for path in ("/metrics", "/nowhere"):
            headers = request(port, path).headers
            assert (headers["x-frame-options"], headers["cache-control"]) == ("SAMEORIGIN", "no-store")


BAD: Mapping[str, tuple[str, str]] = {
    "no YAML": ("a: [", "while parsing"),
    "a misspelt key": ("basic_auth_user: {}", "unknown field `basic_auth_user`"),
    "a key that only Go knows": (TLS + "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "unknown field `cipher_suites`"),
    "a password in the open": ("basic_auth_users: {a: secret}", "expected a bcrypt hash for a: htpasswd -nBC 10 a"),
    "no key": ("tls_server_config: {cert_file: a.pem}", "missing required field `key_file`"),
    "no such file": ("tls_server_config: {cert_file: a.pem, key_file: a.key}", "No such file or directory"),
    "an old TLS": (TLS + "  min_version: TLS10\n", "min_version: expected one of TLS12, TLS13, got TLS10"),
    "clients that are not verified": (
        TLS + "  client_auth_type: RequestClientCert\n",
        "client_auth_type: expected one of NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert",
    ),
    "clients without an authority": (
        TLS + "  client_auth_type: RequireAndVerifyClientCert\n",
        "client_ca_file: expected with a client_auth_type that verifies",
    ),
    "another header": ("http_server_config: {headers: {X-Other: a}}", "headers: expected some of Cache-Control"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_cannot_be_kept_is_refused(what: str, authority: Path) -> None:
    """In one line that names file and key; what Go's server has and this one has not must not be believed in force."""
    text, reason = BAD[what]

    with pytest.raises(ProtectionError) as refused:
        load(written(authority, text))

    message = str(refused.value)
    assert message.startswith(f"{authority / 'web.yml'}: ")
    assert reason in message
    assert "\n" not in message


def test_a_broken_file_stops_the_start_and_the_check(tmp_path: Path) -> None:
    """With the same line, and status 2."""
    path = written(tmp_path, "basic_auth_users: {a: secret}")
    for verb in ("check", "run"):
        command = [sys.executable, "-m", "solpi_exporter", verb, "--web.config.file", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, env=os.environ, check=False)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert result.stderr.startswith(f"Error: http.web_config: {path}: basic_auth_users: expected a bcrypt hash")
