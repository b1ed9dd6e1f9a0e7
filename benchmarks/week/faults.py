"""Faults for `quiet_week --with-fault`: that the week can page. All on the first host, from noon of their day on."""

from dataclasses import dataclass

from benchmarks.week.fleet import FLEET, at


@dataclass(frozen=True, slots=True)
class Fault:
    """`page` is what has to come; `brings` may come too, since the example of Alertmanager silences it by the first."""

    name: str
    day: int
    page: str
    brings: tuple[str, ...] = ()

    def is_on(self, host: str, minute: int) -> bool:
        """Whether it is on: it stays to the end of its day."""
        return host == FLEET[0].name and minute >= at(self.day, 12)


STORM, LOST, REGRESSION = FAULTS = (
    Fault("storm", 6, "SolpiSwapStorm", ("SolpiKvCachePressure", "SolpiTokenLatencyHigh", "SolpiTokenLatencySpike")),
    Fault("lost", 7, "SolpiGpuLost", ("SolpiGpusMissing",)),
    Fault("regression", 5, "SolpiControlRegression"),
)
