"""Where every GPU metric comes from."""

from solpi_exporter.gpu.origins import Tier
from solpi_exporter.gpu.reference import METRICS, provenance


def test_every_metric_has_a_provenance() -> None:
    """Calls, how often, since which architecture: nothing is left open."""
    rows = list(provenance())

    assert [metric for metric, _ in rows] == list(METRICS)
    assert all(source.calls and source.tier and source.since for _, source in rows)


def test_a_row_of_the_table_is_told_as_it_is_asked() -> None:
    """From the table itself, so that the two cannot differ."""
    rows = {metric.name: source for metric, source in provenance()}

    energy = rows["solpi_gpu_energy_joules_total"]
    assert (energy.calls, energy.tier, energy.since) == (
        "nvmlDeviceGetTotalEnergyConsumption",
        Tier.DEAR.value,
        "Volta",
    )
    assert rows["solpi_gpu_temperature_celsius"].calls == "nvmlDeviceGetTemperature, field value 82"
