"""The table of GPU quantities: one row each, with where NVML has it, how often it is asked, and its conversion.

Conversion to base units is written here and nowhere else. A row that a GPU does not support yields nothing.
"""

from collections.abc import Iterator

from solpi_exporter.gpu.origins import (
    Activity,
    Call,
    Field,
    FieldValue,
    Tier,
    Values,
    mega,
    member,
    milli,
    nano,
    number,
    percent,
)
from solpi_exporter.metric import Kind, Metric

GPU = ("gpu", "uuid", "gpu_instance")

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
    0x200: "board_limit",
    0x400: "reliability",
}
# Field values that count the nanoseconds for which a reason held the clocks down.
CLOCKS_EVENT_FIELDS = {
    74: "sw_power_cap",
    76: "sync_boost",
    269: "sw_thermal_slowdown",
    270: "hw_thermal_slowdown",
    271: "hw_power_brake_slowdown",
}


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


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(f"solpi_gpu_{name}", help_text, Kind.COUNTER, GPU + labels)


UTILIZATION = _gauge(
    "utilization_ratio",
    "Share of NVML's last sample period in which any kernel or copy ran, however small; 1 does not mean full.",
)
MEMORY_CONTROLLER = _gauge(
    "memory_controller_utilization_ratio", "Share of NVML's last sample period in which memory was read or written."
)
MEMORY_TOTAL = _gauge("memory_total_bytes", "Size of the GPU's memory.")
MEMORY_USED = _gauge("memory_used_bytes", "Memory allocated by processes.")
MEMORY_FREE = _gauge("memory_free_bytes", "Memory free to allocate.")
MEMORY_RESERVED = _gauge("memory_reserved_bytes", "Memory held by the driver.")
POWER = _gauge("power_watts", "Power drawn, a mean over a second on recent GPUs.")
POWER_INSTANT = _gauge("power_instant_watts", "Power drawn at the instant of the poll.")
POWER_LIMIT = _gauge("power_limit_watts", "Power limit in force.")
ENERGY = _counter("energy_joules_total", "Energy used since the driver was loaded.")
TEMPERATURE = _gauge(
    "temperature_celsius", "Temperature of the chip, and of its memory where it has a sensor.", "sensor"
)
CLOCK = _gauge("clock_hertz", "Present clock of a domain.", "domain")
CLOCK_MAX = _gauge("clock_max_hertz", "Highest clock of a domain.", "domain")
CLOCKS_EVENT = _gauge("clocks_event_active", "1 while this reason holds the clocks down.", "reason")
CLOCKS_EVENT_SECONDS = _counter(
    "clocks_event_seconds_total",
    "Time for which this reason held the clocks down, since the driver was loaded.",
    "reason",
)
PERFORMANCE_STATE = _gauge("performance_state", "0 is fastest, 15 slowest.")
PERSISTENCE_MODE = _gauge("persistence_mode_enabled", "1 if the driver stays loaded without clients.")
COMPUTE_MODE = _gauge("compute_mode", "Who may use the GPU: 0 everybody, 1 one thread, 2 nobody, 3 one process.")
MIG_MODE = _gauge("mig_mode_enabled", "1 if MIG is on, now or from the next reset.", "when")
ECC_ENABLED = _gauge("ecc_enabled", "1 if ECC is on, now or from the next boot.", "when")
ECC_ERRORS = _counter(
    "ecc_errors_total", "Memory errors: volatile since the driver was loaded, aggregate ever.", "severity", "scope"
)
ROW_REMAPS = _counter("row_remaps_total", "Rows of memory replaced by spare ones, ever.", "severity")
ROW_REMAP_PENDING = _gauge("row_remap_pending", "1 if a row is to be replaced at the next reset.")
ROW_REMAP_FAILURE = _gauge("row_remap_failure", "1 if a row could not be replaced: the GPU is due for exchange.")
RECOVERY_ACTION = _gauge(
    "recovery_action",
    "What the driver asks for: 0 nothing, 1 reset the GPU, 2 reboot the node, 3 drain P2P, 4 drain and reset, "
    "5 recover the IMEX domain, 6 reset the GPU's PCIe bus, 7 reboot the system.",
)
PCIE_REPLAYS = _counter("pcie_replays_total", "Packets that were sent again over PCIe since the driver was loaded.")
LINK_GENERATION = _gauge("pcie_link_generation", "Present PCIe generation; a GPU that idles may lower it.")
LINK_WIDTH = _gauge("pcie_link_width", "Present number of PCIe lanes.")
LINK_GENERATION_MAX = _gauge("pcie_link_max_generation", "Highest PCIe generation of GPU and slot together.")
LINK_WIDTH_MAX = _gauge("pcie_link_max_width", "Highest number of PCIe lanes of GPU and slot together.")
GRAPHICS_ACTIVE = _gauge("graphics_active_ratio", "Share of the time since the poll before in which a kernel ran.")
SM_ACTIVE = _gauge("sm_active_ratio", "Mean share of SMs with work, over the time since the poll before.")
SM_OCCUPANCY = _gauge("sm_occupancy_ratio", "Mean share of warp slots in use, over the time since the poll before.")
TENSOR_ACTIVE = _gauge("tensor_active_ratio", "Mean use of the tensor cores, over the time since the poll before.")
DRAM_ACTIVE = _gauge("dram_active_ratio", "Mean use of memory bandwidth, over the time since the poll before.")

