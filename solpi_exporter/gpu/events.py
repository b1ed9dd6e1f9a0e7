"""Counts every GPU's XIDs as a source with a thread of its own, since an event wait blocks.

Apart from `gpu/source.py`, so that the counters still show while sampling fails.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from solpi_exporter.clock import Clock
from solpi_exporter.gpu.driver import Driver, GpuLost, Unavailable, XidEvent
from solpi_exporter.gpu.fields import GPU
from solpi_exporter.gpu.xid import CRITICAL, INFO, Class, Xid, look_up
from solpi_exporter.metric import Kind, Metric, Sample
from solpi_exporter.source import Reading, SourceAbsent, SourceError

_LABELS = (*GPU, "xid")

ERRORS = Metric(
    "solpi_gpu_xid_errors_total",
    "XIDs reported by the driver since the exporter started; those that matter most start at 0.",
    Kind.COUNTER,
    _LABELS,
)
LAST = Metric("solpi_gpu_xid_last_timestamp_seconds", "When the GPU last reported this XID.", labels=_LABELS)

METRICS = (ERRORS, LAST, INFO)

WAIT_SECONDS = 1.0
MOST_EVENTS = 1000  # of one poll: a GPU that falls apart reports 45 by the thousand
DISTANCE = 0.1  # seconds from poll to poll, should a wait ever return at once without an event
FIRST_DELAY, LONGEST_DELAY = 1.0, 15.0  # seconds until a failed wait is tried again
MEETING_SECONDS = 5.0  # between two looks at which GPUs there are
REPORT_SECONDS = 60.0  # between two reports of one code of one GPU


@dataclass(frozen=True, slots=True)
class XidCount:
    """How often a GPU reported one code, and when last (Unix seconds, None for never)."""

    gpu: int
    uuid: str
    xid: int
    total: int
    last: float | None

    def samples(self) -> Iterator[Sample]:
        """Yield the counter, and the time of a code that was seen."""
        labels = (str(self.gpu), self.uuid, "", str(self.xid))
        yield ERRORS.sample(self.total, *labels)
        if self.last is not None:
            yield LAST.sample(self.last, *labels)
        row = look_up(self.xid)
        if row.kind is Class.UNKNOWN:  # which is in no catalogue, and yet to be joined
            yield INFO.sample(1.0, str(self.xid), row.kind.value, row.action.value)


@dataclass(slots=True)
class _Tally:
    """One code of one GPU: its total, and what has not been reported yet."""

    total: int = 0
    last: float | None = None
    unreported: int = 0
    report_due: float = 0.0  # on the monotonic clock


def _discard(event: XidEvent, row: Xid, count: int) -> None:
    """Report to nobody."""


class XidSource:
    """Waits for critical errors and counts them by GPU and code.

    `gpus` gives (index, uuid) of the GPUs known at present; each gets counters at zero for the CRITICAL codes.
    `report` is told of an event, its row of the catalogue, and how many there were since it was last told of that code
    of that GPU: at most once a minute each. The driver is somebody else's to close.
    """

    name = "gpu_events"
    timeout = 5.0

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        gpus: Callable[[], Iterable[tuple[int, str]]],
        report: Callable[[XidEvent, Xid, int], None] = _discard,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._gpus = gpus
        self._report = report
        self._delay: float | None = None
        self._indices: dict[str, int] = {}
        self._tallies: dict[tuple[str, int], _Tally] = {}
        self._known: tuple[Reading, ...] = ()
        self._meeting_due = 0.0

    @property
    def interval(self) -> float:
        """Seconds from poll to poll: next to nothing, but ever more while the wait fails."""
        return DISTANCE if self._delay is None else self._delay

    def poll(self) -> tuple[Reading, ...]:
        """Wait a second for events and count those that are there.

        Raises SourceAbsent where the driver is missing or reports no events, SourceError where it fails; both carry
        all counts so far. Nothing is counted in a poll that raises: the board shows the last good totals first.
        """
        try:
            first = self._driver.wait_xid(WAIT_SECONDS)
        except (SourceError, GpuLost, Unavailable) as error:
            self._delay = FIRST_DELAY if self._delay is None else min(2 * self._delay, LONGEST_DELAY)
            raise self._failure(error) from error
        self._delay = None
        changed = self._meet_gpus()
        if first is not None:
            self._count(first)
            self._drain()
        self._report_due()
        if changed or first is not None:
            self._known = self._readings()
        return self._known

    def close(self) -> None:
        """Nothing: the driver is shared."""

    def _failure(self, error: Exception) -> SourceError:
        known = self._known
        if isinstance(error, SourceAbsent):
            return SourceAbsent(str(error), known)
        if isinstance(error, Unavailable) and error.lasting:
            return SourceAbsent(f"no XIDs here, as under WSL or vGPU: watch the host's kernel log ({error})", known)
        return SourceError(f"waiting for XIDs failed, will be tried again: {error}", known)

    def _meet_gpus(self) -> bool:
        """Learn which GPUs there are; return whether that has changed.

        Only after a good wait: where none is possible, 0 would be a claim.
        """
        if self._clock.monotonic() < self._meeting_due:
            return False
        self._meeting_due = self._clock.monotonic() + MEETING_SECONDS
        new = [(index, uuid) for index, uuid in self._gpus() if self._indices.get(uuid) != index]
        for index, uuid in new:
            self._indices[uuid] = index
            for code in CRITICAL:
                self._tallies.setdefault((uuid, code), _Tally())
        return bool(new)

    def _drain(self) -> None:
        for _ in range(MOST_EVENTS - 1):
            try:
                event = self._driver.wait_xid(0.0)
            except (SourceError, GpuLost, Unavailable):
                return  # what lasts is raised by the next poll, which has counted nothing by then
            if event is None:
                return
            self._count(event)

    def _count(self, event: XidEvent) -> None:
        self._indices.setdefault(event.uuid, event.gpu)
        tally = self._tallies.setdefault((event.uuid, event.xid), _Tally())
        tally.total += 1
        tally.unreported += 1
        tally.last = self._clock.time()

    def _report_due(self) -> None:
        now = self._clock.monotonic()
        for (uuid, code), tally in self._tallies.items():
            if tally.unreported and now >= tally.report_due:
                self._report(XidEvent(self._indices[uuid], uuid, code), look_up(code), tally.unreported)
                tally.unreported, tally.report_due = 0, now + REPORT_SECONDS

    def _readings(self) -> tuple[Reading, ...]:
        counts = (
            XidCount(self._indices[uuid], uuid, code, tally.total, tally.last)
            for (uuid, code), tally in self._tallies.items()
        )
        return tuple(counts)
