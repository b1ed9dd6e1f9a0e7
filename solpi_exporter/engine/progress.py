"""How the following of a server's log fares, as a reading: the one place that names the metrics of the log."""

from collections.abc import Iterator
from dataclasses import dataclass

from solpi_exporter.follow.lines import Health, LineCounters
from solpi_exporter.metric import Kind, Metric, Sample


def _metric(name: str, help_text: str, *labels: str, kind: Kind = Kind.COUNTER) -> Metric:
    return Metric(f"solpi_log_{name}", help_text, kind, ("server", *labels))


LINES = _metric("lines_total", "Complete lines read from a server's log.")
BYTES = _metric("bytes_total", "Bytes read from a server's log.")
MATCHED = _metric("matched_lines_total", "Lines that reported something.", "kind")
TRUNCATED = _metric("truncated_lines_total", "Lines above 1 MiB, which are passed over.")
DAMAGED = _metric("damaged_lines_total", "Lines with NULs in them, as a crash leaves them; read without.")
ROTATIONS = _metric("rotations_total", "Files replaced by a new one or cut to nothing.", "how")
LOST = _metric("lost_bytes_total", "Bytes known to have been written, and gone before they were read.")
FAILURES = _metric(
    "open_failures_total", "Times that a file could not be opened, or the journal's reader ended; it is tried again."
)
LAG = _metric("lag_bytes", "Bytes written to a server's log and not yet read.", kind=Kind.GAUGE)
FILES = _metric("open_files", "Files held open, those included that were rotated away.", kind=Kind.GAUGE)
NOTIFIED = _metric(
    "notified", "1 if the system tells of new files; 0 if they are found by looking, each second.", kind=Kind.GAUGE
)
OVERFLOWS = _metric("notification_overflows_total", "Times that the system dropped what it had to tell of new files.")

METRICS = (
    LINES,
    BYTES,
    MATCHED,
    TRUNCATED,
    DAMAGED,
    ROTATIONS,
    LOST,
    FAILURES,
    LAG,
    FILES,
    NOTIFIED,
    OVERFLOWS,
)


@dataclass(frozen=True, slots=True)
class LogReading:
    """How far a log was read; the counters are a copy, and outlive a restart where there is a state directory."""

    server: str
    counters: LineCounters
    matched: tuple[tuple[str, int], ...]
    health: Health

    def samples(self) -> Iterator[Sample]:
        """Yield the counters, and of the rest what is known."""
        counters, health = self.counters, self.health
        yield LINES.sample(counters.lines, self.server)
        yield BYTES.sample(counters.bytes, self.server)
        yield TRUNCATED.sample(counters.truncated_lines, self.server)
        yield DAMAGED.sample(counters.damaged_lines, self.server)
        yield LOST.sample(counters.lost_bytes, self.server)
        yield FAILURES.sample(counters.open_failures, self.server)
        yield ROTATIONS.sample(counters.renames, self.server, "rename")
        yield ROTATIONS.sample(counters.truncations, self.server, "truncate")
        for kind, count in self.matched:
            yield MATCHED.sample(count, self.server, kind)
        for metric, value in ((LAG, health.lag), (FILES, health.files), (OVERFLOWS, health.overflows)):
            if value is not None:
                yield metric.sample(value, self.server)
        if health.notified is not None:
            yield NOTIFIED.sample(float(health.notified), self.server)
