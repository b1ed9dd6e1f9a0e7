"""Busy seconds and the distribution of load."""

from random import Random

import pytest

from solpi_exporter.gpu.busy import SILENCE, Busy
from solpi_exporter.metric import Distribution

LONGEST = 15.0
STEP = 200_000  # microseconds between two samples of an H200
EPOCH = 1_800_000_000_000_000


class Buffer:
    """A driver's ring of utilisation samples, on a clock of its own."""

    def __init__(self, length: int = 70) -> None:
        self.clock = EPOCH
        self.entries: list[tuple[int, int]] = []
        self._length = length

    def run(self, *percents: int) -> None:
        for percent in percents:
            self.clock += STEP
            self.entries.append((self.clock, percent))
        self.entries = self.entries[-self._length :]

    def newer(self, since: int) -> list[tuple[int, int]]:
        return [one for one in self.entries if one[0] > since]


class Sampled:
    """Busy seconds from such a buffer."""

    def __init__(self) -> None:
        self.buffer, self.busy, self.now = Buffer(), Busy(LONGEST), 0.0

    def read(self, *, after: float = 5.0) -> tuple[float, int]:
        self.now += after
        self.busy.by_samples(self.now, self.buffer.newer(self.busy.cursor))
        total = self.busy.total
        return (round(total.seconds, 6), total.gaps) if total is not None else (-1.0, 0)

    @property
    def load(self) -> Distribution:
        assert self.busy.load is not None
        return self.busy.load.distribution()


@pytest.fixture
def sampled() -> Sampled:
    """A GPU that has been looked at once, while it was idle."""
    sampled = Sampled()
    sampled.buffer.run(0, 0, 0)
    sampled.read()
    return sampled


def shown(busy: Busy) -> tuple[float, int] | None:
    return None if busy.total is None else (busy.total.seconds, busy.total.gaps)


def test_what_lay_in_the_buffer_before_does_not_count() -> None:
    """The first read brings 14 s of a time in which the exporter did not run."""
    sampled = Sampled()
    sampled.buffer.run(*[98] * 70)

    assert sampled.read() == (0.0, 0)
    assert sampled.load.count == 0


def test_each_sample_stands_for_the_time_since_the_one_before(sampled: Sampled) -> None:
    """Five of 40 % and five of 100 % are 1.4 s."""
    sampled.buffer.run(*[40] * 5, *[100] * 5)

    assert sampled.read() == (1.4, 0)


def test_each_sample_is_counted_once(sampled: Sampled) -> None:
    """However the reads fall, and also where the driver gives again what it gave before."""
    for percent in range(1, 31):
        sampled.buffer.run(percent)
        if percent % 7 == 0:
            sampled.busy.cursor = 0  # the driver answers with the whole buffer
        if percent % 3:
            sampled.read(after=0.4)

    assert sampled.load.count == 29  # the thirtieth has not been read
    assert sampled.load.sum == pytest.approx(sum(range(1, 30)) / 100)


def test_samples_are_put_in_order(sampled: Sampled) -> None:
    """A ring that is told from its middle counts as it ran."""
    sampled.buffer.run(10, 20, 30, 40)
    sampled.buffer.entries = sampled.buffer.entries[-2:] + sampled.buffer.entries[:-2]

    assert sampled.read() == (0.2, 0)
    assert sampled.read() == (0.2, 0)


def test_load_that_comes_and_goes_is_seen_as_it_is(sampled: Sampled) -> None:
    """A second busy and a second idle: half the seconds, and a distribution of two humps with nothing between."""
    for _ in range(10):
        sampled.buffer.run(*[100] * 5, *[0] * 5)
        sampled.read(after=2.0)

    assert sampled.read(after=0.0) == (10.0, 0)
    assert sampled.load.counts == (50, 50, 50, 50, 50, 50, 50, 50, 100)
    assert sampled.load.bounds == (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)


def test_an_overrun_buffer_is_a_gap(sampled: Sampled) -> None:
    """A minute without a read: what the buffer still holds counts, what it lost does not."""
    sampled.buffer.run(*[100] * 300)

    assert sampled.read(after=60.0) == (13.8, 1)


def test_an_empty_buffer_changes_nothing(sampled: Sampled) -> None:
    """An idle GPU may have none; its histogram stays."""
    sampled.buffer.run(50)
    before = sampled.read()

    for _ in range(5):
        assert sampled.read() == before
        assert sampled.load.count == 1


def test_nothing_is_lost_of_what_follows_a_silence(sampled: Sampled) -> None:
    """A GPU whose buffer is empty while it idles: the silence is a gap, and the burst after it counts."""
    sampled.read(after=SILENCE)
    sampled.read(after=SILENCE)
    sampled.buffer.clock += 10_000_000
    sampled.buffer.run(*[100] * 11)

    assert sampled.read() == (2.0, 1)


