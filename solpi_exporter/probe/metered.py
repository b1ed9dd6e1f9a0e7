"""A rig that counts what it uses: every call to the device goes through here, so no second of it is forgotten."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.result import Identity
from solpi_exporter.probe.rig import PIPELINE_FILL, Copy, Replay, Rig, Variant
from solpi_exporter.probe.rounds import Step

SMALL_SECONDS = 2e-6  # of the device, for a kernel that does next to nothing


class MeteredRig:
    """Passes every call on, and adds up device seconds: a launched step counts as what it takes as a graph."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._seconds: dict[Variant, float] = {}  # of one step, when it was last measured
        self.used = Used()

    @property
    def identity(self) -> Identity:
        """As the rig's."""
        return self._rig.identity

    def session(self) -> AbstractContextManager[None]:
        """As the rig's."""
        return self._rig.session()

    def launched(self, variant: Variant, count: int) -> list[Step]:
        """As the rig's."""
        self._spend(count * self._of(variant))
        return self._rig.launched(variant, count)

    def replayed(self, variant: Variant, count: int) -> list[Step]:
        """As the rig's."""
        self._spend(count * self._of(variant))
        return self._rig.replayed(variant, count)

    def pipelined(self, variant: Variant, count: int) -> list[Step]:
        """As the rig's."""
        self._spend((count + PIPELINE_FILL) * self._of(variant))
        return self._rig.pipelined(variant, count)

    def chain(self, replays: Sequence[Replay]) -> list[float]:
        """As the rig's."""
        times = self._rig.chain(replays)
        for replay, seconds in zip(replays[1:], times, strict=True):
            if replay.with_kv:
                self._seconds[replay.variant] = seconds
        self._spend(sum(times) + self._seconds.get(replays[0].variant, max(times)))
        return times

    def round_trip(self) -> float:
        """As the rig's."""
        self._spend(SMALL_SECONDS)
        return self._rig.round_trip()

    def launch(self, times: int) -> float:
        """As the rig's."""
        self._spend(times * SMALL_SECONDS)
        return self._rig.launch(times)

    def graph_launch(self, variant: Variant) -> float:
        """As the rig's."""
        self._spend(self._of(variant))
        return self._rig.graph_launch(variant)

    def nodes(self, count: int) -> float:
        """As the rig's."""
        seconds = self._rig.nodes(count)
        self._spend(2 * seconds)  # it ran twice
        return seconds

    def copy(self) -> Copy | None:
        """As the rig's."""
        copy = self._rig.copy()
        self._spend(0.0 if copy is None else 2 * copy.seconds)
        return copy

    def clock(self) -> float | None:
        """As the rig's."""
        return self._rig.clock()

    def _of(self, variant: Variant) -> float:
        if variant not in self._seconds:
            self.chain([Replay(variant), Replay(variant)])
        return self._seconds[variant]

    def _spend(self, seconds: float) -> None:
        self.used = self.used.more(seconds)
