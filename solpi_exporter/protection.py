"""Who may ask the HTTP server, and how it is encrypted: Prometheus' web configuration file becomes what web.py keeps.

    file  ->  Protection  ->  web.py

The format is exporter-toolkit's. What it has and this server cannot keep is refused: nobody shall believe it in force.
Imported where a file is set, and nowhere else.
"""

import base64
import hmac
import re
import secrets
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import bcrypt
import msgspec
import yaml

from solpi_exporter.web import Protection

HEADERS = (
    "Cache-Control",
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
COST = 10  # of the hash that stands for users who do not exist, as `htpasswd -B -C 10` has it
MOST_KNOWN = 128  # credentials whose outcome is remembered
BCRYPT_BYTES = 72  # of a password, behind which bcrypt does not look

_HASH = re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}")


class ProtectionError(Exception):
    """A file that cannot be kept; the message is one line: which file, which key, what was expected."""


class _Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    cert_file: str
    key_file: str
    client_auth_type: str = "NoClientCert"
    client_ca_file: str | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"


class _Http(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    http2: bool = True  # there is none here, whatever it says
    headers: dict[str, str] = {}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tls_server_config: _Tls | None = None
    http_server_config: _Http = _Http()
    basic_auth_users: dict[str, str] = {}


@dataclass(slots=True)
class Gate:
    """Tells by an Authorization header whether somebody is a user; `users` are bcrypt hashes by name."""

    users: Mapping[str, bytes]
    _nobody: bytes = field(default_factory=lambda: bcrypt.hashpw(secrets.token_bytes(16), bcrypt.gensalt(COST)))
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _known: dict[bytes, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, authorization: str) -> bool | None:
        """Return what was found before, at once; None where it has to be worked out."""
        with self._lock:
            return self._known.get(self._digest(authorization))

    def admits(self, authorization: str) -> bool:
        """Work it out, which takes a tenth of a second of a CPU, for a user who does not exist as well."""
        name, password = _credentials(authorization)
        matches = bcrypt.checkpw(password[:BCRYPT_BYTES], self.users.get(name, self._nobody))
        found = matches and name in self.users
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[self._digest(authorization)] = found
        return found

    def _digest(self, authorization: str) -> bytes:
        """Return what remembers credentials without holding them."""
        return hmac.digest(self._key, authorization.encode(), "sha256")


def load(path: Path) -> Protection:
    """Return what a file asks for, its paths relative to it; raise ProtectionError."""
    try:
        tree = yaml.safe_load(path.read_bytes()) or {}
        read = msgspec.convert(tree, _File)
    except OSError as error:
        raise ProtectionError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ProtectionError(f"{path}: {' '.join(str(error).split())}") from error
    for name in read.http_server_config.headers:
        if name not in HEADERS:
            raise ProtectionError(f"{path}: headers: expected some of {', '.join(HEADERS)}, got {name}")
    for name, hashed in read.basic_auth_users.items():
        if not _HASH.fullmatch(hashed):
            raise ProtectionError(
                f"{path}: basic_auth_users: expected a bcrypt hash for {name}: htpasswd -nBC 10 {name}"
            )
    tls = read.tls_server_config
    return Protection(
        None if tls is None else _context(tls, path),
        Gate({name: hashed.encode() for name, hashed in read.basic_auth_users.items()})
        if read.basic_auth_users
        else None,
        read.http_server_config.headers,
    )


def _context(tls: _Tls, path: Path) -> ssl.SSLContext:
    for key, value, choices in (
        ("min_version", tls.min_version, VERSIONS),
        ("max_version", tls.max_version, VERSIONS),
        ("client_auth_type", tls.client_auth_type, CLIENTS),
    ):
        if value not in choices:
            raise ProtectionError(f"{path}: {key}: expected one of {', '.join(choices)}, got {value}")
    asks = CLIENTS[tls.client_auth_type] is not ssl.CERT_NONE
    if asks is not (tls.client_ca_file is not None):
        raise ProtectionError(f"{path}: client_ca_file: expected with a client_auth_type that verifies, and only there")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = VERSIONS[tls.min_version], VERSIONS[tls.max_version]
    try:
        context.load_cert_chain(path.parent / tls.cert_file, path.parent / tls.key_file, password=_no_password)
        if tls.client_ca_file is not None:
            context.load_verify_locations(path.parent / tls.client_ca_file)
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or str(error)
        raise ProtectionError(f"{path}: cert_file, key_file or client_ca_file cannot be used: {reason}") from error
    context.verify_mode = CLIENTS[tls.client_auth_type]
    return context


def _no_password() -> str:
    """Refuse a key with a password, for which openssl would ask on the terminal."""
    return ""


def _credentials(authorization: str) -> tuple[str, bytes]:
    """Return name and password of a header; of one that has none, empty ones."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, _, password = base64.b64decode(encoded if scheme.lower() == "basic" else "", validate=True).partition(
            b":"
        )
        return name.decode(), password
    except ValueError:  # no base64, or no text
        return "", b""
