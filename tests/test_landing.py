"""The landing page in a real browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from solpi_exporter import web
from solpi_exporter.exposition import Exposition
from solpi_exporter.overview.engines import Engine
from solpi_exporter.overview.figures import FIGURES
from solpi_exporter.overview.gpus import Gpu
from solpi_exporter.overview.page import Overview, SourceState
from solpi_exporter.overview.probe import Batch, Probe
from solpi_exporter.overview.split import split_of
from solpi_exporter.web import Pages, WebServer
from tests.browser import Seen, browse
from tests.fakes import FakeBench

UUID = "GPU-00000000-1111-2222-3333-444444444444"
SPLIT = split_of(0.010, 0.4, {"compute": 0.005, "memory": 0.001, "scheduling": 0.003, "sync": 0.001})
ICON = re.findall(r'rel="icon" href="([^"]*)"', (Path(web.__file__).parent / "landing" / "page.html").read_text())[0]


class Counting:
    """A page on which as many requests run as there were for it; `fails_from` is the first that is not answered."""

    def __init__(self, fails_from: int = 1000) -> None:
        self.asked = 0
        self.fails_from = fails_from

    def __call__(self) -> dict[str, Any]:
        self.asked += 1
        if self.asked >= self.fails_from:
            raise ZeroDivisionError("a bug in the page")
        page = Overview(
            (Gpu("0/7", "NVIDIA H200 MIG 1g.18gb", "no_permission", uuid=UUID),),
            (Engine(server="a-server-with-a-long-name", name="12", running=self.asked, p50=12.5, p99=12.5),),
            Probe("ok", 3.0, FakeBench({}).identity, "GPU contended", (Batch(64, "modelled", SPLIT, 9.0, 0.1, 0.1),)),
            (SourceState("engine_endpoint/a-server-with-a-long-name", "down", 300.0),),
        )
        return {"version": "9.9", "page": page, **FIGURES}


def running(seen: Seen) -> int | None:
    """Return how many requests run; None before the page is there."""
    found = re.search(r'data-of="Running">(\d+)<', seen.dom)
    return None if found is None else int(found[1])


@contextmanager
def served(landing: Counting) -> Iterator[str]:
    """Serve a page; yield its address."""
    nothing = cast(Exposition, None)
    server = WebServer("127.0.0.1", 0, Pages(nothing, landing, list, lambda _: None))
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/"
    finally:
        server.stop(2.0)


def test_what_the_browser_does_and_says_would_be_noticed() -> None:
    """A request to elsewhere, one that a policy forbids, and a script that fails."""
    image, policy = "http://127.0.0.1:9/x.png", '<meta http-equiv="Content-Security-Policy" content="img-src data:">'

    elsewhere = browse(f"data:text/html,<img src='{image}'>", lambda seen: image in seen.requested)
    forbidden = browse(f"data:text/html,{policy}<img src='{image}'>", lambda seen: bool(seen.complaints))
    failing = browse("data:text/html,<script>throw new Error('a bug')</script>", lambda seen: bool(seen.complaints))

    assert image in elsewhere.requested
    assert any("Content Security Policy" in one for one in forbidden.complaints)
    assert any("a bug" in one for one in failing.complaints)


@pytest.mark.parametrize("scripts", [True, False])
def test_the_page_is_up_to_date_with_scripts_and_without(scripts: bool) -> None:
    """It reads itself again in place, or is loaded again; the browser complains of nothing, nor does its policy."""
    with served(Counting()) as url:
        seen = browse(url, lambda seen: running(seen) == 2, scripts=scripts)

    assert running(seen) == 2
    assert 'class="unanswered"' not in seen.dom
    assert set(seen.requested) <= {url, ICON}
    assert seen.complaints == []


def test_figures_that_are_no_longer_told_are_called_old() -> None:
    """A daemon that has ended, or fails, does not leave a page that looks alive."""
    with served(Counting(fails_from=2)) as url:
        seen = browse(url, lambda seen: 'class="unanswered"' in seen.dom)

    assert '<body class="unanswered">' in seen.dom
    assert running(seen) == 1


@pytest.mark.parametrize("width", [360, 400, 720, 1280])
def test_the_page_fits_its_window(width: int) -> None:
    """Nothing is cut off on a telephone, long names included."""
    with served(Counting()) as url:
        seen = browse(url, lambda seen: running(seen) is not None, width=width)

    assert running(seen) == 1
    assert seen.width == width
