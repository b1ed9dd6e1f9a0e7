"""A plain HTTP client for tests."""

from dataclasses import dataclass
from http.client import HTTPConnection


@dataclass(frozen=True)
class Answer:
    """Status, headers in lower case, body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def request(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    """Ask loopback for a path; underscores in header names stand for hyphens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()
