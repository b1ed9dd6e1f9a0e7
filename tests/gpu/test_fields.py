"""The table of GPU quantities."""

from collections import Counter
from typing import Any

import pytest

from solpi_exporter.gpu.fields import (
    CLOCKS_EVENT_REASONS,
    FIELDS,
    GPU,
    MEMORY_V2,
    UTILIZATION,
    performance_state,
    reasons,
)
from solpi_exporter.gpu.origins import Activity, Call, Field, Tier
from solpi_exporter.metric import Kind, Sample

STRUCTS: dict[str, Any] = {
    "nvmlDeviceGetUtilizationRates": {"gpu": 57, "memory": 3},
    "nvmlDeviceGetMemoryInfo": {"total": 4, "used": 1, "free": 2, "reserved": 1},
    "nvmlDeviceGetEccMode": [1, 0],
    "nvmlDeviceGetMigMode": [0, 1],
    "nvmlDeviceGetRemappedRows": [1, 0, 0, 1],
}


def converted(field: Field) -> list[Sample]:
    """Return a row's samples of a plausible answer."""
    answer = STRUCTS.get(field.origin.name, 12) if isinstance(field.origin, Call) else 12
    return [field.metric.sample(value, "0", "GPU-a", "", *further) for further, value in field.convert(answer)]


def test_every_row_is_a_gpu_series_of_the_contract() -> None:
    """Each metric starts with the family's prefix, carries the GPU's labels first, and says what it is."""
    for field in FIELDS:
        assert field.metric.name.startswith("solpi_gpu_")
        assert field.metric.labels[:3] == GPU
        assert field.metric.help.endswith(".")


def test_every_row_yields_what_its_labels_ask_for() -> None:
    """No answer is turned into a sample that its metric refuses, and none into nothing."""
    for field in FIELDS:
        assert converted(field), field


def test_no_two_rows_are_the_same_series() -> None:
    """Prometheus would reject the whole scrape."""
    series = Counter((one.metric.name, one.labels) for field in FIELDS for one in converted(field))

    assert [one for one, times in series.items() if times > 1] == []


def test_the_name_says_the_kind_and_the_unit() -> None:
    """A counter ends in _total and nothing else does; a ratio is at most 1."""
    for field in FIELDS:
        assert field.metric.name.endswith("_total") == (field.metric.kind is Kind.COUNTER)
        if field.metric.name.endswith("_ratio"):
            assert [one.value for one in converted(field)] in ([0.12], [0.57], [0.03])  # of 12, 57 and 3 percent


def test_rows_of_one_metric_are_asked_alike() -> None:
    """A family of which half is a minute old would mislead whoever sums it."""
    for metric in {field.metric for field in FIELDS}:
        assert len({field.tier for field in FIELDS if field.metric is metric}) == 1, metric.name


def test_what_changes_from_second_to_second_is_asked_at_every_poll() -> None:
    """Utilisation is never kept from an older poll; GPM's means, which cost a hundred times as much, are for 5 s."""
    assert {field.tier for field in FIELDS if field.metric is UTILIZATION} == {Tier.FAST}
    assert {field.tier for field in FIELDS if isinstance(field.origin, Activity)} == {Tier.MEAN}


def test_a_mig_instance_has_memory_and_activity() -> None:
    """NVML answers nothing else for one."""
    assert {str(field.origin) for field in FIELDS if field.instances} == {
        "nvmlDeviceGetMemoryInfo",
        *(f"GPM metric {number}" for number in (1, 2, 3, 5, 10)),
    }


def test_the_memory_struct_is_version_2_of_40_bytes() -> None:
    """Version 1 counts what the driver reserves as used."""
    pynvml = pytest.importorskip("pynvml")

    assert pynvml.nvmlMemory_v2 == MEMORY_V2


def test_a_mask_is_spread_over_all_reasons() -> None:
    """Each reason has its 0 or 1, so that a reason that ends is seen to end."""
    values = dict(reasons(0x4 | 0x40))

    assert {labels[0] for labels, value in values.items() if value} == {"sw_power_cap", "hw_thermal_slowdown"}
    assert len(values) == len(CLOCKS_EVENT_REASONS) + 1


def test_a_bit_without_a_name_is_not_lost() -> None:
    """A newer driver's reason counts as other, beside those that are known."""
    assert {labels[0] for labels, value in reasons(0x800 | 0x1) if value} == {"other", "gpu_idle"}


@pytest.mark.parametrize(("state", "shown"), [(32, []), (0, [((), 0.0)]), (15, [((), 15.0)])])
def test_an_unknown_performance_state_is_no_number(state: int, shown: list[Any]) -> None:
    """NVML's 32 means that it does not know; that is absence."""
    assert list(performance_state(state)) == shown
