"""One clock over the recorded runs: they follow one another, their start-up cut away, and begin again at the end."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from solpi_exporter.clock import Clock
from solpi_exporter.demo.recording import Run, Sample, frames_of, load_device
from solpi_exporter.gpu.recording import Recording, recording_of


@dataclass(frozen=True, slots=True)
class Position:
    """Where the demo is: the round, seconds into it, the run, and the recorded time (Unix seconds)."""

    round: int
    elapsed: float
    run: Run
    time: float


class Timeline:
    """Maps the clock's seconds since the demo's start to a position in the recording."""

    def __init__(self, runs: Sequence[Run], clock: Clock) -> None:
        self._runs = tuple(runs)
        self._ends = list(accumulate(run.end - run.start for run in runs))
        self._clock = clock
        self._origin = clock.monotonic()

    @property
    def seconds(self) -> float:
        """The length of one round."""
        return self._ends[-1]

    def now(self) -> Position:
        """Return the present position."""
        rounds, elapsed = divmod(self._clock.monotonic() - self._origin, self.seconds)
        index = min(bisect_right(self._ends, elapsed), len(self._runs) - 1)
        run = self._runs[index]
        return Position(int(rounds), elapsed, run, run.end - (self._ends[index] - elapsed))

    def chapters(self) -> list[tuple[float, Run]]:
        """Return each run with the second of the round at which it begins."""
        return [(end - (run.end - run.start), run) for end, run in zip(self._ends, self._runs, strict=True)]

    def recording(self) -> Recording:
        """Return a round of GPU samples, timed in seconds of the round.

        The energy that was used in what is cut away does not count.
        """
        return recording_of([(0.0, load_device()), *frames_of(list(self._samples()))])

    def _samples(self) -> Iterator[Sample]:
        energy = 0
        for start, run in self.chapters():
            own = [sample for sample in run.samples if run.start <= sample["t"] <= run.end]
            offset = energy - own[0]["energy_mj"]
            for sample in own:
                energy = sample["energy_mj"] + offset
                yield {**sample, "t": start + sample["t"] - run.start, "energy_mj": energy}

    def lines(self) -> list[tuple[float, str]]:
        """Return every log line with the second of the round at which it is due; a run's start-up is due at once."""
        return [
            (start + min(max(0.0, time - run.start), run.end - run.start), line)
            for start, run in self.chapters()
            for time, line in run.lines
        ]
