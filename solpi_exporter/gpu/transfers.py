"""Bytes that a GPU moves: NVML tells rates over a poll, or counters that wrap; here they become totals.

GPM's rates come with its one call a poll. Without GPM the counters are read, which for PCIe are a lower bound. Which of
the two a GPU's totals are made of is settled by the first answer and stays: a change would look like a reset.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from solpi_exporter.gpu.driver import EVERY_LINK
from solpi_exporter.gpu.fields import GPU
from solpi_exporter.gpu.origins import BLANK, Activity, FieldValue, Origin
from solpi_exporter.metric import Kind, Metric, Sample

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Transfer:
    """A direction: GPM's metric in MiB/s, and a counter in units of `unit` bytes that wraps at `wraps_at`."""

    metric: Metric
    rate: Activity
    counter: FieldValue
    unit: int = 1
    wraps_at: int | None = None


def _metric(name: str, help_text: str) -> Metric:
    return Metric(f"solpi_gpu_{name}_bytes_total", help_text, Kind.COUNTER, GPU)


_PCIE_WRAPS_AT = 1 << 32  # every 1.5 s at 2.8 GB/s: more than one turn between two polls goes unseen
_PCIE = "over PCIe while the exporter ran, protocol included; a lower bound on GPUs without GPM."
_NVLINK = "over all NVLinks while the exporter ran."

TRANSFERS = (
    Transfer(_metric("pcie_transmit", f"Bytes sent {_PCIE}"), Activity(20), FieldValue(197), 1, _PCIE_WRAPS_AT),
    Transfer(_metric("pcie_receive", f"Bytes received {_PCIE}"), Activity(21), FieldValue(198), 1, _PCIE_WRAPS_AT),
    Transfer(_metric("nvlink_transmit", f"Bytes sent {_NVLINK}"), Activity(61), FieldValue(138, EVERY_LINK), 1024),
    Transfer(_metric("nvlink_receive", f"Bytes received {_NVLINK}"), Activity(60), FieldValue(139, EVERY_LINK), 1024),
)
METRICS = tuple(transfer.metric for transfer in TRANSFERS)


@dataclass(slots=True)
class Transferred:
    """One device's totals. `longest` is the distance of two polls, in seconds, over which a rate is believed."""

    longest: float
    _bytes: dict[Transfer, float] = field(default_factory=dict)
    _counters: dict[Transfer, float] = field(default_factory=dict)
    _time: float | None = None
    _by_rate: bool | None = None  # None until the first answer

    def origins(self, *, has_gpm: bool) -> Iterator[Origin]:
        """Yield what has to be asked for."""
        by_rate = has_gpm if self._by_rate is None else self._by_rate
        for transfer in TRANSFERS:
            yield transfer.rate if by_rate else transfer.counter

    def advance(self, time: float, answers: Mapping[Origin, float], *, has_means: bool = True) -> None:
        """Take in the answers of a poll at `time` (monotonic seconds), where GPM's next means begin if `has_means`."""
        elapsed = None if self._time is None else time - self._time
        for transfer in TRANSFERS:
            if transfer.rate in answers:
                self._by_rate = True
                self._add_rate(transfer, answers[transfer.rate], elapsed)
            elif answers.get(transfer.counter, BLANK) < BLANK:
                self._by_rate = False
                self._add_counter(transfer, answers[transfer.counter])
        if has_means:
            self._time = time

    def reset(self) -> None:
        """Note that the counters may have begun anew: how far they are from where they were says nothing."""
        self._counters.clear()

    def samples(self, *labels: str) -> Iterator[Sample]:
        """Yield every total that has begun."""
        for transfer, total in self._bytes.items():
            yield transfer.metric.sample(total, *labels)

    def _add_rate(self, transfer: Transfer, rate: float, elapsed: float | None) -> None:
        self._bytes.setdefault(transfer, 0.0)
        if elapsed is not None and elapsed <= self.longest and 0 <= rate < BLANK:
            self._bytes[transfer] += rate * MIB * elapsed

    def _add_counter(self, transfer: Transfer, count: float) -> None:
        """Add what a counter has gained; one that went back without a reason to wrap was reset, and begins anew."""
        last = self._counters.get(transfer, count)
        self._counters[transfer] = count
        gained = count - last
        if gained < 0:
            gained = gained % transfer.wraps_at if transfer.wraps_at is not None else 0.0
        self._bytes[transfer] = self._bytes.get(transfer, 0.0) + gained * transfer.unit
