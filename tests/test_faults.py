"""Faults in real daemons, through a real Prometheus and Alertmanager to a pager: each raises its own page, no other.

The short form of `make faults`, which also says whether each came in time.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from benchmarks.faults import run
from benchmarks.faults.cases import CASES, Case
from benchmarks.faults.daemon import Stage
from benchmarks.faults.engines import engine, idle
from benchmarks.faults.run import Outcome, outcomes
from solpi_exporter.rules.files import ALERTS
from solpi_exporter.rules.rule import CRITICAL
from tests.conftest import find_tool

# One of each kind of host, and what must raise nothing; the rest waits longer.
SHORT = (
    "GPU fell off the bus",
    "GPU left NVML's list",
    "driver hangs on a GPU",
    "GPU to be recovered",
    "XID 79",
    "exporter killed",
    "clock of the host steps",
    "swap storm",
    "latency spike",
    "hung engine",
    "dead engine",
    "idle engine",
    "log rotated under load",
    "KV cache comes back from the host",
    "sleep on the GPU (H200 rows)",
)


@pytest.fixture(scope="module")
def found(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """Return what came of each fault."""
    find_tool("faketime")
    cases = [case for case in CASES if case.name in SHORT]
    return {one.case.name: one for one in outcomes(cases, library, tmp_path_factory.mktemp("faults"))}


@pytest.mark.parametrize("name", SHORT)
def test_a_fault_raises_its_own_alert_and_no_other_page(name: str, found: dict[str, Outcome]) -> None:
    """Whatever else fires is a ticket, or is silenced by it."""
    assert found[name].is_right, (found[name].fired, found[name].paged)


def test_alerts_of_the_table_are_real_ones() -> None:
    """A misspelt one would be missed for ever."""
    assert {name for case in CASES for name in case.alerts} <= {alert.name for alert in ALERTS}


def test_every_page_is_some_faults_own() -> None:
    """But for a flag that is asked for once a minute, which takes longer than all the rest."""
    pages = {alert.name for alert in ALERTS if alert.severity == CRITICAL}

    assert pages - {name for case in CASES for name in case.alerts} == {"SolpiGpuRowRemapFailed"}


def test_a_host_that_does_not_come_up_leaves_no_thread_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that went on kept a whole run from ending."""
    monkeypatch.setattr(run, "READY_SECONDS", 0.0)

    @contextmanager
    def never(library: Path, folder: Path) -> Iterator[Stage]:
        with engine(idle, library, folder) as stage:
            yield Stage(stage.port, lambda: False, stage.inject)

    before = threading.active_count()
    with pytest.raises(TimeoutError, match="never: its host is not well"):
        outcomes([Case("never", partial(never))], tmp_path, tmp_path)

    assert threading.active_count() == before
