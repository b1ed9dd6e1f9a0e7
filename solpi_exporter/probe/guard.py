"""Whether the probe may run on a GPU as it is now, or would do harm there or measure nothing: asked before each cycle.

The GPU's conditions come from outside, since probe/ knows nothing of gpu/. What is not known never skips a cycle.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

NOT_READ = "not read yet"  # a state: nobody has looked so far
GB = 1e9
MARGIN = 1 * GB  # bytes that stay free, for what an engine allocates beyond its share
MARGIN_RATIO = 0.03  # of the card, where that is more
SETTLED_SECONDS = 120.0  # without a move of memory after which no engine is starting

COMPUTE_MODES = MappingProxyType({1: "exclusive to a thread", 2: "prohibited", 3: "exclusive to a process"})
# As NVML names the reasons, in gpu/fields.py. An idle GPU, and one whose clocks somebody has set, are not throttled.
# Nor is one at its power limit: under a heavy load that is usual, and there above all a split is wanted.
THROTTLING = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
RESET = "solpi-exporter quiesce, nvidia-smi --gpu-reset, solpi-exporter resume"
# By nvmlDeviceGpuRecoveryAction_t; up to 4 as NVIDIA's "GPU Memory Error Management" explains them.
RECOVERIES = MappingProxyType(
    {
        1: RESET,
        2: "reboot the host",
        3: "end what does peer-to-peer transfers; it then asks for something else",
        4: f"drain the GPU, then {RESET}",
        5: "recover its IMEX domain",
        6: "reset its PCIe bus",
        7: "reboot the system",
    }
)


@dataclass(frozen=True, slots=True)
class Conditions:
    """One GPU, None for what is not known of it.

    `state` says what is wrong with it as a whole, None where nothing is. `free` and `total` are bytes, `compute_mode`
    and `recovery_action` NVML's numbers. `mps` says that an MPS server runs, `mig_changing` that another MIG mode waits
    for a reset. `clock_reasons` are all that hold the clocks down. `still` is the seconds since another process's
    memory moved, None also where it was never seen to.
    """

    state: str | None = None
    free: float | None = None
    total: float | None = None
    compute_mode: int | None = None
    mps: bool | None = None
    mig_changing: bool | None = None
    recovery_action: int | None = None
    row_remap_pending: bool | None = None
    clock_reasons: frozenset[str] | None = None
    still: float | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a cycle is left out: one of REASONS, and a line that says what was found, the limit, and what helps."""

    reason: str
    message: str


def skip(conditions: Conditions, footprint: float) -> Skip | None:
    """Return why the probe must not run now, None where it may.

    `footprint` is what it has yet to allocate, in bytes: 0 once it holds its memory.
    """
    for reason, rule in REASONS.items():
        message = rule(conditions, footprint)
        if message is not None:
            return Skip(reason, message)
    return None


def _starting(now: Conditions, _: float) -> str | None:
    return None if now.state != NOT_READ else "the GPU was not read yet, and must be first: wait a few seconds"


def _gpu_state(now: Conditions, _: float) -> str | None:
    if now.state is None:
        return None
    return f"the GPU is {now.state}, and must answer: see solpi_gpu_state and docs/gpu.md; it is tried again"


def _recovery(now: Conditions, _: float) -> str | None:
    if now.recovery_action:
        remedy = RECOVERIES.get(now.recovery_action, "look it up as nvmlDeviceGpuRecoveryAction_t")
        return f"the driver asks for recovery action {now.recovery_action}, where 0 is none: {remedy}"
    if now.row_remap_pending:
        return f"a row of the GPU's memory waits for being replaced, where none should, until a reset: {RESET}"
    return None


def _mig(now: Conditions, _: float) -> str | None:
    if not now.mig_changing:
        return None
    return (
        f"the GPU's pending MIG mode is not the current one, as it should be: {RESET}; or set it back: nvidia-smi -mig"
    )


def _compute_mode(now: Conditions, _: float) -> str | None:
    if now.compute_mode is None or now.compute_mode not in COMPUTE_MODES:
        return None
    found = f"the GPU's compute mode is {now.compute_mode} ({COMPUTE_MODES[now.compute_mode]})"
    return f"{found}, where others can use the GPU beside the probe in 0 only: nvidia-smi -c 0, or run with --no-probe"


def _mps(now: Conditions, _: float) -> str | None:
    if not now.mps:
        return None
    return (
        "an MPS server runs, where none may: as its client the probe could take an engine down with a fault of its "
        "own; run with --no-probe, or end it: echo quit | nvidia-cuda-mps-control"
    )


def _memory(now: Conditions, footprint: float) -> str | None:
    """Before anything is allocated only: later, memory that is short is not the probe's doing and none of its needs."""
    margin = max(MARGIN, MARGIN_RATIO * (now.total or 0.0))
    if now.free is None or footprint <= 0 or now.free >= footprint + margin:
        return None
    return (
        f"{now.free / GB:.1f} GB of GPU memory are free, and {(footprint + margin) / GB:.1f} GB must be (the probe's "
        f"{footprint / GB:.1f} and a margin): choose a smaller probe.shape, or leave it more room (vLLM: lower "
        "--gpu-memory-utilization)"
    )


def _throttled(now: Conditions, _: float) -> str | None:
    active = [reason for reason in THROTTLING if reason in (now.clock_reasons or ())]
    if not active:
        return None
    return (
        f"the GPU's clocks are held down by {', '.join(active)}, where nothing may: see to its cooling and power supply"
    )


def _memory_moving(now: Conditions, _: float) -> str | None:
    if now.still is None or now.still >= SETTLED_SECONDS:
        return None
    return (
        f"another process's GPU memory moved {now.still:.0f} s ago, less than {SETTLED_SECONDS:.0f}: an engine may be "
        "starting, which must not see the probe's memory move; nothing to do, it is tried again"
    )


STARTING = "starting"

# In this order the first that holds is told: those that last until somebody acts before those that pass.
REASONS: Mapping[str, Callable[[Conditions, float], str | None]] = MappingProxyType(
    {
        STARTING: _starting,
        "gpu_state": _gpu_state,
        "recovery": _recovery,
        "mig": _mig,
        "compute_mode": _compute_mode,
        "mps": _mps,
        "memory": _memory,
        "throttled": _throttled,
        "memory_moving": _memory_moving,
    }
)
