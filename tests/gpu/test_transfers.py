"""Bytes moved, from rates or counters."""

from random import Random

import pytest

from solpi_exporter.gpu.driver import EVERY_LINK
from solpi_exporter.gpu.origins import Activity, FieldValue, Origin
from solpi_exporter.gpu.transfers import MIB, TRANSFERS, Transferred
from tests.fakes import values

LONGEST = 15.0
PCIE_OUT, PCIE_IN, NVLINK_OUT, NVLINK_IN = (transfer.metric.name for transfer in TRANSFERS)
PCIE_RATE, PCIE_COUNTER = Activity(20), FieldValue(197)
NVLINK_COUNTER = FieldValue(138, EVERY_LINK)


def after(*polls: tuple[float, dict[Origin, float]]) -> dict[str, float]:
    """Return the totals by metric after polls."""
    moved = Transferred(LONGEST)
    for time, answers in polls:
        moved.advance(time, answers)
    return totals(moved)


def totals(moved: Transferred) -> dict[str, float]:
    return {name: series["0", "GPU-a", ""] for name, series in values(list(moved.samples("0", "GPU-a", ""))).items()}


def test_a_rate_counts_for_the_time_it_was_taken_over() -> None:
    """3 MiB/s over 5 s are 15 MiB; before the first mean there is no total."""
    assert after((0.0, {})) == {}
    assert after((0.0, {}), (5.0, {PCIE_RATE: 3.0})) == {PCIE_OUT: 15.0 * MIB}


def test_every_direction_has_its_metric_of_gpm() -> None:
    """PCIe out and in, NVLink out and in: 20, 21, 61, 60."""
    rates: dict[Origin, float] = {Activity(20): 1.0, Activity(21): 2.0, Activity(61): 3.0, Activity(60): 4.0}

    assert after((0.0, {}), (1.0, rates)) == {
        PCIE_OUT: 1.0 * MIB,
        PCIE_IN: 2.0 * MIB,
        NVLINK_OUT: 3.0 * MIB,
        NVLINK_IN: 4.0 * MIB,
    }


def test_every_direction_has_its_counter() -> None:
    """PCIe in bytes, NVLink in KiB over all links."""
    counters: list[Origin] = [FieldValue(197), FieldValue(198), NVLINK_COUNTER, FieldValue(139, EVERY_LINK)]

    assert after((0.0, dict.fromkeys(counters, 10.0)), (1.0, dict.fromkeys(counters, 20.0))) == {
        PCIE_OUT: 10.0,
        PCIE_IN: 10.0,
        NVLINK_OUT: 10240.0,
        NVLINK_IN: 10240.0,
    }


def test_a_rate_after_a_long_pause_counts_as_nothing() -> None:
    """Over a pause beyond the limit no mean is believed; the total holds, and goes on."""
    polls: list[tuple[float, dict[Origin, float]]] = [(0.0, {}), (15.0, {PCIE_RATE: 1.0}), (615.0, {PCIE_RATE: 9.0})]
    assert after(*polls) == {PCIE_OUT: 15.0 * MIB}

    assert after(*polls, (616.0, {PCIE_RATE: 1.0})) == {PCIE_OUT: 16.0 * MIB}


@pytest.mark.parametrize("rate", [-1.0, float(1 << 62), float("inf"), float("nan")])
def test_a_rate_that_is_none_counts_as_nothing(rate: float) -> None:
    """A total that is not a number would stay so for ever."""
    assert after((0.0, {}), (1.0, {PCIE_RATE: 2.0}), (2.0, {PCIE_RATE: rate})) == {PCIE_OUT: 2.0 * MIB}


def test_a_counter_counts_from_where_it_was_found() -> None:
    """What was moved before the exporter ran is no part of the total."""
    assert after((0.0, {PCIE_COUNTER: 5e8})) == {PCIE_OUT: 0.0}
    assert after((0.0, {PCIE_COUNTER: 5e8}), (5.0, {PCIE_COUNTER: 5e8 + 100})) == {PCIE_OUT: 100.0}


