"""Every series of the fleet, as promtool reads it."""

from collections.abc import Iterator

from benchmarks.week.engines import engine
from benchmarks.week.exporter import exporter
from benchmarks.week.faults import Fault
from benchmarks.week.fleet import FLEET, Host, course
from benchmarks.week.gpus import gpus
from benchmarks.week.probe import probe
from benchmarks.week.series import Named, hidden, written

JOB = "solpi"


def fleet(minutes: int, fault: Fault | None) -> Iterator[tuple[str, str]]:
    """Yield name and values of each series; while an exporter is away there is none but its target's `up`."""
    for host in FLEET:
        shown = [host.scraped(minute) for minute in range(minutes)]
        up = [None if _is_out(host, minute) else float(there) for minute, there in enumerate(shown)]
        yield _of(host, "up"), written(up)
        for name, said in _host(host, minutes, fault):
            yield _of(host, name), written(hidden(said, shown))


def _is_out(host: Host, minute: int) -> bool:
    return any(minute in span for span in host.out)


def _of(host: Host, name: str) -> str:
    metric, _, labels = name.partition("{")
    inner = labels.rstrip("}")
    return f'{metric}{{job="{JOB}", instance="{host.name}"{", " if inner else ""}{inner}}}'


def _host(host: Host, minutes: int, fault: Fault | None) -> Iterator[Named]:
    courses = tuple(course(host, server, minutes) for server in host.servers)
    yield from exporter(host, courses, minutes)
    yield from gpus(host, courses, minutes, fault)
    for one in courses:
        yield from engine(host, one, fault)
    yield from probe(host, courses, minutes, fault)
