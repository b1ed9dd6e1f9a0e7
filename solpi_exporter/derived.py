"""The serving engine's own token, without touching it: what readings of GPU and engine say together.

    busy = GPU busy seconds / engine steps    ITL = mean time between tokens    lost = max(0, ITL - busy)

over one window whose two ends are the same instants for both sides. Idle time adds to neither side, so a half-idle
server is not mistaken for a slow one. See docs/probe.md for what it can and cannot say.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

from solpi_exporter.board import Snapshot
from solpi_exporter.engine.reading import EngineFacts, EngineReading
from solpi_exporter.gpu.reading import BusyTotal, GpuReading
from solpi_exporter.metric import Metric, Sample

WINDOW_SECONDS = 60.0
MIN_WINDOW_SECONDS = 30.0
KEEP_SECONDS = 120.0
STALE_INTERVALS = 3  # reads of an endpoint, or reports of a log: later than that a window is history

_LABELS = ("server", "engine", "basis")
BUSY = Metric(
    "solpi_engine_token_busy_seconds", "Time per engine step in which the GPU was busy, over a minute.", labels=_LABELS
)
LOST = Metric(
    "solpi_engine_token_lost_seconds",
    "Time between two tokens in which the GPU was not busy for them: control layer and KV stalls, over a minute.",
    labels=_LABELS,
)
CONTROL = Metric("solpi_engine_control_ratio", "Lost time as a share of the time between two tokens.", labels=_LABELS)

METRICS = (BUSY, LOST, CONTROL)


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals at one instant: GPU busy seconds, engine steps, and the time between tokens with its count."""

    busy_seconds: float
    steps: float
    tokens: float
    token_seconds: float


@dataclass(frozen=True, slots=True)
class EngineToken:
    """One token of one engine: seconds in which its GPU was busy, and seconds between two tokens."""

    server: str
    engine: str
    basis: str
    busy: float
    interval: float

    @property
    def lost(self) -> float:
        """Seconds of the interval in which the GPU was not busy for it."""
        return max(0.0, self.interval - self.busy)

    def samples(self) -> Iterator[Sample]:
        """Yield busy, lost and their share."""
        labels = (self.server, self.engine, self.basis)
        yield BUSY.sample(self.busy, *labels)
        yield LOST.sample(self.lost, *labels)
        yield CONTROL.sample(self.lost / self.interval, *labels)


def token_from_totals(start: Totals, end: Totals) -> tuple[float, float] | None:
    """Return (busy, interval) in seconds per token between two instants; None where no token was decoded."""
    steps, tokens = end.steps - start.steps, end.tokens - start.tokens
    busy, seconds = end.busy_seconds - start.busy_seconds, end.token_seconds - start.token_seconds
    if steps <= 0 or tokens <= 0 or seconds <= 0 or busy < 0:
        return None
    return busy / steps, seconds / tokens


def token_from_reports(activity: float, running: Sequence[float], rates: Sequence[float]) -> tuple[float, float] | None:
    """Return (busy, interval) from a log alone: Little's law over its reports, and the GPU's activity meanwhile.

    Only where requests ran throughout: over an idle stretch the activity would be thinned and the loss invented.
    """
    if not all(running) or sum(rates) <= 0:
        return None
    interval = sum(running) / sum(rates)
    return activity * interval, interval


@dataclass(frozen=True, slots=True)
class _Point:
    time: float
    reading: EngineReading


_Points = deque[_Point]