GRAPHICS_ACTIVITY = Activity(1)
UTILIZATION_RATES = Call("nvmlDeviceGetUtilizationRates")
_MEMORY = Call("nvmlDeviceGetMemoryInfo", (MEMORY_V2,))
_MIG_MODE = Call("nvmlDeviceGetMigMode")
_ECC_MODE = Call("nvmlDeviceGetEccMode")
_REMAPS = Call("nvmlDeviceGetRemappedRows")
_ECC_SEVERITIES = ("corrected", "uncorrected")
_ECC_SCOPES = ("volatile", "aggregate")


def _each_domain(metric: Metric, call: str, tier: Tier) -> Iterator[Field]:
    for domain, code in CLOCK_DOMAINS.items():
        yield Field(metric, Call(call, (code,)), number(mega, domain), tier)


def _ecc_errors() -> Iterator[Field]:
    for severity, severity_name in enumerate(_ECC_SEVERITIES):
        for scope, scope_name in enumerate(_ECC_SCOPES):
            call = Call("nvmlDeviceGetTotalEccErrors", (severity, scope))
            yield Field(ECC_ERRORS, call, number(float, severity_name, scope_name), Tier.SLOW)


FIELDS: tuple[Field, ...] = (
    Field(UTILIZATION, UTILIZATION_RATES, member("gpu", percent)),
    Field(MEMORY_CONTROLLER, UTILIZATION_RATES, member("memory", percent)),
    Field(MEMORY_TOTAL, _MEMORY, member("total"), instances=True),
    Field(MEMORY_USED, _MEMORY, member("used"), instances=True),
    Field(MEMORY_FREE, _MEMORY, member("free"), instances=True),
    Field(MEMORY_RESERVED, _MEMORY, member("reserved"), instances=True),
    Field(POWER, Call("nvmlDeviceGetPowerUsage"), number(milli)),
    Field(POWER_INSTANT, FieldValue(186), number(milli), Tier.MEAN, "Ampere"),
    Field(POWER_LIMIT, Call("nvmlDeviceGetEnforcedPowerLimit"), number(milli), Tier.SLOW),
    Field(ENERGY, Call("nvmlDeviceGetTotalEnergyConsumption"), number(milli), Tier.DEAR, "Volta"),
    Field(TEMPERATURE, Call("nvmlDeviceGetTemperature", (TEMPERATURE_GPU,)), number(float, "gpu"), Tier.MEAN),
    Field(TEMPERATURE, FieldValue(82), number(float, "memory"), Tier.MEAN, "Volta"),
    *_each_domain(CLOCK, "nvmlDeviceGetClockInfo", Tier.MEAN),
    *_each_domain(CLOCK_MAX, "nvmlDeviceGetMaxClockInfo", Tier.RARE),
    Field(CLOCKS_EVENT, Call("nvmlDeviceGetCurrentClocksEventReasons"), reasons),
    *(
        Field(CLOCKS_EVENT_SECONDS, FieldValue(field), number(nano, reason), Tier.DEAR)
        for field, reason in CLOCKS_EVENT_FIELDS.items()
    ),
    Field(PERFORMANCE_STATE, Call("nvmlDeviceGetPerformanceState"), performance_state, Tier.MEAN),
    Field(PERSISTENCE_MODE, Call("nvmlDeviceGetPersistenceMode"), number(), Tier.SLOW),
    Field(COMPUTE_MODE, Call("nvmlDeviceGetComputeMode"), number(), Tier.SLOW),
    Field(MIG_MODE, _MIG_MODE, member(0, float, "current"), Tier.SLOW, "Ampere"),
    Field(MIG_MODE, _MIG_MODE, member(1, float, "pending"), Tier.SLOW, "Ampere"),
    Field(ECC_ENABLED, _ECC_MODE, member(0, float, "current"), Tier.SLOW),
    Field(ECC_ENABLED, _ECC_MODE, member(1, float, "pending"), Tier.SLOW),
    *_ecc_errors(),
    Field(ROW_REMAPS, _REMAPS, member(0, float, "correctable"), Tier.SLOW, "Ampere"),
    Field(ROW_REMAPS, _REMAPS, member(1, float, "uncorrectable"), Tier.SLOW, "Ampere"),
    Field(ROW_REMAP_PENDING, _REMAPS, member(2), Tier.SLOW, "Ampere"),
    Field(ROW_REMAP_FAILURE, _REMAPS, member(3), Tier.SLOW, "Ampere"),
    Field(RECOVERY_ACTION, FieldValue(230), number(), Tier.MEAN, "Ampere"),
    Field(PCIE_REPLAYS, Call("nvmlDeviceGetPcieReplayCounter"), number(), Tier.SLOW),
    Field(LINK_GENERATION, Call("nvmlDeviceGetCurrPcieLinkGeneration"), number(), Tier.SLOW),
    Field(LINK_WIDTH, Call("nvmlDeviceGetCurrPcieLinkWidth"), number(), Tier.SLOW),
    Field(LINK_GENERATION_MAX, Call("nvmlDeviceGetMaxPcieLinkGeneration"), number(), Tier.RARE),
    Field(LINK_WIDTH_MAX, Call("nvmlDeviceGetMaxPcieLinkWidth"), number(), Tier.RARE),
    Field(GRAPHICS_ACTIVE, GRAPHICS_ACTIVITY, number(percent), Tier.MEAN, "Hopper", instances=True),
    Field(SM_ACTIVE, Activity(2), number(percent), Tier.MEAN, "Hopper", instances=True),
    Field(SM_OCCUPANCY, Activity(3), number(percent), Tier.MEAN, "Hopper", instances=True),
    Field(TENSOR_ACTIVE, Activity(5), number(percent), Tier.MEAN, "Hopper", instances=True),
    Field(DRAM_ACTIVE, Activity(10), number(percent), Tier.MEAN, "Hopper", instances=True),
)
