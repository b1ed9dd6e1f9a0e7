"""probe --save-baseline and --compare: on a fake bench and driver, and on the real CPU."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from solpi_exporter import environment
from solpi_exporter.cli import main
from solpi_exporter.gpu.driver import DriverAbsent
from solpi_exporter.probe.baseline import RUNS
from solpi_exporter.probe.baseline_file import read_baseline
from solpi_exporter.probe.result import EAGER_SYNC, MODELLED, Costs
from tests.cli.test_commands import solpi
from tests.fakes import FakeBench, FakeDriver, batch_result

module = sys.modules["solpi_exporter.cli.baseline"]
probe_module = sys.modules["solpi_exporter.cli.probe"]  # as an attribute of its package it is the command

ON_GPU = Costs((60e-6, 110e-6), (22e-6, 70e-6), 20e-6, 0.0, 9.9e-6, 19.5e-6, 1e-6, 4.08e12, 1.98e9)
TINY = ("--device", "cpu", "--layers", "1", "--context", "16", "--batch", "1")

Run = Callable[..., Result]


def card() -> dict[str, Any]:
    return {"nvmlDeviceGetUUID": "GPU-1", "nvmlDeviceGetEccMode": [1, 1], "nvmlDeviceGetCurrPcieLinkWidth": 16}


def bench_of(costs: Costs = ON_GPU, token: float = 10e-3, off_cpu: float = 0.0) -> FakeBench:
    result = batch_result(1, token=token)
    modes = {EAGER_SYNC: replace(result.modes[EAGER_SYNC], off_cpu=off_cpu)}
    return FakeBench({1: replace(result, modes=modes)}, raw=costs)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver([card()], {"nvmlSystemGetDriverVersion": "580.1"})
    monkeypatch.setattr(module, "NvmlDriver", lambda: driver)
    monkeypatch.setattr(environment, "pressure_seconds", lambda _: {})  # what else runs here is not the tests' doing
    monkeypatch.setattr(module, "leave", sys.exit)  # the real one leaves past threads that may hang, and past pytest
    return driver


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> Run:
    """Return a call of the command on a bench."""

    def run(bench: FakeBench, *arguments: object) -> Result:
        monkeypatch.setattr(probe_module, "bench_opener", lambda *_: lambda: bench)
        return CliRunner().invoke(main, ["probe", "--batch", "1", *map(str, arguments)])

    return run


def test_a_baseline_is_saved(probe: Run, tmp_path: Path) -> None:
    """Of several cycles, with how the machine is set up."""
    path = tmp_path / "good.json"

    result = probe(bench_of(), "--save-baseline", path)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"saved as {path}: NVIDIA H200 beside ")
    assert result.stdout.endswith(f"; 14 figures over {RUNS} runs\n")
    saved = read_baseline(path)
    assert {figure.runs for figure in saved.figures} == {RUNS}
    assert (saved.fingerprint.model, saved.fingerprint.shape) == ("NVIDIA H200", "8b")
    around = saved.surroundings
    assert (around.driver, around.ecc, around.pcie_width, around.sm_clock) == ("580.1", True, 16, 1.98e9)
    assert around.conditions == "quiet"


def test_as_json_it_is_what_was_saved(probe: Run, tmp_path: Path) -> None:
    """Byte for byte."""
    path = tmp_path / "good.json"

    assert probe(bench_of(), "--save-baseline", path, "--json").stdout == path.read_text()


def test_the_same_machine_is_the_same(probe: Run, tmp_path: Path) -> None:
    """Status 0."""
    path = tmp_path / "good.json"
    probe(bench_of(), "--save-baseline", path)

    result = probe(bench_of(), "--compare", path)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "Nothing worse, 0 better, 14 the same within their bands." in result.stdout
    assert "Since then" not in result.stdout


def test_a_regression_has_status_1(probe: Run, driver: FakeDriver, tmp_path: Path) -> None:
    """And the driver that was changed stands below it."""
    path = tmp_path / "good.json"
    probe(bench_of(), "--save-baseline", path)
    driver.system["nvmlSystemGetDriverVersion"] = "590.2"

    result = probe(bench_of(replace(ON_GPU, launch=23.6e-6)), "--compare", path)

    assert result.exit_code == 1
    assert re.search(r"^worse +launch +23\.6 us +9\.9 us +\+138% +± +20%$", result.stdout, re.MULTILINE)
    assert "1 worse, 0 better, 13 the same" in result.stdout
    assert result.stdout.endswith("Since then: driver 580.1 -> 590.2.\n")


def test_an_improvement_has_status_0(probe: Run, tmp_path: Path) -> None:
    """It is told."""
    path = tmp_path / "good.json"
    probe(bench_of(), "--save-baseline", path)

    result = probe(bench_of(replace(ON_GPU, launch=5e-6)), "--compare", path)

    assert result.exit_code == 0
    assert re.search(r"^better +launch ", result.stdout, re.MULTILINE)


def test_a_comparison_as_json(probe: Run, tmp_path: Path) -> None:
    """With the same status."""
    path = tmp_path / "good.json"
    probe(bench_of(), "--save-baseline", path)

    result = probe(bench_of(replace(ON_GPU, launch=23.6e-6)), "--compare", path, "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["verdict"] == "worse"


def test_another_machine_is_refused_before_it_is_measured(probe: Run, tmp_path: Path) -> None:
    """With one line that names what differs."""
    path = tmp_path / "good.json"
    probe(bench_of(), "--save-baseline", path)
    other = replace(bench_of(), identity=replace(bench_of().identity, model="NVIDIA H100"), results={})

    result = probe(other, "--compare", path)

    assert result.exit_code == 2
    assert "Error: not comparable: GPU model NVIDIA H200 -> NVIDIA H100: measure with the same flags" in result.stderr


@pytest.mark.parametrize("flag", ["--save-baseline", "--compare"])
def test_nothing_counts_beside_a_busy_neighbour(probe: Run, tmp_path: Path, flag: str) -> None:
    """Neither for a baseline nor against one; nothing is written."""
    path = tmp_path / "good.json"
    if flag == "--compare":
        probe(bench_of(), "--save-baseline", path)

    result = probe(bench_of(replace(ON_GPU, late_round_trips=0.9)), flag, path)

    assert result.exit_code == 2
    assert "no run counts: others keep the GPU busy: try again when the machine is quiet" in result.stderr
    assert path.exists() is (flag == "--compare")


def test_a_noisy_machine_gives_no_baseline(probe: Run, tmp_path: Path) -> None:
    """The reason is the probe's."""
    noisy = replace(bench_of(), results={1: batch_result(1, "most steps were disturbed")})

    result = probe(noisy, "--save-baseline", tmp_path / "good.json")

    assert result.exit_code == 2
    assert "no run counts: most steps were disturbed: try again" in result.stderr