@dataclass(slots=True)
class TokenWindow:
    """Two minutes of totals, and the engine tokens that they yield now.

    `interval` is the distance of the engine's readings in seconds.
    """

    interval: float = 15.0
    tokens: tuple[EngineToken, ...] = ()
    _busy: dict[str, deque[BusyTotal]] = field(default_factory=dict)
    _points: dict[tuple[str, str, str], _Points] = field(default_factory=dict)

    def observe(self, snapshot: Snapshot, gpus: Mapping[str, Set[str]]) -> None:
        """Take in a snapshot and work out every engine's token from the window that ends with it.

        `gpus` maps each server to the UUIDs of its GPUs; a server without any, or with unknown ones, has no token.
        """
        facts = {fact.server: fact for _, fact in snapshot.readings(EngineFacts)}
        self._take_busy(reading for _, reading in snapshot.readings(GpuReading))
        self._take_engines(snapshot)
        self.tokens = tuple(self._tokens(gpus, facts))

    @property
    def _keep(self) -> float:
        return max(KEEP_SECONDS, 2 * STALE_INTERVALS * self.interval)

    def _take_busy(self, gpus: Iterable[GpuReading]) -> None:
        known = {reading.uuid: reading.busy for reading in gpus if reading.up and reading.busy is not None}
        for gone in self._busy.keys() - known.keys():
            del self._busy[gone]
        for uuid, total in known.items():
            totals = self._busy.setdefault(uuid, deque())
            if not totals or total.time > totals[-1].time:
                totals.append(total)
            while totals[0].time < total.time - self._keep:
                totals.popleft()

    def _take_engines(self, snapshot: Snapshot) -> None:
        seen: set[tuple[str, str, str]] = set()
        for time, reading in snapshot.readings(EngineReading):
            basis = _basis(reading)
            if basis is not None:
                key = (reading.server, reading.engine, basis)
                seen.add(key)
                _append(self._points.setdefault(key, deque()), _Point(time, reading), self._keep)
        for gone in self._points.keys() - seen:
            del self._points[gone]

    def _tokens(self, gpus: Mapping[str, Set[str]], facts: Mapping[str, EngineFacts]) -> Iterator[EngineToken]:
        for (server, engine, basis), points in self._points.items():
            uuids = gpus.get(server, frozenset())
            shared = any(uuids & other for name, other in gpus.items() if name != server)
            if uuids and not shared and self._is_alone(server, engine) and not _is_pipelined(facts.get(server)):
                result = self._by_endpoint(points, uuids) if basis == "endpoint" else self._by_log(points, uuids)
                if result is not None:
                    yield EngineToken(server, engine, basis, *result)

    def _is_alone(self, server: str, engine: str) -> bool:
        """Whether no other engine of the server runs, on GPUs that nobody can tell from this one's."""
        return all(other == engine for name, other, _ in self._points if name == server)

    def _by_endpoint(self, points: _Points, uuids: Set[str]) -> tuple[float, float] | None:
        ends = self._window(points, uuids)
        if ends is None:
            return None
        start, end = ends
        busy = self._busy_between(start.time, end.time, uuids)
        if busy is None:
            return None
        return token_from_totals(_totals(start.reading, 0.0), _totals(end.reading, busy))

    def _by_log(self, points: _Points, uuids: Set[str]) -> tuple[float, float] | None:
        ends = self._window(points, uuids)
        if ends is None:
            return None
        start, end = ends
        busy = self._busy_between(start.time, end.time, uuids)
        reports = [point.reading for point in points if start.time < point.time <= end.time]
        if busy is None or not start.reading.running:
            return None
        running = [report.running or 0.0 for report in reports]
        rates = [report.generation_tokens_per_second or 0.0 for report in reports]
        return token_from_reports(busy / (end.time - start.time), running, rates)

    def _window(self, points: _Points, uuids: Set[str]) -> tuple[_Point, _Point] | None:
        """Return the newest point that the GPU readings already reach, and one about a minute before it."""
        totals = [self._busy[uuid] for uuid in uuids if uuid in self._busy]
        if len(totals) < len(uuids):
            return None
        begin, now = max(one[0].time for one in totals), min(one[-1].time for one in totals)
        reached = [point for point in points if begin <= point.time <= now]
        if not reached or now - reached[-1].time > STALE_INTERVALS * self.interval:
            return None
        end = reached[-1]
        older = [point for point in reached if point.time <= end.time - WINDOW_SECONDS]
        start = older[-1] if older else reached[0]
        return (start, end) if end.time - start.time >= MIN_WINDOW_SECONDS else None

    def _busy_between(self, start: float, end: float, uuids: Set[str]) -> float | None:
        """Return the busy seconds of the least busy GPU: a starved rank makes its peers spin at 100 %.

        None where a stretch is missing from one of them: what it did then is not known.
        """
        spans = [(self._busy_at(start, uuid), self._busy_at(end, uuid)) for uuid in sorted(uuids)]
        known = [after[0] - before[0] for before, after in spans if before and after and before[1] == after[1]]
        return min(known) if len(known) == len(spans) else None

    def _busy_at(self, time: float, uuid: str) -> tuple[float, int] | None:
        """Return a GPU's busy seconds at an instant between two readings, in proportion, and its gaps until then."""
        for before, after in pairwise(self._busy[uuid]):
            if before.time <= time <= after.time:
                share = (time - before.time) / (after.time - before.time)
                seconds = before.seconds + share * (after.seconds - before.seconds)
                return (seconds, before.gaps) if before.gaps == after.gaps else None
        return None


def _basis(reading: EngineReading) -> str | None:
    """Return which of the two ways a reading serves; None for one that has no totals and no report."""
    if reading.steps is not None and reading.inter_token_latency is not None:
        return "endpoint"
    return None if reading.last_report_time is None else "log"


def _append(points: _Points, point: _Point, keep: float) -> None:
    """Add a point that tells something new; forget what an engine said before it started anew."""
    if points:
        last = points[-1].reading
        if point.reading == last or point.time <= points[-1].time:
            return
        if (point.reading.steps or 0.0) < (last.steps or 0.0):
            points.clear()
    points.append(point)
    while points[0].time < point.time - keep:
        points.popleft()


def _totals(reading: EngineReading, busy: float) -> Totals:
    latency = reading.inter_token_latency
    assert latency is not None
    return Totals(busy, reading.steps or 0.0, latency.count, latency.sum)


def _is_pipelined(facts: EngineFacts | None) -> bool:
    """Whether the engine is known to run a pipeline, in which a step's time is spread over its stages' GPUs."""
    return facts is not None and facts.setting("pipeline_parallel_size") not in (None, "1")
