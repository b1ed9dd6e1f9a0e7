"""What the log told, and what the endpoint did around the same time: requests and KV cache, sampled under load."""

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.processes import scrape
from benchmarks.vllm_checks import Table
from benchmarks.vllm_server import get, series, value_of

INTERVAL = 0.2
BEFORE, AFTER = 1.0, 2.0  # seconds around the log's stamp, which has whole ones, in which the endpoint is looked at
AGE = 3.0  # of what the exporter has of the endpoint: its interval, the server's answer, the age of its page
RESOLUTION = 0.0005 + 1e-9  # the log tells per cent with one decimal
MISSES = 0.1  # of values may be beyond all samples: those are five a second, and the steps of the engine a hundred
REPORTS = 5  # at least so many under load, or nothing was compared
STATS = re.compile(r"Running: (\d+) reqs, Waiting: (\d+) reqs, \w+ KV cache usage: ([\d.]+)%")
KEYS = ("running", "waiting", "KV cache usage")

State = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Seen:
    """A state, and when it held: by the log's stamp, or by the clock when it was asked for."""

    when: float
    state: State


def _exported(page: str) -> State | None:
    """Return what an exporter tells, None before its server's first report."""
    if not series(page, "solpi_engine_kv_cache_usage_ratio"):
        return None
    running, waiting = (value_of(page, "solpi_engine_requests", state=state) for state in KEYS[:2])
    return running, waiting, value_of(page, "solpi_engine_kv_cache_usage_ratio")


def _served(text: str) -> State:
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    running, waiting, usage = (value_of(text, f"vllm:{name}") for name in names)
    return running, waiting, usage


class Sampler:
    """Looks at vLLM and both exporters several times a second, until it is left."""

    def __init__(self, vllm: int, both: int, log_only: int) -> None:
        self.served: list[Seen] = []
        self.both: list[Seen] = []
        self.logged: dict[float, State] = {}
        self._ports = (vllm, both, log_only)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            vllm, both, log_only = self._ports
            self.served.append(Seen(time.time(), _served(get(vllm, "/metrics"))))
            if (state := _exported(scrape(both)[1])) is not None:
                self.both.append(Seen(time.time(), state))
            page = scrape(log_only)[1]
            if (state := _exported(page)) is not None:
                self.logged[value_of(page, "solpi_engine_last_report_timestamp_seconds")] = state


def _misses(seen: Sequence[Seen], served: Sequence[Seen], before: float, after: float) -> Mapping[str, int]:
    """Return how many values are not between the least and the most that the endpoint told around their time."""
    missed = dict.fromkeys(KEYS, 0)
    for one in seen:
        around = [other.state for other in served if one.when - before <= other.when <= one.when + after]
        for key, value, told in zip(KEYS, one.state, zip(*around, strict=True), strict=True):
            missed[key] += not min(told) - RESOLUTION <= value <= max(told) + RESOLUTION
    return missed


def check_gauges(table: Table, sampler: Sampler, log: Path) -> None:
    """Hold what the exporters told under load against the log's lines and the endpoint."""
    lines = [tuple(map(float, numbers)) for numbers in STATS.findall(log.read_text())]
    logged = [Seen(when, state) for when, state in sorted(sampler.logged.items())]
    strange = [one for one in logged if (*one.state[:2], round(one.state[2] * 100, 1)) not in lines]
    shown = f"{len(logged)} reports, {sum(one.state[0] > 0 for one in logged)} busy"
    passed = not strange and sum(one.state[0] > 0 for one in logged) >= REPORTS
    table.add("running, waiting, KV cache usage, log alone", shown, "log", f"{len(strange)} other", passed=passed)
    spans = {"log alone": (logged, BEFORE, AFTER), "log and endpoint": (sampler.both, AGE, 0.0)}
    for name, (seen, before, after) in spans.items():
        for key, missed in _misses(seen, sampler.served, before, after).items():
            passed = missed <= MISSES * len(seen)
            what, values, outside = f"{key} under load, {name}", f"{len(seen)} values", f"{missed} outside"
            table.add(what, values, "/metrics then", outside, passed=passed, allowed=f"{MISSES:.0%} of values")


def check_idle(table: Table, served: str, pages: Mapping[str, str]) -> None:
    """Hold what is told once nothing runs against the endpoint."""
    for name, page in pages.items():
        table.equal(f"running, waiting, KV cache usage, idle, {name}", _exported(page), "/metrics", _served(served))
