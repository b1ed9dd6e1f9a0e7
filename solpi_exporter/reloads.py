"""How the settings in force were come by: since when, and whether the last attempt to take others succeeded.

Others are taken by a new process in place of this one (cli/reexec.py), so that what is loaded is always the start's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from solpi_exporter.metric import Metric, Sample

SUCCESSFUL = Metric(
    "solpi_config_last_reload_successful", "1 if the settings were taken when last loaded, 0 if they were refused."
)
SUCCESS_TIME = Metric(
    "solpi_config_last_reload_success_timestamp_seconds", "When the settings in force were loaded, Unix time."
)

METRICS = (SUCCESSFUL, SUCCESS_TIME)


@dataclass(slots=True)
class Reloads:
    """`loaded` is when, in Unix seconds; `error` what is wrong with the settings that were refused since."""

    loaded: float
    error: str | None = None

    def samples(self) -> Iterator[Sample]:
        """Yield both."""
        yield SUCCESSFUL.sample(float(self.error is None))
        yield SUCCESS_TIME.sample(self.loaded)


@dataclass(frozen=True, slots=True)
class Reload:
    """What somebody may ask for: `refused` says why the settings as they are now cannot be taken, `go` takes them."""

    refused: Callable[[], str | None]
    go: Callable[[], object]
