"""The alerts on the exporter itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solpi_exporter.rules.exporter import GROUPS
from tests.rules.cases import Case, alerts_of, boundary, complete, fires, missing, prove, silent

BUILD = {'solpi_build_info{version="1", python="3.12"}': "1x9 stale"}
NOTHING = {'up{job="other", instance="b"}': "1x120"}


def source(state: str, values: str, name: str = "gpu") -> dict[str, str]:
    return {f'solpi_source_state{{source="{name}", state="{state}"}}': values}


def read(values: str, polls: str = "0+12x120") -> dict[str, str]:
    """When a source was last read, by its host's clock, and how often."""
    return {
        'solpi_source_last_success_timestamp_seconds{source="gpu"}': values,
        'solpi_source_polls_total{source="gpu", outcome="success"}': polls,
    }


PROBED = {"solpi_probe_last_success_timestamp_seconds": "0x120"}
CONTENDED = {'solpi_probe_runs_total{outcome="contended"}': "0+0.6x150"}
SKIPPED = {'solpi_probe_skipped_total{reason="memory_moving"}': "0+4x150"}

CASES = (
    fires("SolpiExporterDown", "killed", BUILD | {"up": "1x9 0x60"}, 15),
    silent("SolpiExporterDown", "another exporter's target", {"up": "0x60"}),
    silent("SolpiExporterDown", "an upgrade in a minute", BUILD | {"up": "1x9 0 1x60"}),
    boundary("SolpiExporterDown", "four minutes", BUILD | {"up": "1x9 0x4 1x50"}),
    missing("SolpiExporterDown", "no target", BUILD),
    fires("SolpiExporterVanished", "no target any more", BUILD | {"up": "1x9 stale"}, 25),
    silent("SolpiExporterVanished", "it is only down", BUILD | {"up": "1x9 0x60"}),
    boundary("SolpiExporterVanished", "14 minutes", BUILD | {"up": "1x9 stale _x13 1x60"}),
    missing("SolpiExporterVanished", "never one of ours", NOTHING),
    fires("SolpiSourceDown", "it worked once", source("down", "0x9 1x50"), 25),
    silent("SolpiSourceDown", "it never was there", source("absent", "1x60") | source("down", "0x60")),
    boundary("SolpiSourceDown", "an engine's start of fourteen minutes", source("down", "1x14 0x50")),
    missing("SolpiSourceDown", "nothing known", NOTHING),
    fires("SolpiProbeStale", "noisy for an hour", PROBED | source("ok", "1x120", "probe"), 66),
    silent("SolpiProbeStale", "switched off", PROBED | source("off", "1x120", "probe"), 120),
    silent("SolpiProbeStale", "a busy GPU", PROBED | CONTENDED | source("ok", "1x120", "probe"), 120),
    boundary(
        "SolpiProbeStale",
        "an hour",
        {"solpi_probe_last_success_timestamp_seconds": "0x60 3600x60"} | source("ok", "1x120", "probe"),
        120,
    ),
    missing("SolpiProbeStale", "no probe", NOTHING, 120),
    fires("SolpiProbeSkipped", "all the time", SKIPPED, 61),
    silent(
        "SolpiProbeSkipped", "now and then", SKIPPED | {"solpi_probe_last_success_timestamp_seconds": "0+60x150"}, 120
    ),
    silent("SolpiProbeSkipped", "now and then beside a busy GPU", SKIPPED | CONTENDED, 120),
    boundary("SolpiProbeSkipped", "the start alone", {'solpi_probe_skipped_total{reason="starting"}': "0+4x150"}, 120),
    missing("SolpiProbeSkipped", "no probe", NOTHING, 120),
    fires("SolpiLogLost", "deleted", {'solpi_log_lost_bytes_total{server="vllm"}': "0x9 4096x50"}, 10),
    silent("SolpiLogLost", "long ago", {'solpi_log_lost_bytes_total{server="vllm"}': "4096x60"}),
    boundary("SolpiLogLost", "nothing", {'solpi_log_lost_bytes_total{server="vllm"}': "0x60"}),
    missing("SolpiLogLost", "no log", NOTHING),
    fires("SolpiStateNotSaved", "disk full", {'solpi_state_write_failures_total{state="log-vllm"}': "0x9 1x50"}, 10),
    silent("SolpiStateNotSaved", "long ago", {'solpi_state_write_failures_total{state="log-vllm"}': "7x60"}),
    boundary("SolpiStateNotSaved", "none", {'solpi_state_write_failures_total{state="log-vllm"}': "0x60"}),
    missing("SolpiStateNotSaved", "no state directory", NOTHING),
    fires("SolpiClockSkew", "two minutes ahead", read("0+60x9 720+60x50"), 12),
    fires("SolpiClockSkew", "two minutes behind", read("0+60x19 1080+60x50"), 22),
    silent("SolpiClockSkew", "no source can be read", read("0+60x9 540x60", "0+12x9 108x60")),
    boundary("SolpiClockSkew", "a minute", read("60+60x60")),
    missing("SolpiClockSkew", "nothing known", NOTHING),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_fires_when_it_should(case: Case, tool: Callable[[str], str], tmp_path: Path) -> None:
    """At the minute that it says, and at no other."""
    prove(case, tool("promtool"), tmp_path)


@pytest.mark.parametrize("alert", [one for one in alerts_of(GROUPS) if one != "SolpiWatchdog"])
def test_every_alert_has_every_kind_of_case(alert: str, tool: Callable[[str], str], tmp_path: Path) -> None:
    """It fires, stays silent, lies at its limit, and finds nothing; its text names labels that are there."""
    complete(alert, CASES, tool("promtool"), tmp_path)


def test_the_watchdog_always_fires(tool: Callable[[str], str], tmp_path: Path) -> None:
    """With no series at all, from the first evaluation on."""
    prove(fires("SolpiWatchdog", "nothing there", NOTHING, 0), tool("promtool"), tmp_path)
