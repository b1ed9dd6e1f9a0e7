"""What a comparison says."""

import json

import click
import pytest

from solpi_exporter.cli.comparison import as_json, machine, report
from solpi_exporter.probe.baseline import COPY, LAUNCH, OFF_CPU, PHASE, TOKEN, Baseline, Figure, Fingerprint
from solpi_exporter.probe.compare import compare
from solpi_exporter.probe.result import EAGER_SYNC
from solpi_exporter.probe.surroundings import Surroundings

PRINT = Fingerprint("cuda", "NVIDIA H200", "AMD EPYC 9654", "8b", 4, 512, "bfloat16")
BEFORE = (
    Figure(LAUNCH, None, None, 10e-6),
    Figure(COPY, None, None, 4.0e12),
    Figure(TOKEN, 1, EAGER_SYNC, 2e-3, spread=0.2e-3, runs=5),
    Figure(PHASE, 1, "compute", 700e-6),
    Figure(PHASE, 1, "sync", 0.0),
    Figure(OFF_CPU, 1, None, 0.01),
    Figure(PHASE, 64, "sync", 100e-6),
    Figure(TOKEN, 64, EAGER_SYNC, 3e-3),
)
NOW = (
    Figure(LAUNCH, None, None, 23.6e-6),
    Figure(TOKEN, 1, EAGER_SYNC, 5.8e-3),
    Figure(PHASE, 1, "compute", 650e-6),
    Figure(PHASE, 1, "sync", 130e-6),
    Figure(OFF_CPU, 1, None, 0.41),
)


def holding(figures: tuple[Figure, ...], **around: str) -> Baseline:
    return Baseline(PRINT, Surroundings(driver="580.1", torch="2.11.0", **around), 1.8e9, figures)  # type: ignore[arg-type]


def lines_of(before: Baseline, now: Baseline) -> list[str]:
    return [click.unstyle(line) for line in report(before, now, compare(before, now), "good.json")]


def test_what_changed_is_told_figure_by_figure() -> None:
    """What is worse first: now, before, by how much, and how much would have been noise."""
    lines = lines_of(holding(BEFORE), holding(NOW))

    assert lines[0] == (
        "NVIDIA H200 beside AMD EPYC 9654, 8b shape: 4 layers, context 512, bfloat16, "
        "against good.json of 2027-01-15 08:00 UTC"
    )
    assert lines[2].split() == ["now", "baseline", "change", "band"]
    assert [" ".join(line.split()) for line in lines[3:8]] == [
        "worse launch 23.6 us 10.0 us +136% ± 20%",
        "worse batch 1: token 5.800 ms 2.000 ms +190% ± 30%",
        "worse batch 1: sync 130.0 us 0.0 us +130.0 us ± 100.0 us",
        "worse batch 1: off the CPU 41.0% 1.0% +40.0 pt ± 5.0 pt",
        "better batch 1: compute 650.0 us 700.0 us -7% ± 3%",
    ]
    assert len({len(line) for line in lines[2:8]}) == 1


def test_the_rest_is_told_in_short() -> None:
    """How many are the same, what could not be compared, and what may explain it."""
    lines = lines_of(holding(BEFORE), holding(NOW, kernel="6.9.0"))

    assert lines[9:] == [
        "4 worse, 1 better, 0 the same within their bands.",
        "Absent on one side, and not compared: copy, batch 64.",
        "Since then: kernel not known -> 6.9.0.",
    ]


def test_where_nothing_changed_there_is_no_table() -> None:
    """Three lines are enough."""
    assert lines_of(holding(BEFORE), holding(BEFORE))[1:] == [
        "",
        "Nothing worse, 0 better, 8 the same within their bands.",
    ]


def test_as_json_it_says_everything() -> None:
    """In base units, also what is the same."""
    before, now = holding(BEFORE), holding(NOW, kernel="6.9.0")

    plain = json.loads(as_json(before, now, compare(before, now)))

    assert plain["verdict"] == "worse"
    assert plain["surroundings"] == {"kernel": {"value": "6.9.0", "baseline": None}}
    assert len(plain["figures"]) == len(BEFORE)
    assert plain["figures"][0] == {
        "figure": "launch",
        "batch": None,
        "part": None,
        "verdict": "worse",
        "value": 23.6e-6,
        "baseline": 10e-6,
        "change": pytest.approx(13.6e-6),
        "band": pytest.approx(2e-6),
    }
    assert [one["verdict"] for one in plain["figures"] if one["value"] is None] == ["not comparable"] * 3


@pytest.mark.parametrize(
    ("before", "now", "verdict"), [(10e-6, 5e-6, "better"), (5e-6, 10e-6, "worse"), (9e-6, 10e-6, "same")]
)
def test_as_json_it_has_one_verdict(before: float, now: float, verdict: str) -> None:
    """The worst."""
    one, other = (holding((Figure(LAUNCH, None, None, value),)) for value in (before, now))

    assert json.loads(as_json(one, other, compare(one, other)))["verdict"] == verdict


def test_a_cpu_is_named_alone() -> None:
    """It is the device; one whose name is not known is told so."""
    on_cpu = Fingerprint("cpu", "CPU", "AMD EPYC 9654", "small", 1, 512, "float32")

    assert machine(on_cpu) == "AMD EPYC 9654, small shape: 1 layer, context 512, float32"
    assert machine(Fingerprint("cuda", "NVIDIA H200", None, "8b", 4, 512, "bfloat16")).startswith(
        "NVIDIA H200 beside a CPU that is not known, 8b"
    )
