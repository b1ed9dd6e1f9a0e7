"""The raw costs, and the gate that tells whether others keep the GPU busy."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from solpi_exporter.probe.costs import BURSTS, ENOUGH_LATE, TRIPS, CostMeter
from solpi_exporter.probe.result import Costs
from solpi_exporter.probe.rig import Copy, Variant
from tests.probe.fake_rig import SLICE, FakeRig


def meter_on(rig: FakeRig) -> CostMeter:
    return CostMeter(rig, 2, rig.rest)


def costs_of(meter: CostMeter, trips: Sequence[float] = (20e-6, 30e-6)) -> Costs:
    return meter.measure(Variant(1, 4), trips, nullcontext())


def test_a_quiet_gate_takes_bursts_that_lie_apart() -> None:
    """Together they outlast a time slice of a CPU, in which a starved neighbour leaves the GPU alone."""
    rig = FakeRig()

    trips = meter_on(rig).gate(nullcontext())

    assert len(trips) == BURSTS * TRIPS
    assert rig.names().count("rest") == BURSTS
    assert min(seconds for name, seconds in rig.calls if name == "rest") >= 5e-3


def test_the_gate_stops_once_it_is_clear() -> None:
    """Each more round trip would cost the neighbour a switch of the GPU."""
    rig = FakeRig(is_busy=lambda: True)

    trips = meter_on(rig).gate(nullcontext())

    assert rig.names() == ["round_trip"] * ENOUGH_LATE
    assert costs_of(meter_on(FakeRig()), trips).is_contended


def test_some_late_round_trips_are_the_hosts() -> None:
    """Up to 3 % of them leave the verdict as it is."""
    answers = iter([True] * (ENOUGH_LATE - 1) + [False] * 1000)
    meter = meter_on(FakeRig(is_busy=lambda: next(answers)))

    costs = costs_of(meter, meter.gate(nullcontext()))

    assert costs.late_round_trips == (ENOUGH_LATE - 1) / (BURSTS * TRIPS)
    assert not costs.is_contended


def test_each_cost_is_that_of_one_thing() -> None:
    """One launch, one node, one byte, in seconds."""
    costs = costs_of(meter_on(FakeRig()))

    assert (costs.launch, costs.graph_launch) == (8e-6, 15e-6)
    assert costs.graph_node == pytest.approx(1e-6)
    assert costs.copy_bandwidth == pytest.approx(4e12)
    assert costs.round_trip == (30e-6, 20e-6)
    assert costs.clock == 1.98e9


def test_the_quickest_round_trip_is_that_of_all_cycles() -> None:
    """Beside a busy GPU it is what a quiet one was; unknown until one was seen."""
    meter = meter_on(FakeRig())

    assert costs_of(meter, [SLICE]).quickest_round_trip is None
    assert costs_of(meter, [20e-6]).quickest_round_trip == 20e-6
    assert costs_of(meter, [SLICE]).quickest_round_trip == 20e-6


def test_what_the_l2_holds_tells_no_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was copied then."""

    def no_copy(_: FakeRig) -> Copy | None:
        return None

    monkeypatch.setattr(FakeRig, "copy", no_copy)

    assert costs_of(meter_on(FakeRig())).copy_bandwidth is None