def test_a_pcie_counter_wraps_at_32_bits() -> None:
    """From 100 below the end to 50 above the beginning are 150 bytes."""
    assert after((0.0, {PCIE_COUNTER: (1 << 32) - 100}), (5.0, {PCIE_COUNTER: 50})) == {PCIE_OUT: 150.0}


def test_an_nvlink_counter_that_falls_was_reset() -> None:
    """It is too wide to wrap: the total holds, and goes on from where the counter begins anew."""
    polls: list[tuple[float, dict[Origin, float]]] = [
        (0.0, {NVLINK_COUNTER: 1000}),
        (5.0, {NVLINK_COUNTER: 1010}),
        (10.0, {NVLINK_COUNTER: 3}),
    ]
    assert after(*polls) == {NVLINK_OUT: 10240.0}

    assert after(*polls, (15.0, {NVLINK_COUNTER: 5})) == {NVLINK_OUT: 12288.0}


def test_a_sentinel_in_a_counter_is_no_count() -> None:
    """NVML's number for "none" is neither taken in nor counted from."""
    polls: list[tuple[float, dict[Origin, float]]] = [(0.0, {PCIE_COUNTER: 10}), (5.0, {PCIE_COUNTER: (1 << 64) - 1})]

    assert after(*polls, (10.0, {PCIE_COUNTER: 30})) == {PCIE_OUT: 20.0}


def test_a_counter_that_is_not_told_goes_on_later() -> None:
    """A poll without it loses nothing."""
    assert after((0.0, {PCIE_COUNTER: 1}), (5.0, {}), (10.0, {PCIE_COUNTER: 4})) == {PCIE_OUT: 3.0}


def test_a_gpu_that_was_reset_has_not_wrapped() -> None:
    """Its counters begin anew at nothing, from wherever they were."""
    moved = Transferred(LONGEST)
    moved.advance(0.0, {PCIE_COUNTER: 1000})
    moved.advance(5.0, {PCIE_COUNTER: 1100})

    moved.reset()
    moved.advance(60.0, {PCIE_COUNTER: 7})
    moved.advance(65.0, {PCIE_COUNTER: 9})

    assert totals(moved) == {PCIE_OUT: 102.0}


@pytest.mark.parametrize("has_gpm", [True, False])
def test_the_origin_is_fixed_by_gpm(has_gpm: bool) -> None:
    """With GPM its rates are asked for, without it the counters, and never both."""
    asked = list(Transferred(LONGEST).origins(has_gpm=has_gpm))

    assert asked == [transfer.rate if has_gpm else transfer.counter for transfer in TRANSFERS]


def test_where_both_are_told_the_rate_counts() -> None:
    """Nothing is counted twice."""
    both: dict[Origin, float] = {PCIE_RATE: 1.0, PCIE_COUNTER: 1e6}

    assert after((0.0, {PCIE_COUNTER: 0}), (1.0, both)) == {PCIE_OUT: 1.0 * MIB}


@pytest.mark.parametrize("seed", range(10))
def test_totals_never_fall(seed: int) -> None:
    """Whatever rates and counters do."""
    random, moved, time, last = Random(seed), Transferred(LONGEST), 0.0, {PCIE_OUT: 0.0, NVLINK_OUT: 0.0}
    for _ in range(300):
        time += random.choice((0.1, 5.0, 100.0))
        answers: dict[Origin, float] = {
            origin: random.choice((0, random.randrange(1 << 32), 1 << 63)) for origin in (PCIE_COUNTER, NVLINK_COUNTER)
        }
        if random.random() < 0.2:
            answers[PCIE_RATE] = random.uniform(-1.0, 1e4)
        moved.advance(time, answers)
        now = totals(moved)
        assert all(now.get(name, 0.0) >= value for name, value in last.items())
        last |= now
