"""Turns a snapshot of the board into the samples of each metric, fresh at each call, and adds the sources' health."""

import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from solpi_exporter import __version__
from solpi_exporter.board import Entry, Snapshot, State
from solpi_exporter.metric import Distribution, Kind, Metric, Sample

SOURCE = ("source",)
SOURCE_UP = Metric("solpi_source_up", "1 if the source's last poll succeeded.", labels=SOURCE)
SOURCE_STATE = Metric(
    "solpi_source_state",
    "1 for the state that the source is in. A thing that was never there is absent, one let go of on request is "
    "quiesced; neither is down.",
    labels=(*SOURCE, "state"),
)
POLL_SECONDS = Metric("solpi_source_poll_seconds", "Duration of the source's last poll.", labels=SOURCE)
POLLS = Metric("solpi_source_polls_total", "Polls of a source.", Kind.COUNTER, (*SOURCE, "outcome"))
LAST_SUCCESS = Metric(
    "solpi_source_last_success_timestamp_seconds", "When the source was last read successfully.", labels=SOURCE
)
BUILD = Metric("solpi_build_info", "Constant 1; versions of exporter and Python.", labels=("version", "python"))

METRICS = (SOURCE_UP, SOURCE_STATE, POLL_SECONDS, POLLS, LAST_SUCCESS, BUILD)

_SHOWN_STATES = tuple(state for state in State if state is not State.PENDING)


class BoardCollector:
    """Merges whatever `snapshot` and `derived` give at the moment of a scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot], derived: Callable[[], Iterable[Sample]] = tuple) -> None:
        self._snapshot = snapshot
        self._derived = derived

    def collect(self) -> dict[Metric, dict[tuple[str, ...], float | Distribution]]:
        """Return values by metric and label values. Where two sources yield the same series, the earlier is shown."""
        merged: dict[Metric, dict[tuple[str, ...], float | Distribution]] = defaultdict(dict)
        for sample in self._samples():
            merged[sample.metric].setdefault(sample.labels, sample.value)
        return dict(merged)

    def _samples(self) -> Iterator[Sample]:
        snapshot = self._snapshot()
        yield BUILD.sample(1.0, __version__, platform.python_version())
        for entry in snapshot.entries:
            yield from _health(entry)
        for entry in snapshot.entries:
            yield from entry.samples()
        yield from self._derived()


def _health(entry: Entry) -> Iterator[Sample]:
    name = entry.source
    for state in _SHOWN_STATES:
        yield SOURCE_STATE.sample(float(entry.state is state), name, state.value)
    if not any(entry.polls.values()):
        return
    yield SOURCE_UP.sample(float(entry.state is State.OK), name)
    for outcome, count in entry.polls.items():
        yield POLLS.sample(count, name, outcome.value)
    if entry.seconds is not None:
        yield POLL_SECONDS.sample(entry.seconds, name)
    if entry.success_time is not None:
        yield LAST_SUCCESS.sample(entry.success_time, name)
