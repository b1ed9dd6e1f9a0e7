"""The table of GPU quantities: one row each, with its NVML call and its conversion to base units.

Conversion is written here and nowhere else. A row that a GPU does not support yields nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from solpi_exporter.metric import Kind, Metric

GPU = ("gpu", "uuid")

# NVML's numbers, written out so that the table needs no NVML: clock domains, sensor, struct version 2 of 40 bytes.
CLOCK_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
TEMPERATURE_GPU = 0
MEMORY_V2 = 2 << 24 | 40
PERFORMANCE_STATE_UNKNOWN = 32

CLOCKS_EVENT_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

Values = Iterator[tuple[tuple[str, ...], float]]
Convert = Callable[[Any], Values]
Unit = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Field:
    """A quantity: `convert` turns what `call(*args)` answers into (further label values, value) pairs."""

    metric: Metric
    call: str
    args: tuple[int, ...]
    convert: Convert


def percent(value: float) -> float:
    """Percent to ratio; divided, not multiplied, so that 57 becomes 0.57."""
    return value / 100


def milli(value: float) -> float:
    """Thousandths (mW, mJ) to the base unit."""
    return value / 1000


def mega(value: float) -> float:
    """MHz to Hz."""
    return value * 1e6


def number(unit: Unit = float, *labels: str) -> Convert:
    """Take the answer itself."""

    def convert(answer: Any) -> Values:
        yield labels, unit(answer)

    return convert


def member(key: str | int, unit: Unit = float, *labels: str) -> Convert:
    """Take one member of a struct, or one element of a list."""

    def convert(answer: Any) -> Values:
        yield labels, unit(answer[key])

    return convert


def reasons(mask: int) -> Values:
    """Spread the clocks-event mask over one 0/1 value a reason; bits without a name count as `other`."""
    for bit, reason in CLOCKS_EVENT_REASONS.items():
        yield (reason,), float(bool(mask & bit))
    yield ("other",), float(bool(mask & ~sum(CLOCKS_EVENT_REASONS)))


def performance_state(state: int) -> Values:
    """Yield P0 to P15; an unknown state is not a number."""
    if state != PERFORMANCE_STATE_UNKNOWN:
        yield (), float(state)


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"solpi_gpu_{name}", help_text, Kind.GAUGE, GPU + labels)


UTILIZATION = _gauge(
    "utilization_ratio",
    "Share of NVML's last sample period in which any kernel ran, however small (nvmlDeviceGetUtilizationRates).",
)
MEMORY_CONTROLLER = _gauge(
    "memory_controller_utilization_ratio",
    "Share of NVML's last sample period in which memory was read or written (nvmlDeviceGetUtilizationRates).",
)
MEMORY_TOTAL = _gauge("memory_total_bytes", "Size of the GPU's memory (nvmlDeviceGetMemoryInfo v2).")
MEMORY_USED = _gauge("memory_used_bytes", "Memory allocated by processes (nvmlDeviceGetMemoryInfo v2).")
MEMORY_FREE = _gauge("memory_free_bytes", "Memory free to allocate (nvmlDeviceGetMemoryInfo v2).")
MEMORY_RESERVED = _gauge("memory_reserved_bytes", "Memory held by the driver (nvmlDeviceGetMemoryInfo v2).")
POWER = _gauge("power_watts", "Power drawn by the board, a 1 s mean on recent GPUs (nvmlDeviceGetPowerUsage).")
POWER_LIMIT = _gauge("power_limit_watts", "Power limit in force (nvmlDeviceGetEnforcedPowerLimit).")
ENERGY = Metric(
    "solpi_gpu_energy_joules_total",
    "Energy used since the driver was loaded (nvmlDeviceGetTotalEnergyConsumption).",
    Kind.COUNTER,
    GPU,
)
TEMPERATURE = _gauge("temperature_celsius", "Temperature (nvmlDeviceGetTemperature).", "sensor")
CLOCK = _gauge("clock_hertz", "Present clock of a domain (nvmlDeviceGetClockInfo).", "domain")
CLOCKS_EVENT = _gauge(
    "clocks_event_active",
    "1 while this reason holds the clocks down (nvmlDeviceGetCurrentClocksEventReasons).",
    "reason",
)
PERFORMANCE_STATE = _gauge("performance_state", "0 is fastest, 15 slowest (nvmlDeviceGetPerformanceState).")
PERSISTENCE_MODE = _gauge(
    "persistence_mode_enabled", "1 if the driver stays loaded without clients (nvmlDeviceGetPersistenceMode)."
)
ECC_ENABLED = _gauge("ecc_enabled", "1 if ECC is on, now or from the next boot (nvmlDeviceGetEccMode).", "when")
LINK_GENERATION = _gauge("pcie_link_generation", "Present PCIe generation (nvmlDeviceGetCurrPcieLinkGeneration).")
LINK_WIDTH = _gauge("pcie_link_width", "Present number of PCIe lanes (nvmlDeviceGetCurrPcieLinkWidth).")

FIELDS: tuple[Field, ...] = (
    Field(UTILIZATION, "nvmlDeviceGetUtilizationRates", (), member("gpu", percent)),
    Field(MEMORY_CONTROLLER, "nvmlDeviceGetUtilizationRates", (), member("memory", percent)),
    Field(MEMORY_TOTAL, "nvmlDeviceGetMemoryInfo", (MEMORY_V2,), member("total")),
    Field(MEMORY_USED, "nvmlDeviceGetMemoryInfo", (MEMORY_V2,), member("used")),
    Field(MEMORY_FREE, "nvmlDeviceGetMemoryInfo", (MEMORY_V2,), member("free")),
    Field(MEMORY_RESERVED, "nvmlDeviceGetMemoryInfo", (MEMORY_V2,), member("reserved")),
    Field(POWER, "nvmlDeviceGetPowerUsage", (), number(milli)),
    Field(POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", (), number(milli)),
    Field(ENERGY, "nvmlDeviceGetTotalEnergyConsumption", (), number(milli)),
    Field(TEMPERATURE, "nvmlDeviceGetTemperature", (TEMPERATURE_GPU,), number(float, "gpu")),
    *(Field(CLOCK, "nvmlDeviceGetClockInfo", (code,), number(mega, domain)) for domain, code in CLOCK_DOMAINS.items()),
    Field(CLOCKS_EVENT, "nvmlDeviceGetCurrentClocksEventReasons", (), reasons),
    Field(PERFORMANCE_STATE, "nvmlDeviceGetPerformanceState", (), performance_state),
    Field(PERSISTENCE_MODE, "nvmlDeviceGetPersistenceMode", (), number()),
    Field(ECC_ENABLED, "nvmlDeviceGetEccMode", (), member(0, float, "current")),
    Field(ECC_ENABLED, "nvmlDeviceGetEccMode", (), member(1, float, "pending")),
    Field(LINK_GENERATION, "nvmlDeviceGetCurrPcieLinkGeneration", (), number()),
    Field(LINK_WIDTH, "nvmlDeviceGetCurrPcieLinkWidth", (), number()),
)
