"""The HTTP surface, and the one door to tornado: a landing page, /metrics, and what supervisors ask.

One thread and one event loop; rendering runs beside it, so that /-/healthy answers whatever else is busy.
"""

import asyncio
import base64
import hashlib
import re
import resource
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import bind_sockets
from tornado.template import Loader
from tornado.web import Application, HTTPError, RequestHandler

from solpi_exporter.exposition import TEXT, Exposition
from solpi_exporter.reloads import Reload

IDLE_SECONDS = 75.0  # above Prometheus' usual scrape interval, so that its connection is kept
BODY_SECONDS = 5.0
HEADER_BYTES = 8 << 10
BODY_BYTES = 64 << 10
CALLERS = 16  # whose credentials are looked at, or wait for that
CONNECTIONS = 256  # out of descriptors, accepting would fail in a busy loop

_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")

_LANDING = Path(__file__).parent / "landing"
_STYLE = (_LANDING / "page.css").read_text()
_SCRIPT = (_LANDING / "page.js").read_text()
_SECTIONS = ("engines", "gpus", "own", "probe", "sources")


def _source(text: str) -> str:
    """Return what an inline text is allowed by: its hash, so that nothing else is."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_HEADERS = {
    "Server": "solpi-exporter",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


class Gate(Protocol):
    """Tells by an Authorization header whether somebody may ask."""

    def known(self, authorization: str) -> bool | None:
        """Return what was found before, at once; None where it has to be worked out."""
        ...

    def admits(self, authorization: str) -> bool:
        """Work it out, which takes a while."""
        ...


@dataclass(frozen=True, slots=True)
class Protection:
    """`gate` is None where everybody may ask, `context` where nothing is encrypted; `headers` come with each answer."""

    context: ssl.SSLContext | None = None
    gate: Gate | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pages:
    """What the server shows: the exposition, what the landing page says, and which sources are still waited for.

    `broken` is told of an exception that no client has caused; `reload` is what may be asked for, None for nothing.
    """

    exposition: Exposition
    landing: Callable[[], Mapping[str, Any]]
    pending: Callable[[], list[str]]
    broken: Callable[[BaseException], None]
    reload: Reload | None = None
    protection: Protection = Protection()


class _Handler(RequestHandler):
    """Common to every page: our headers, and HEAD wherever there is GET."""

    def initialize(self, pages: Pages, executor: ThreadPoolExecutor, doorman: "_Doorman") -> None:
        self.pages = pages
        self.executor = executor
        self.doorman = doorman

    def set_default_headers(self) -> None:
        for name, value in self.application.settings["headers"].items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        status = await self.doorman.status(self.request.headers.get("Authorization", ""))
        if status != 200:
            self.send_error(status)

    async def head(self) -> None:
        answer = self.get()  # tornado sends the headers and leaves out the body
        if answer is not None:
            await answer

    def compute_etag(self) -> None:
        """Give no ETag: nobody caches a scrape, and hashing one costs."""

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Say nothing of what a client did wrong, and pass on what we did."""
        if value is not None and not isinstance(value, HTTPError):
            self.pages.broken(value)

    def write_error(self, status_code: int, **_: object) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        if status_code == 401:
            self.set_header("WWW-Authenticate", 'Basic realm="solpi-exporter"')
        self.finish(f"{status_code} {self._reason}\n")


class _Metrics(_Handler):
    async def get(self) -> None:
        accept = self.request.headers.get("Accept", TEXT)
        compress = bool(_GZIP.search(self.request.headers.get("Accept-Encoding", "")))
        render = partial(self.pages.exposition.render, accept, compress=compress)
        body, content_type = await asyncio.get_running_loop().run_in_executor(self.executor, render)
        self.set_header("Content-Type", content_type)
        self.set_header("Vary", "Accept, Accept-Encoding")
        if compress:
            self.set_header("Content-Encoding", "gzip")
        self.finish(body)


class _Healthy(_Handler):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish("solpi-exporter is healthy.\n")


