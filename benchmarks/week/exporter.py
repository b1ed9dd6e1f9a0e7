"""What an exporter says of itself: its sources, the logs that it follows, its state."""

from collections.abc import Iterator, Sequence

from benchmarks.week.fleet import Course, Host
from benchmarks.week.series import Named, Said, each, named, total

ROTATION = 6 * 60  # minutes from one rotation of a log to the next


def exporter(host: Host, courses: Sequence[Course], minutes: int) -> Iterator[Named]:
    """Yield the series of the exporter itself."""
    yield (
        named("solpi_build_info", version="0.1.0", python="3.12"),
        each(minutes, lambda minute: 1.0 if minute < host.upgrade else None),
    )
    yield (
        named("solpi_build_info", version="0.2.0", python="3.12"),
        each(minutes, lambda minute: 1.0 if minute > host.upgrade else None),
    )
    for source in ("gpu", "gpu_events", "host", "probe"):
        yield from _source(host, source, [True] * minutes)
    for course in courses:
        name = course.server.name
        yield from _source(host, f"engine_log/{name}", [True] * minutes)
        if not course.server.log_only:
            yield from _source(host, f"engine_endpoint/{name}", [load is not None for load in course.load])
        yield named("solpi_log_lost_bytes_total", server=name), [0.0] * minutes
        rotated = [float(minute % ROTATION == 0) for minute in range(minutes)]
        yield named("solpi_log_rotations_total", server=name, how="renamed"), _since_start(host, rotated)
    for state in ("engine_log-vllm", "probe"):
        yield named("solpi_state_write_failures_total", state=state), [0.0] * minutes


def _source(host: Host, source: str, answers: Sequence[bool]) -> Iterator[Named]:
    for state in ("ok", "down", "absent", "off", "quiesced"):
        yield (
            named("solpi_source_state", source=source, state=state),
            [float(state == ("ok" if good else "down")) for good in answers],
        )
    last: list[float | None] = []
    for minute, good in enumerate(answers):
        last.append(60.0 * minute if good else last[-1] if last else None)
    yield named("solpi_source_last_success_timestamp_seconds", source=source), last
    for outcome, counts in (("success", True), ("failure", False)):
        polls = [12.0 * (good == counts) for good in answers]
        yield named("solpi_source_polls_total", source=source, outcome=outcome), _since_start(host, polls)


def _since_start(host: Host, steps: Sequence[float]) -> Said:
    """Return a counter that the exporter begins anew when it starts."""
    return total(step if host.scraped(minute) else None for minute, step in enumerate(steps))