def test_a_clock_that_was_set_back_is_a_gap(sampled: Sampled) -> None:
    """The driver has nothing newer than the cursor until the silence is noticed; then it goes on, and counts on."""
    sampled.buffer.run(*[100] * 10)
    assert sampled.read() == (2.0, 0)
    sampled.buffer.clock -= 3600_000_000
    sampled.buffer.entries.clear()
    sampled.buffer.run(*[100] * 25)
    assert sampled.read() == (2.0, 0)
    sampled.buffer.run(*[100] * 25)
    assert sampled.read() == (2.0, 0)
    sampled.buffer.run(*[100] * 25)
    assert sampled.read() == (2.0, 1)
    sampled.buffer.run(*[100] * 25)

    assert sampled.read() == (7.0, 1)


def test_nothing_counts_twice_after_a_clock_was_set_back(sampled: Sampled) -> None:
    """The buffer holds the same second in the old time and in the new; counted is at most what has passed."""
    sampled.buffer.run(*[100] * 50)
    sampled.read(after=10.0)
    sampled.buffer.clock -= 6_000_000
    for _ in range(10):
        sampled.buffer.run(*[100] * 25)
        sampled.read()

    assert sampled.busy.total is not None
    assert sampled.busy.total.seconds <= 60.0


@pytest.mark.parametrize("percent", [101, 0xFFFFFFFF, -1])
def test_a_sample_that_is_no_share_is_a_gap(sampled: Sampled, percent: int) -> None:
    """One sentinel would be months of load."""
    sampled.buffer.run(100, percent, 100)

    assert sampled.read() == (0.4, 1)
    assert sampled.load.count == 2


@pytest.mark.parametrize("seed", range(20))
def test_totals_never_fall_and_never_outrun_the_clock(seed: int) -> None:
    """Over random loads, pauses, silences, clocks that are set, reads that are missed."""
    random, sampled, last, ran = Random(seed), Sampled(), 0.0, 0
    for _ in range(300):
        samples = random.choice((0, 1, 5, 25, 100))
        sampled.buffer.run(*(random.choice((0, 50, 99, 100, 101, 1 << 32)) for _ in range(samples)))
        ran += samples
        sampled.buffer.clock += random.choice((0, 0, 0, 1, -1)) * random.randrange(20_000_000)
        if random.random() < 0.1:
            sampled.busy.miss(sampled.now)
        before = sampled.busy.load.distribution().count if sampled.busy.load else 0
        seconds, _ = sampled.read(after=random.choice((0.1, 5.0, 30.0)))
        assert last <= seconds or seconds == -1.0
        assert before <= (sampled.load.count if sampled.busy.load else 0) <= ran
        assert seconds <= ran * 2.0
        last = max(last, seconds)


def test_utilisation_is_integrated_between_two_instants() -> None:
    """By the trapezoid rule over the true distance: 0 to 100 % in 4 s is 2 s, 100 % for 5 s is 5 s."""
    busy = Busy(LONGEST)
    for time, share, seconds in ((0.0, 0.0, 0.0), (4.0, 1.0, 2.0), (9.0, 1.0, 7.0)):
        busy.by_utilization(time, share)
        assert shown(busy) == (seconds, 0)


def test_an_instant_without_utilisation_leaves_out_both_sides() -> None:
    """There is no line from or to it."""
    busy = Busy(LONGEST)
    for time, share, expected in (
        (0.0, 1.0, (0.0, 0)),
        (5.0, None, (0.0, 1)),
        (10.0, 1.0, (0.0, 2)),
        (15.0, 1.0, (5.0, 2)),
    ):
        busy.by_utilization(time, share)
        assert shown(busy) == expected


def test_activity_is_the_mean_of_the_time_before() -> None:
    """60 % over 5 s is 3 s, also where the GPU is idle when it is asked."""
    busy = Busy(LONGEST)
    for time, share, expected in (
        (0.0, None, None),
        (5.0, 0.9, (0.0, 0)),
        (10.0, 0.6, (3.0, 0)),
        (15.0, 0.0, (3.0, 0)),
    ):
        busy.by_activity(time, share)
        assert shown(busy) == expected


@pytest.mark.parametrize("origin", [Busy.by_activity, Busy.by_utilization])
def test_a_device_without_load_has_no_busy_seconds(origin: object) -> None:
    """0 s would read as idle."""
    busy = Busy(LONGEST)
    for time in range(5):
        origin(busy, float(time), None)  # type: ignore[operator]

    assert busy.total is None
    assert busy.load is None


@pytest.mark.parametrize("origin", [Busy.by_activity, Busy.by_utilization])
def test_a_long_pause_is_a_gap(origin: object) -> None:
    """Ten minutes in which nobody looked are not ten minutes of load; the limit itself is believed."""
    busy = Busy(LONGEST)
    for time in (0.0, 15.0, 615.0, 620.0):
        origin(busy, time, 1.0)  # type: ignore[operator]

    assert shown(busy) == (20.0, 1)


def test_a_poll_that_was_missed_is_a_gap() -> None:
    """The total stands, at the time of the miss; before it has begun there is nothing to miss."""
    busy = Busy(LONGEST)
    busy.miss(0.0)
    assert busy.total is None
    busy.by_utilization(1.0, 1.0)
    busy.by_utilization(2.0, 1.0)

    busy.miss(3.0)
    busy.by_utilization(4.0, 1.0)
    busy.by_utilization(5.0, 1.0)

    assert shown(busy) == (2.0, 2)
