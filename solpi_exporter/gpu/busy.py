"""A GPU's busy seconds and the distribution of its load, so that what happens between two scrapes is not lost.

Three origins, the best that a GPU has: the driver's buffer of utilisation samples (one every 0.2 s on an H200), GPM's
mean over each poll (all that a MIG instance has), the utilisation of the instants of polling. A GPU keeps its origin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from solpi_exporter.gpu.origins import percent
from solpi_exporter.gpu.reading import BusyTotal
from solpi_exporter.metric import Tally

SAMPLES_BOUNDS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
LONGEST_SAMPLE = 2.0  # seconds that one sample may stand for; NVML's periods are 1/6 s to 1 s
SILENCE = 5.0  # seconds without a new sample after which the driver's clock may have been set back


@dataclass(slots=True)
class Busy:
    """Accumulates one device's busy seconds; what was not seen counts as nothing and as a gap.

    `longest` is the distance of two polls, in seconds, over which a reading of theirs is believed.
    """

    longest: float
    total: BusyTotal | None = None
    load: Tally | None = None  # of a device with samples
    cursor: int = 0  # the request's: what is newer is asked for
    _newest: int | None = None  # time stamp of the newest sample that was taken in
    _share: float | None = None
    _heard: float | None = None

    def by_utilization(self, time: float, share: float | None) -> None:
        """Take the utilisation of an instant (0 to 1): the trapezoid rule between two."""
        mean = None if share is None or self._share is None else (share + self._share) / 2
        self._advance(time, mean, begin=share is not None)
        self._share = share

    def by_activity(self, time: float, share: float | None) -> None:
        """Take the mean since the poll before (0 to 1)."""
        self._advance(time, share, begin=share is not None)

    def by_samples(self, time: float, samples: Sequence[tuple[int, int]]) -> None:
        """Take what is new in the buffer: (time stamp in us, percent over the period that ends there)."""
        if not samples:
            if self._heard is not None and time - self._heard > SILENCE:
                self.cursor = 0  # all of the buffer, which shows whether the clock was set back
            return
        self.load = self.load or Tally(SAMPLES_BOUNDS)
        seconds, gaps = (0.0, 0) if self.total is None else (self.total.seconds, self.total.gaps)
        last = max(stamp for stamp, _ in samples)
        if self._newest is not None:
            gaps += last < self._newest  # the driver's clock was set back
            fresh = sorted(one for one in samples if one[0] > self._newest)
            for (before, _), (after, value) in pairwise([(self._newest, 0), *fresh]):
                share = percent(value)
                if share is not None and 0 < after - before <= LONGEST_SAMPLE * 1e6:
                    seconds += (after - before) / 1e6 * share
                    self.load.observe([share])
                else:
                    gaps += 1
        self.cursor, self._newest, self._heard = last, last, time
        self.total = BusyTotal(time, seconds, gaps)

    def miss(self, time: float) -> None:
        """Note that nothing could be read: what the GPU did meanwhile is not known."""
        self._share = None
        if self.total is not None:
            self.total = BusyTotal(time, self.total.seconds, self.total.gaps + 1)

    def _advance(self, time: float, mean: float | None, *, begin: bool) -> None:
        if self.total is None:
            self.total = BusyTotal(time, 0.0, 0) if begin else None
        elif mean is None or time - self.total.time > self.longest:
            self.total = BusyTotal(time, self.total.seconds, self.total.gaps + 1)
        else:
            self.total = BusyTotal(time, self.total.seconds + mean * (time - self.total.time), self.total.gaps)