class _Ready(_Handler):
    async def get(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        pending = self.pages.pending()
        if pending:
            self.set_status(503)
            self.finish(f"Waiting for the first poll of: {', '.join(pending)}\n")
        else:
            self.finish("solpi-exporter is ready.\n")


class _Reload(_Handler):
    async def head(self) -> None:
        self.send_error(405)

    async def post(self) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        reload = self.pages.reload
        if reload is None:
            self.set_status(403)
            self.finish("Reloading by HTTP is off: set http.reload, or send SIGHUP.\n")
            return
        error = await asyncio.get_running_loop().run_in_executor(self.executor, reload.refused)
        if error is not None:
            self.set_status(500)
            self.finish("Refused: the log says why. What was in force still is.\n")  # it may name a path
            return
        await self.finish("Reloading.\n")  # said before the server stops for it
        reload.go()

    put = post


class _Landing(_Handler):
    loader = Loader(str(_LANDING))  # compiles when the page is first asked for, section by section: 1 MB, not 2

    async def get(self) -> None:
        self.finish(await asyncio.get_running_loop().run_in_executor(self.executor, self._page))

    def _page(self) -> bytes:
        shown = self.pages.landing()
        sections = [self.loader.load(f"{name}.html").generate(**shown) for name in _SECTIONS]
        return self.loader.load("page.html").generate(sections=sections, style=_STYLE, script=_SCRIPT, **shown)


class _NotFound(_Handler):
    async def prepare(self) -> None:
        await super().prepare()
        if not self._finished:
            self.send_error(404)


class _Doorman:
    """Asks the gate, one caller after the other and beside the event loop, since each costs a tenth of a second."""

    def __init__(self, gate: Gate | None) -> None:
        self._gate = gate
        self._executor = ThreadPoolExecutor(1, "gate")
        self._waiting = 0

    async def status(self, authorization: str) -> int:
        """Return 200 for somebody who may ask, 401 for others, and 429 where too many are being asked who they are."""
        if self._gate is None:
            return 200
        admitted = self._gate.known(authorization)
        if admitted is None:
            if self._waiting >= CALLERS:
                return 429
            self._waiting += 1
            try:
                loop = asyncio.get_running_loop()
                admitted = await loop.run_in_executor(self._executor, self._gate.admits, authorization)
            finally:
                self._waiting -= 1
        return 200 if admitted else 401


_ROUTES = (
    (r"/", _Landing),
    (r"/metrics", _Metrics),
    (r"/-/healthy", _Healthy),
    (r"/-/ready", _Ready),
    (r"/-/reload", _Reload),
)


class _Server(HTTPServer):
    """Closes the oldest connection for one above the limit: a scrape is over in milliseconds, an idle peer is not."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **kwargs)
        self._limit = min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._streams: dict[IOStream, None] = {}

    def handle_stream(self, stream: IOStream, address: tuple[str, int]) -> None:
        self._streams = {one: None for one in self._streams if not one.closed()}
        if len(self._streams) >= self._limit:
            next(iter(self._streams)).close()
        self._streams[stream] = None
        super().handle_stream(stream, address)


class WebServer:
    """Serves on one address from a thread of its own. Binding happens here, so that a taken port fails the start.

    `inherited` sockets listen already, and are taken instead.
    """

    def __init__(self, host: str, port: int, pages: Pages, inherited: Sequence[socket.socket] = ()) -> None:
        self._sockets = list(inherited) or bind_sockets(port, host or None)
        self._executor = ThreadPoolExecutor(1, "render")
        self._context = pages.protection.context
        doorman = _Doorman(pages.protection.gate)
        arguments = {"pages": pages, "executor": self._executor, "doorman": doorman}
        self._application = Application(
            [(path, handler, arguments) for path, handler in _ROUTES],
            default_handler_class=_NotFound,
            default_handler_args=arguments,
            log_function=lambda _: None,
            headers={**_HEADERS, **pages.protection.headers},
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="web", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on, which the system has chosen if 0 was asked for."""
        return int(self._sockets[0].getsockname()[1])

    def keep(self) -> list[socket.socket]:
        """Return copies of its sockets, which listen on after it has stopped: who connects then waits."""
        return [one.dup() for one in self._sockets]

    def start(self) -> None:
        """Begin to answer."""
        self.thread.start()

    def stop(self, timeout: float) -> None:
        """Stop listening and end the thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self.thread.join(timeout)
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        server = _Server(
            self._application,
            ssl_options=self._context,
            idle_connection_timeout=IDLE_SECONDS,
            body_timeout=BODY_SECONDS,
            max_header_size=HEADER_BYTES,
            max_body_size=BODY_BYTES,
        )
        server.add_sockets(self._sockets)
        await self._stop.wait()
        server.stop()
        await server.close_all_connections()
