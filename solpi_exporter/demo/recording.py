"""A recorded run of a server: its log lines with their times, its /metrics over time, its GPU's samples."""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from math import floor, isfinite
from typing import Any

from solpi_exporter.gpu.fields import CLOCK_DOMAINS, MEMORY_V2, TEMPERATURE_GPU
from solpi_exporter.gpu.recording import Frame

RUNS = ("a-before", "b-after", "c-kv-pressure")
LEAD_SECONDS = 2.0  # shown before a run's first request; its start-up is told at once

_STAMP = re.compile(r" (\d\d-\d\d \d\d:\d\d:\d\d) \[")
_CUMULATIVE = ("_total", "_count", "_sum")

Series = Mapping[str, float]
Sample = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One run; all times are Unix seconds of the recording. `samples` are the GPU's, one a second."""

    name: str
    start: float
    end: float
    lines: tuple[tuple[float, str], ...]
    samples: tuple[Mapping[str, Any], ...]
    metrics: "RecordedMetrics"


def folder() -> Traversable:
    """Return the folder of the demo's recording within the package."""
    return files("solpi_exporter").joinpath("recordings", "vllm-0.24.0-h200")


def load_device() -> Mapping[str, Any]:
    """Return what the recorded GPU answered throughout, as a recording's answers."""
    device: Mapping[str, Any] = json.loads(folder().joinpath("device.json").read_text())
    return device


# How a recorded sample answers for GPU 0.
_ANSWERS: Mapping[str, Callable[[Sample], Any]] = {
    "nvmlDeviceGetUtilizationRates": lambda s: {"gpu": s["gpu"], "memory": s["mem"]},
    f"nvmlDeviceGetMemoryInfo {MEMORY_V2}": lambda s: {
        "total": s["mem_total"],
        "used": s["mem_used"],
        "free": s["mem_free"],
        "reserved": s["mem_reserved"],
    },
    "nvmlDeviceGetPowerUsage": lambda s: s["power_mw"],
    f"nvmlDeviceGetTemperature {TEMPERATURE_GPU}": lambda s: s["temp"],
    f"nvmlDeviceGetClockInfo {CLOCK_DOMAINS['sm']}": lambda s: s["sm"],
    f"nvmlDeviceGetClockInfo {CLOCK_DOMAINS['memory']}": lambda s: s["memclk"],
    "nvmlDeviceGetPerformanceState": lambda s: s["pstate"],
    "nvmlDeviceGetCurrentClocksEventReasons": lambda s: s["reasons"],
    "nvmlDeviceGetTotalEnergyConsumption": lambda s: s["energy_mj"],
}
_GPM = {
    "GRAPHICS_UTIL": 1,
    "SM_UTIL": 2,
    "SM_OCCUPANCY": 3,
    "ANY_TENSOR_UTIL": 5,
    "DRAM_BW_UTIL": 10,
    "PCIE_TX_PER_SEC": 20,
    "PCIE_RX_PER_SEC": 21,
}
_FIELDS = {"POWER_INSTANT": 186, "MEMORY_TEMP": 82, "PERF_POLICY_POWER": 74}


def frames_of(samples: Sequence[Sample]) -> Iterator[Frame]:
    """Yield samples in the order of time as a recording's frames."""
    before = samples[0]["t"] - 1.0
    for sample in samples:
        yield sample["t"], _answers_of(sample, before)
        before = sample["t"]


def _answers_of(sample: Sample, before: float) -> dict[str, Any]:
    """Return a sample's answers; its utilisation samples have been taken since the sample at `before`."""
    answers = {f"0 {call}": answer(sample) for call, answer in _ANSWERS.items()}
    answers |= {
        f"0 gpm {number}": sample["gpm"][name] for name, number in _GPM.items() if isfinite(sample["gpm"][name])
    }
    answers |= {f"0 field {number} 0": sample["fields"][name] for name, number in _FIELDS.items()}
    values = sample["util_samples"]
    step = (sample["t"] - before) / len(values) if values else 0.0
    answers["0 samples 1"] = [(round((before + step * (at + 1)) * 1e6), value) for at, value in enumerate(values)]
    return answers


def load_run(name: str) -> Run:
    """Read one run of the package's recording."""
    nvml = json.loads(folder().joinpath(f"{name}.nvml.json").read_text())
    start = nvml["start"] + nvml["ready_s"] - LEAD_SECONDS
    end = nvml["phases"][-1][0]
    log = folder().joinpath(f"{name}.log").read_bytes().decode()  # as written: some lines end in \r\n
    snapshots = [(sample["t"], sample["metrics"]) for sample in nvml["samples"] if sample.get("metrics")]
    exposition = folder().joinpath(f"{name}.metrics.txt").read_text()
    return Run(
        name,
        start,
        end,
        tuple(timed_lines(log.split("\n")[:-1], nvml["start"])),
        tuple(nvml["samples"]),
        RecordedMetrics(exposition, snapshots, start, end),
    )


def timed_lines(lines: Iterable[str], start: float) -> Iterator[tuple[float, str]]:
    """Yield each line with the time at which it was written: its own stamp, in UTC, or that of the line before."""
    year, time = datetime.fromtimestamp(start, UTC).year, start
    for line in lines:
        stamp = _STAMP.search(line)
        if stamp is not None:
            time = datetime.strptime(f"{year}-{stamp[1]} +0000", "%Y-%m-%d %H:%M:%S %z").timestamp()
        yield time, line


class RecordedMetrics:
    """A server's /metrics at any instant of a run, from the whole text at its end and snapshots on the way.

    Counters run straight from snapshot to snapshot, gauges hold, and a histogram's buckets keep the shares that they
    had at the end, since the snapshots hold its sum and count only.
    """

    def __init__(self, exposition: str, snapshots: Sequence[tuple[float, Series]], start: float, end: float) -> None:
        self._lines = [line for line in exposition.splitlines() if "vllm:" in line and "_created" not in line]
        final = dict(_split(line) for line in self._lines if not line.startswith("#"))
        self._final = final
        self._points: list[tuple[float, Series]] = [(start, {}), *snapshots, (end, final)]
        self._times = [time for time, _ in self._points]

    def text(self, time: float) -> str:
        """Return the exposition as it stood at `time`."""
        return "\n".join(line if line.startswith("#") else self._line(line, time) for line in self._lines) + "\n"

    def _line(self, line: str, time: float) -> str:
        series, _ = _split(line)
        return f"{series} {self.value(series, time)}"

    def value(self, series: str, time: float) -> float:
        """Return one series' value at `time`, given as `name{labels}` in the recorded order."""
        name = series.partition("{")[0]
        if name.endswith("_bucket"):
            return self._bucket(series, time)
        if name.endswith("_info"):
            return self._final[series]
        index = max(0, bisect_right(self._times, time) - 1)
        before = self._points[index][1].get(series, 0.0)
        if not name.endswith(_CUMULATIVE) or index + 1 == len(self._points):
            return before
        after = self._points[index + 1][1].get(series, 0.0)
        share = (time - self._times[index]) / (self._times[index + 1] - self._times[index])
        value = before + max(0.0, min(1.0, share)) * (after - before)
        return value if name.endswith("_sum") else float(floor(value))

    def _bucket(self, series: str, time: float) -> float:
        count = re.sub(r',?le="[^"]*"', "", series.replace("_bucket{", "_count{", 1)).replace("{,", "{")
        total = self._final[count]
        return float(floor(self.value(count, time) * self._final[series] / total)) if total else 0.0


def _split(line: str) -> tuple[str, float]:
    series, _, value = line.rpartition(" ")
    return series, float(value)
