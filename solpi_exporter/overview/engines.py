"""The serving engines on the page: KV cache, queue, preemptions, token latency, and the engine's own token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solpi_exporter.board import Entry, Snapshot, State
from solpi_exporter.derived import EngineToken
from solpi_exporter.engine.reading import EngineReading, EngineUp
from solpi_exporter.engine.source import source_name
from solpi_exporter.metric import Distribution
from solpi_exporter.overview.recent import Recent
from solpi_exporter.overview.split import TokenSplit, split_of

STALE_SECONDS = 60.0  # vLLM's log reports every 10 s while there is something to do

_GAUGES = ("kv_cache_usage_ratio", "running", "waiting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine of a server, in seconds; `name` is empty where the server tells of none.

    `stale` is the age of gauges that were told long ago. `at_least` says that there may have been more preemptions.
    `mean` is the log's own, for where no quantile is known.
    """

    server: str
    name: str = ""
    kv_cache: float | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    at_least: bool = False
    preempted_lately: float | None = None
    p50: float | None = None
    p99: float | None = None
    mean: float | None = None
    stale: float | None = None
    split: TokenSplit | None = None


@dataclass(frozen=True, slots=True)
class _Told:
    """What one source says of an engine: whether it is well, and when (Unix) its gauges were true."""

    reading: EngineReading
    holds: bool
    time: float | None


def engines(snapshot: Snapshot, tokens: Sequence[EngineToken], recent: Recent, now: float) -> tuple[Engine, ...]:
    """Return every engine that is known of at `now` (Unix), and every server whose engines are not."""
    told: dict[tuple[str, str], list[_Told]] = {}
    for entry in snapshot.entries:
        for reading in entry.readings:
            if isinstance(reading, EngineReading):
                one = _Told(reading, entry.state is State.OK, _time(entry, reading))
                told.setdefault((reading.server, reading.engine), []).append(one)
    known = [_engine(told[key], _token(tokens, *key), recent, now) for key in told]
    silent = [Engine(server=server) for server in _servers(snapshot) if server not in {key[0] for key in told}]
    return tuple(sorted((*known, *silent), key=lambda one: (one.server, len(one.name), one.name)))


def _servers(snapshot: Snapshot) -> Iterator[str]:
    for entry in snapshot.entries:
        yield from (one.server for one in (*entry.readings, *entry.notices) if isinstance(one, EngineUp))


def _time(entry: Entry, reading: EngineReading) -> float | None:
    """Return when gauges were true: a log tells of its last report, an endpoint of the moment it is asked."""
    return reading.last_report_time if entry.source == source_name(reading.server) else entry.success_time


def _token(tokens: Sequence[EngineToken], server: str, engine: str) -> EngineToken | None:
    return next((one for one in tokens if (one.server, one.engine) == (server, engine)), None)


def _engine(told: Sequence[_Told], token: EngineToken | None, recent: Recent, now: float) -> Engine:
    server, name = told[0].reading.server, told[0].reading.engine
    holding = [one for one in told if one.holds]
    counted, at_least = _first("preemptions", told), _first("preemptions_at_least", told)
    lately = recent.lately(server, name)
    return Engine(
        server=server,
        name=name,
        kv_cache=_first("kv_cache_usage_ratio", holding),
        running=_first("running", holding),
        waiting=_first("waiting", holding),
        preemptions=at_least if counted is None else counted,
        at_least=counted is None and at_least is not None,
        preempted_lately=lately.preemptions,
        p50=_quantile(lately.latency, 0.5),
        p99=_quantile(lately.latency, 0.99),
        mean=_first("mean_token_seconds", holding),
        stale=_stale(holding, now),
        split=None if token is None else _split(token),
    )


def _first(name: str, told: Sequence[_Told]) -> float | None:
    """Return a quantity as the first reading has it that knows it."""
    return next((value for one in told if (value := getattr(one.reading, name)) is not None), None)


def _stale(told: Sequence[_Told], now: float) -> float | None:
    """Return the age of the oldest gauge that is shown, where that is old."""
    origins = (next((one for one in told if getattr(one.reading, name) is not None), None) for name in _GAUGES)
    times = [one.time for one in origins if one is not None and one.time is not None]
    age = now - min(times, default=now)
    return age if age > STALE_SECONDS else None


def _quantile(seen: Distribution | None, share: float) -> float | None:
    return None if seen is None else seen.quantile(share)


def _split(token: EngineToken) -> TokenSplit:
    return split_of(token.interval, token.lost / token.interval, {"busy": token.busy, "lost": token.lost})
