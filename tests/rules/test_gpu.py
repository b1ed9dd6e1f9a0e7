"""The alerts on the GPUs: states, XIDs, throttling, memory and modes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from solpi_exporter.gpu.fields import CLOCKS_EVENT_REASONS
from solpi_exporter.gpu.reading import GpuState
from solpi_exporter.gpu.xid import ROWS, Action, Class
from solpi_exporter.rules.gpu import GROUPS, OTHER_ACTIONS, URGENT_ACTIONS
from tests.rules.cases import Case, alerts_of, boundary, complete, fires, missing, prove, silent

G = 'gpu="0", uuid="GPU-0"'
OTHER = 'gpu="0", uuid="GPU-1"'  # once a GPU has left NVML's list, an index may stand on two
NOTHING = {"solpi_build_info": "1x60"}


def state(name: str, values: str, of: str = G) -> dict[str, str]:
    return {f'solpi_gpu_state{{{of}, state="{name}"}}': values}


def xid(code: int, values: str, kind: str, action: str) -> dict[str, str]:
    """Return an XID with its time; minute n is second 60 n."""
    return {
        f'solpi_gpu_xid_last_timestamp_seconds{{{G}, xid="{code}"}}': values,
        f'solpi_xid_info{{xid="{code}", class="{kind}", action="{action}"}}': "1x60",
    }


def held(reason: str, values: str, of: str = G) -> dict[str, str]:
    return {f'solpi_gpu_clocks_event_active{{{of}, reason="{reason}"}}': values}


def gpu(metric: str, values: str, labels: str = "") -> dict[str, str]:
    return {f"solpi_gpu_{metric}{{{G}{labels}}}": values}


SERVING = {'solpi_engine_gpu_info{server="vllm", uuid="GPU-0"}': "1x60"}
PERSISTENCE_OFF = gpu("persistence_mode_enabled", "0x60")
ECC_OFF = gpu("ecc_enabled", "0x60", ', when="current"')
BUSY_CAP = held("sw_power_cap", "1x60")


def cuda(toolkit: float, driver: float) -> dict[str, str]:
    return {
        'solpi_cuda_toolkit_version{user="engine", server="vllm"}': f"{toolkit}x60",
        "solpi_cuda_driver_version": f"{driver}x60",
    }


CASES = (
    fires("SolpiGpuLost", "off the bus", state("lost", "0x9 1x50"), 11),
    fires("SolpiGpuLost", "two of one index", state("lost", "1x60") | state("lost", "1x60", OTHER), 1, 2),
    silent("SolpiGpuLost", "let go of on request", state("lost", "0x60") | state("quiesced", "1x60")),
    boundary("SolpiGpuLost", "one poll", state("lost", "0 1 0x60")),
    missing("SolpiGpuLost", "no driver", NOTHING),
    fires("SolpiGpuHung", "a call that does not return", state("hung", "0x9 1x50"), 12),
    silent("SolpiGpuHung", "it answers", state("hung", "0x60") | state("ok", "1x60")),
    boundary("SolpiGpuHung", "a minute", state("hung", "0 1 1 0x60")),
    missing("SolpiGpuHung", "no driver", NOTHING),
    fires("SolpiGpuUnusable", "no permission", state("no_permission", "1x60"), 5),
    silent("SolpiGpuUnusable", "let go of on request", state("quiesced", "1x60")),
    boundary("SolpiGpuUnusable", "half an upgrade, four minutes", state("driver_mismatch", "1x4 0x60")),
    missing("SolpiGpuUnusable", "no driver", NOTHING),
    fires("SolpiGpusMissing", "seven of eight", {"solpi_gpus_expected": "2x60"} | state("ok", "1x60"), 5),
    fires("SolpiGpusMissing", "no driver any more", {"solpi_gpus_expected": "8x60"}, 5),
    silent("SolpiGpusMissing", "let go of on request", {"solpi_gpus_expected": "1x60"} | state("quiesced", "1x60")),
    boundary("SolpiGpusMissing", "as many as expected", {"solpi_gpus_expected": "1x60"} | state("ok", "1x60")),
    missing("SolpiGpusMissing", "never had a driver", NOTHING),
    fires("SolpiGpuRecoveryNeeded", "reset", gpu("recovery_action", "0x9 1x50"), 11),
    silent("SolpiGpuRecoveryNeeded", "none", gpu("recovery_action", "0x60")),
    boundary("SolpiGpuRecoveryNeeded", "one poll", gpu("recovery_action", "0 1 0x60")),
    missing("SolpiGpuRecoveryNeeded", "an older GPU", NOTHING),
    fires("SolpiGpuXidCritical", "79, the first of its kind", xid(79, "_x10 600x50", "hardware", "reset_gpu"), 10),
    silent("SolpiGpuXidCritical", "a program's", xid(31, "600x60", "application", "restart_app")),
    boundary("SolpiGpuXidCritical", "ten minutes old", xid(79, "_x20 600x40", "hardware", "reset_gpu")),
    missing("SolpiGpuXidCritical", "none was ever reported", {'solpi_xid_info{xid="79", class="hardware"}': "1x60"}),
    fires("SolpiGpuXid", "a link", xid(74, "_x10 600x50", "link", "check_link"), 10),
    silent("SolpiGpuXid", "one that is critical", xid(79, "600x60", "hardware", "reset_gpu")),
    boundary("SolpiGpuXid", "ten minutes old", xid(74, "_x20 600x40", "link", "check_link")),
    missing("SolpiGpuXid", "none was ever reported", NOTHING),
    fires("SolpiGpuXidUnknown", "a new code", gpu("xid_last_timestamp_seconds", "_x10 600x50", ', xid="999"'), 10),
    silent("SolpiGpuXidUnknown", "a known code", xid(79, "600x60", "hardware", "reset_gpu")),
    boundary("SolpiGpuXidUnknown", "ten minutes old", gpu("xid_last_timestamp_seconds", "_x20 600x40", ', xid="999"')),
    missing("SolpiGpuXidUnknown", "none was ever reported", NOTHING),
    fires("SolpiGpuXidApplication", "31", xid(31, "_x10 600x50", "application", "restart_app"), 10),
    silent("SolpiGpuXidApplication", "hardware", xid(79, "600x60", "hardware", "reset_gpu")),
    boundary("SolpiGpuXidApplication", "ten minutes old", xid(31, "_x20 600x40", "application", "restart_app")),
    missing("SolpiGpuXidApplication", "none was ever reported", NOTHING),
    fires("SolpiGpuHardwareThrottled", "power brake", held("hw_power_brake_slowdown", "0x9 1x50"), 16),
    silent("SolpiGpuHardwareThrottled", "power limit, as under load", BUSY_CAP),
    boundary("SolpiGpuHardwareThrottled", "a poll now and then", held("hw_slowdown", " ".join(["1 0x8"] * 7))),
    missing("SolpiGpuHardwareThrottled", "not told", NOTHING),
    fires("SolpiGpuThermalThrottled", "heat", held("sw_thermal_slowdown", "1x60"), 15),
    silent("SolpiGpuThermalThrottled", "idle", held("gpu_idle", "1x60")),
    boundary("SolpiGpuThermalThrottled", "ten minutes", held("sw_thermal_slowdown", "1x9 0x50")),
    missing("SolpiGpuThermalThrottled", "not told", NOTHING),
    fires("SolpiGpuPowerCapped", "under load", BUSY_CAP, 30),
    silent("SolpiGpuPowerCapped", "idle", held("sw_power_cap", "0x60")),
    boundary("SolpiGpuPowerCapped", "most of the time", held("sw_power_cap", " ".join(["1x3 0"] * 12))),
    missing("SolpiGpuPowerCapped", "not told", NOTHING),
    fires("SolpiGpuRowRemapFailed", "no spare row", gpu("row_remap_failure", "0x9 1x50"), 10),
    silent("SolpiGpuRowRemapFailed", "one is pending", gpu("row_remap_pending", "1x60")),
    boundary("SolpiGpuRowRemapFailed", "none failed", gpu("row_remap_failure", "0x60")),
    missing("SolpiGpuRowRemapFailed", "an older GPU", NOTHING),
    fires("SolpiGpuRowRemapPending", "one is", gpu("row_remap_pending", "1x60"), 5),
    silent("SolpiGpuRowRemapPending", "remapped", gpu("row_remaps_total", "3x60", ', severity="uncorrectable"')),
    boundary("SolpiGpuRowRemapPending", "four minutes", gpu("row_remap_pending", "1x4 0x50")),
    missing("SolpiGpuRowRemapPending", "an older GPU", NOTHING),
    fires(
        "SolpiGpuUncorrectedEcc",
        "present at the first scrape",
        gpu("ecc_errors_total", "2x60", ', severity="uncorrected", scope="volatile"'),
        5,
    ),
    silent(
        "SolpiGpuUncorrectedEcc",
        "corrected, or of another year",
        gpu("ecc_errors_total", "0+9x60", ', severity="corrected", scope="volatile"')
        | gpu("ecc_errors_total", "2x60", ', severity="uncorrected", scope="aggregate"'),
    ),
    boundary(
        "SolpiGpuUncorrectedEcc", "none", gpu("ecc_errors_total", "0x60", ', severity="uncorrected", scope="volatile"')
    ),
    missing("SolpiGpuUncorrectedEcc", "no ECC", NOTHING),
    fires("SolpiPersistenceModeOff", "a server runs there", PERSISTENCE_OFF | SERVING, 30),
    silent("SolpiPersistenceModeOff", "it is on", gpu("persistence_mode_enabled", "1x60") | SERVING),
    boundary("SolpiPersistenceModeOff", "29 minutes", gpu("persistence_mode_enabled", "0x29 1x60") | SERVING),
    missing("SolpiPersistenceModeOff", "nobody serves there", PERSISTENCE_OFF),
    fires("SolpiEccAndPersistenceOff", "both are", PERSISTENCE_OFF | ECC_OFF | SERVING, 30),
    silent(
        "SolpiEccAndPersistenceOff",
        "ECC goes off at the next boot",
        PERSISTENCE_OFF | gpu("ecc_enabled", "0x60", ', when="pending"') | SERVING,
    ),
    boundary("SolpiEccAndPersistenceOff", "one of them", ECC_OFF | gpu("persistence_mode_enabled", "1x60") | SERVING),
    missing("SolpiEccAndPersistenceOff", "no ECC there", PERSISTENCE_OFF | SERVING),
    fires("SolpiCudaMismatch", "an old driver", cuda(13.0, 12.8), 10),
    silent("SolpiCudaMismatch", "a newer driver", cuda(12.8, 13.0)),
    boundary("SolpiCudaMismatch", "the same", cuda(13.0, 13.0)),
    missing("SolpiCudaMismatch", "no torch found", {"solpi_cuda_driver_version": "13x60"}),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_fires_when_it_should(case: Case, tool: Callable[[str], str], tmp_path: Path) -> None:
    """At the minute that it says, and at no other."""
    prove(case, tool("promtool"), tmp_path)


@pytest.mark.parametrize("alert", alerts_of(GROUPS))
def test_every_alert_has_every_kind_of_case(alert: str, tool: Callable[[str], str], tmp_path: Path) -> None:
    """It fires, stays silent, lies at its limit, and finds nothing; its text names labels that are there."""
    complete(alert, CASES, tool("promtool"), tmp_path)


def test_every_documented_xid_alerts_once() -> None:
    """By its action; those that only follow another code, or ask for nothing, do not."""
    actions = [set(one.split("|")) for one in (URGENT_ACTIONS, OTHER_ACTIONS)]
    hardly = {Action.NONE.value, Action.FOLLOW_OTHER.value}

    assert not actions[0] & actions[1]
    assert actions[0] | actions[1] == {action.value for action in Action} - hardly
    assert {row.action for row in ROWS if row.kind is not Class.APPLICATION} <= set(Action)


def test_states_and_reasons_are_real_ones() -> None:
    """A misspelt label value would never fire."""
    text = "".join(str(rule) for group in GROUPS for rule in group.rules)

    assert {"lost", "hung", "reset_required", "no_permission", "driver_mismatch", "driver_absent"} <= {
        one.value for one in GpuState
    }
    for reason in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"):
        assert reason in text
        assert reason in CLOCKS_EVENT_REASONS.values()
