"""A real Chromium without a window, told what to do by its DevTools protocol: what a page comes to in it."""

import asyncio
import json
import re
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any

from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.conftest import find_tool

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--no-proxy-server",
)
_LISTENING = re.compile(rb"DevTools listening on (ws://\S+)")


class Refused(Exception):
    """The browser does not do what it was asked for; of a document, because it has just been left."""


@dataclass(frozen=True)
class Seen:
    """The document, how wide it came out, what was asked of the network, and what the console was told."""

    dom: str
    width: float
    requested: list[str]
    complaints: list[str]

    def section(self, name: str) -> str:
        """Return the text of a section as a reader has it, on one line."""
        (inner,) = re.findall(rf'<section id="{name}">(.*?)</section>', self.dom, re.DOTALL)
        return " ".join(re.sub(r"<[^>]+>", " ", inner).split())


def browse(url: str, until: Callable[[Seen], bool], *, scripts: bool = True, width: int = 1280) -> Seen:
    """Open an address and look at it until it is as wanted, for half a minute at most; return what was seen last."""
    return asyncio.run(_browse(find_tool("chromium"), url, until, scripts=scripts, width=width))


async def _browse(program: str, url: str, until: Callable[[Seen], bool], *, scripts: bool, width: int) -> Seen:
    async with _running(program) as address, _tab(address) as tab:
        for domain in ("Page", "Network", "Log", "Runtime"):
            await tab.ask(f"{domain}.enable")
        await tab.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        await tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        await tab.ask("Emulation.setScrollbarsHidden", hidden=True)
        await tab.ask("Page.navigate", url=url)
        seen = Seen("", 0.0, [], [])
        for _ in range(300):
            with suppress(Refused):
                seen = await tab.look()
            if until(seen):
                break
            await asyncio.sleep(0.1)
        return seen


@asynccontextmanager
async def _running(program: str) -> AsyncIterator[str]:
    """Run a browser of its own, and yield where it is spoken to."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *_FLAGS, f"--user-data-dir={profile}"]
        process = await asyncio.create_subprocess_exec(*command, stderr=PIPE, stdout=PIPE)
        try:
            yield await asyncio.wait_for(_address(process), 60.0)
        finally:
            process.terminate()
            await process.communicate()


async def _address(process: Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        found = _LISTENING.search(line)
        if found:
            return found[1].decode()
    raise AssertionError("the browser has ended")


@asynccontextmanager
async def _tab(address: str) -> AsyncIterator["_Tab"]:
    """Open a tab, and yield it."""
    connection = await websocket_connect(address, max_message_size=64 << 20)
    try:
        browser = _Tab(connection)
        target = await browser.ask("Target.createTarget", url="about:blank")
        attached = await browser.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        yield _Tab(connection, attached["sessionId"], browser.numbers)
    finally:
        connection.close()
        while await connection.read_message() is not None:
            pass


@dataclass
class _Tab:
    """One tab, and what it has reported."""

    connection: WebSocketClientConnection
    session: str | None = None
    numbers: "count[int]" = field(default_factory=count)
    requested: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask for one thing and return the answer; take note of what is reported meanwhile."""
        question: dict[str, Any] = {"id": next(self.numbers), "method": method, "params": params}
        if self.session is not None:
            question["sessionId"] = self.session
        await self.connection.write_message(json.dumps(question))
        while True:
            message = await asyncio.wait_for(self.connection.read_message(), 30.0)
            assert message is not None, "the browser has ended"
            told = json.loads(message)
            if told.get("id") == question["id"]:
                if "error" in told:
                    raise Refused(f"{method}: {told['error']}")
                return dict(told["result"])
            self._note(told)

    async def look(self) -> Seen:
        """Return what there is now."""
        root = await self.ask("DOM.getDocument", depth=0)
        html = await self.ask("DOM.getOuterHTML", nodeId=root["root"]["nodeId"])
        layout = await self.ask("Page.getLayoutMetrics")
        width = layout["cssContentSize"]["width"]
        return Seen(html["outerHTML"], width, list(self.requested), list(self.complaints))

    def _note(self, told: dict[str, Any]) -> None:
        match told.get("method"):
            case "Network.requestWillBeSent":
                self.requested.append(told["params"]["request"]["url"])
            case "Log.entryAdded" | "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]))