def test_a_starved_host_is_warned_of(probe: Run, tmp_path: Path) -> None:
    """It is saved, since it was asked for; and it is told in a comparison."""
    path = tmp_path / "bad.json"

    saved = probe(bench_of(off_cpu=5e-3), "--save-baseline", path)
    compared = probe(bench_of(), "--compare", path)

    assert saved.exit_code == 0
    assert "measured under the conditions host starved: a baseline should be of a quiet machine" in saved.stderr
    assert "Since then: conditions host starved -> quiet." in compared.stdout


def test_without_a_driver_the_figures_are_saved_all_the_same(probe: Run, driver: FakeDriver, tmp_path: Path) -> None:
    """And what is missing is told."""
    driver.connects.append(DriverAbsent("no NVIDIA driver on this host"))

    result = probe(bench_of(), "--save-baseline", tmp_path / "good.json")

    assert (result.exit_code, result.stderr) == (
        0,
        "the GPU's setup is not recorded: no NVIDIA driver on this host\n",
    )
    assert read_baseline(tmp_path / "good.json").surroundings.driver is None


def test_both_at_once_are_refused(probe: Run, tmp_path: Path) -> None:
    """As wrong usage."""
    result = probe(bench_of(), "--save-baseline", tmp_path / "a", "--compare", tmp_path / "b")

    assert result.exit_code == 2
    assert "--save-baseline and --compare: give one of both" in result.stderr


def test_a_file_that_cannot_be_used_is_told_before_measuring(probe: Run, tmp_path: Path) -> None:
    """One that is there already, and one that is none."""
    path = tmp_path / "notes.txt"
    path.write_text("{}")
    unmeasured = replace(bench_of(), results={})

    saved = probe(unmeasured, "--save-baseline", path)
    compared = probe(unmeasured, "--compare", path)

    assert (saved.exit_code, compared.exit_code) == (2, 2)
    assert f"Error: {path}: is there already, and is not written over" in saved.stderr
    assert f"Error: {path}: is no baseline of this probe" in compared.stderr
    assert path.read_text() == "{}"


def test_on_a_real_cpu(tmp_path: Path) -> None:
    """Saved and compared in two processes: every figure is judged, and the status is that of the verdict."""
    path = tmp_path / "good.json"
    for _ in range(10):  # a machine with other work to do may need more than one try
        saved = solpi("probe", *TINY, "--save-baseline", str(path))
        if saved.returncode == 0:
            break
    for _ in range(10):
        compared = solpi("probe", *TINY, "--compare", str(path), "--json")
        if compared.returncode < 2:
            break

    assert saved.stdout.startswith(f"saved as {path}: ")
    plain = json.loads(compared.stdout)
    assert {figure["figure"] for figure in plain["figures"]} == {
        "wakeup_overshoot", "token", "phase", "control_ratio", "off_cpu_ratio", "enqueue",
    }  # fmt: skip
    assert {figure["verdict"] for figure in plain["figures"]} <= {"worse", "same", "better"}
    assert compared.returncode == (plain["verdict"] == "worse")
    assert read_baseline(path).surroundings.driver is None


def test_check_reads_the_baseline_that_is_named(tmp_path: Path) -> None:
    """A daemon would not start with one that is not there."""
    settings = tmp_path / "settings.toml"
    settings.write_text(f'[probe]\nbaseline = "{tmp_path}/none.json"\n')

    result = CliRunner().invoke(main, ["check", "--config", str(settings)])

    assert result.exit_code == 2
    assert "probe.baseline: " in result.output


def test_a_neighbour_that_came_after_the_gate_is_told(probe: Run, tmp_path: Path) -> None:
    """Each split is modelled, and none says why."""
    bench = bench_of()
    result = bench.results[1]
    bench.results[1] = replace(result, splits=tuple(replace(one, basis=MODELLED) for one in result.splits))

    refused = probe(bench, "--save-baseline", tmp_path / "good.json")

    assert refused.exit_code == 2
    assert "others keep the GPU busy" in refused.stderr
