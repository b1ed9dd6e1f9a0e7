"""What fires in the quiet week and is right to: none of it pages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Expected:
    """An alert that the scenario deserves, on these hosts (none named: on any)."""

    alert: str
    hosts: tuple[str, ...]
    why: str


EXPECTED = (
    Expected("SolpiWatchdog", (), "always fires"),
    Expected("SolpiEngineControlHigh", ("eager",), "it runs eager all week, and loses two thirds of each token"),
    Expected("SolpiGraphsWouldHelp", ("eager",), "it was started with --enforce-eager"),
    Expected("SolpiKvCacheFull", ("batch",), "an offline batch keeps it full"),
    Expected("SolpiGpuPowerCapped", (), "busy GPUs run at their power limit"),
    Expected("SolpiGpuXidApplication", ("chat-1", "slow"), "programs failed there (XID 31 and 13)"),
)


def reason(alert: str, host: str) -> str | None:
    """Return why an alert is right to fire on a host, None if it is not."""
    return next((one.why for one in EXPECTED if one.alert == alert and (not one.hosts or host in one.hosts)), None)
