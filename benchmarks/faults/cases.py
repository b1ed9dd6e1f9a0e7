"""The table of faults: on what host, which alerts are its own, and how far those look back."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.faults import engines, gpus
from benchmarks.faults.daemon import Stage
from benchmarks.faults.engines import engine, loaded
from benchmarks.faults.gpus import clock_stepped
from benchmarks.faults.probes import PERIOD, replayed, starved
from benchmarks.faults.vllm import Load

Make = Callable[[Path, Path], AbstractContextManager[Stage]]  # of the driver's library, and a folder


@dataclass(frozen=True, slots=True)
class Needs:
    """How long it takes by itself until an alert's expression holds: seconds, here or, if `divided`, on a real host."""

    seconds: float
    why: str
    divided: bool = True


NOTHING = Needs(0.0, "")
TWO_PERIODS = Needs(2 * PERIOD, "two periods of the probe", divided=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One fault. `alerts` are its own: the first has to come, the others may; without any, nothing may page.

    `is_alone`: it takes the CPUs from others.
    """

    name: str
    make: Make
    alerts: tuple[str, ...] = ()
    needs: Needs = NOTHING
    is_alone: bool = False


def _gpu(name: str, fault: gpus.Fault, alert: str, needs: Needs = NOTHING) -> Case:
    return Case(name, partial(gpus.gpus, fault), (alert,), needs)


def _engine(name: str, fault: engines.Fault, *alerts: str, needs: Needs = NOTHING) -> Case:
    return Case(name, partial(engine, fault), alerts, needs)


def _rows(fault: str, *alerts: str) -> Case:
    return Case(f"{fault} (H200 rows)", partial(replayed, fault), alerts, TWO_PERIODS)


# A calm engine: 7 requests, 640 tokens a second, one each 20 ms, 41 % of its cache.
PRESSED = Load(running=12, kv=0.99, preemptions=2.0, tokens=560.0)
STORMED = Load(running=12, waiting=40, kv=0.99, preemptions=4.0, tokens=300.0, between=0.3)
UNEVEN = Load(running=7, between=0.3)
CRAWLING = Load(running=7, tokens=64.0, between=0.7)
OFFLOADING = Load(running=8, kv=0.97, loaded_bytes=2e9)

CASES = (
    _gpu("GPU fell off the bus", gpus.lost, "SolpiGpuLost"),
    _gpu("GPU left NVML's list", gpus.unlisted, "SolpiGpuLost"),
    _gpu("driver hangs on a GPU", gpus.hung, "SolpiGpuHung"),
    _gpu(
        "hardware slows a GPU down", gpus.throttled, "SolpiGpuHardwareThrottled", Needs(75, "a quarter of five minutes")
    ),
    _gpu(
        "GPU to be recovered",
        gpus.recovery_wanted,
        "SolpiGpuRecoveryNeeded",
        Needs(5, "asked for each 5 s", divided=False),
    ),
    _gpu("XID 79", gpus.xid, "SolpiGpuXidCritical"),
    _gpu(
        "driver's library missing",
        gpus.library_missing,
        "SolpiGpusMissing",
        Needs(2, "the exporter starts", divided=False),
    ),
    _gpu("exporter killed", gpus.exporter_killed, "SolpiExporterDown"),
    Case("clock of the host steps", clock_stepped, ("SolpiClockSkew",)),
    _engine("KV cache full, preempting", loaded(PRESSED), "SolpiKvCachePressure"),
    _engine("swap storm", loaded(STORMED), "SolpiSwapStorm"),
    _engine("latency spike", loaded(UNEVEN), "SolpiTokenLatencySpike"),
    _engine("tokens crawl", loaded(CRAWLING), "SolpiTokenLatencyHigh"),
    _engine(
        "hung engine",
        engines.hung,
        "SolpiEngineStuck",
        needs=Needs(120, "no token for two minutes"),
    ),
    _engine("dead engine", engines.dead, "SolpiEngineDead"),
    _engine("endpoint refuses", engines.refusing, "SolpiEngineDown"),
    _engine("idle engine", engines.idle),
    _engine("log rotated under load", engines.rotated),
    _engine("KV cache comes back from the host", loaded(OFFLOADING)),
    _rows("late read-back", "SolpiControlRegression"),
    _rows("slow dispatch", "SolpiControlRegression"),
    _rows("eager instead of graph", "SolpiControlRegression"),
    _rows("sleep on the GPU", "SolpiGpuTokenSlower"),
    _rows("loaded host", "SolpiHostStarved", "SolpiControlRegression"),
    _rows("busy neighbour"),
    Case(
        "others on the probe's CPU",
        starved,
        ("SolpiHostStarved", "SolpiControlRegression"),
        needs=TWO_PERIODS,
        is_alone=True,
    ),
)
