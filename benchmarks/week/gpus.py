"""What is said of GPUs: healthy ones, with corrected errors, a program's XID and a power limit that is reached."""

import random
from collections.abc import Iterator, Sequence

from benchmarks.week.faults import LOST, Fault
from benchmarks.week.fleet import SEED, Course, Host
from benchmarks.week.series import Named, each, named, total

STATES = ("lost", "hung", "reset_required", "no_permission", "driver_mismatch", "driver_absent", "quiesced")
# A moment of each is nothing: one poll in two hundred.
FLICKER = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
CORRECTED = 15 * 60  # minutes from one corrected error to the next
XIDS = {13: ("application", "restart_app"), 31: ("application", "restart_app")}
COMPILES = 3  # last minutes of a start, in which the GPU is busy without a token


def gpus(host: Host, courses: Sequence[Course], minutes: int, fault: Fault | None) -> Iterator[Named]:
    """Yield the series of a host's GPUs."""
    yield "solpi_gpus_expected", [float(host.gpus)] * minutes
    yield "solpi_cuda_driver_version", [13.0] * minutes
    yield named("solpi_cuda_toolkit_version", user="probe", server=""), [12.8] * minutes
    for xid, (kind, action) in XIDS.items():
        yield named("solpi_xid_info", xid=str(xid), **{"class": kind}, action=action), [1.0] * minutes
    for index in range(host.gpus):
        yield from _gpu(host, index, _busy(courses, index, minutes), fault)
    for one in courses:
        toolkit = named("solpi_cuda_toolkit_version", user="engine", server=one.server.name)
        yield toolkit, [None if load is None else 12.8 for load in one.load]
        for index in one.server.gpus:
            on = named("solpi_engine_gpu_info", server=one.server.name, uuid=uuid(host, index))
            yield on, [None if load is None else 1.0 for load in one.load]


def uuid(host: Host, index: int) -> str:
    """Return a GPU's UUID."""
    return f"GPU-{host.name}-{index}"


def _busy(courses: Sequence[Course], index: int, minutes: int) -> list[float]:
    """Return how busy a GPU is: with its server's load, and all the time while that compiles."""
    (own,) = (course.load for course in courses if index in course.server.gpus)
    busy = []
    for minute, load in enumerate(own):
        ahead = own[min(minute + COMPILES, minutes - 1)]
        compiles = 0.98 if ahead is not None else 0.0
        busy.append(compiles if load is None else 0.0 if load == 0 else min(1.0, 0.25 + load))
    return busy


def _gpu(host: Host, index: int, busy: Sequence[float], fault: Fault | None) -> Iterator[Named]:
    on = {"gpu": str(index), "uuid": uuid(host, index)}
    minutes = len(busy)
    lost = [fault is LOST and index == 0 and LOST.is_on(host.name, minute) for minute in range(minutes)]
    yield named("solpi_gpu_state", **on, state="ok"), [float(not gone) for gone in lost]
    for state in STATES:
        yield named("solpi_gpu_state", **on, state=state), [float(gone and state == "lost") for gone in lost]
    yield named("solpi_gpu_info", **on, model="NVIDIA H200"), [1.0] * minutes
    for name, said in _readings(host, on, busy):
        yield name, [None if gone else value for value, gone in zip(said, lost, strict=True)]
    for minute, xid in host.xids if index == 0 else ():
        seen = [60.0 * minute if now >= minute else None for now in range(minutes)]
        yield named("solpi_gpu_xid_last_timestamp_seconds", **on, xid=str(xid)), seen


def _readings(host: Host, on: dict[str, str], busy: Sequence[float]) -> Iterator[Named]:
    dice = random.Random(f"{SEED} {on['uuid']}")
    minutes = len(busy)
    yield named("solpi_gpu_utilization_ratio", **on), [round(share, 2) for share in busy]
    yield named("solpi_gpu_energy_joules_total", **on), total(float(6000 + round(36000 * share)) for share in busy)
    yield named("solpi_gpu_persistence_mode_enabled", **on), [1.0] * minutes
    yield named("solpi_gpu_ecc_enabled", **on, when="current"), [1.0] * minutes
    yield named("solpi_gpu_recovery_action", **on), [0.0] * minutes
    yield named("solpi_gpu_row_remap_pending", **on), [0.0] * minutes
    yield named("solpi_gpu_row_remap_failure", **on), [0.0] * minutes
    errors = "solpi_gpu_ecc_errors_total"
    yield (
        named(errors, **on, severity="corrected", scope="volatile"),
        each(minutes, lambda now: float(now // CORRECTED)),
    )
    yield named(errors, **on, severity="uncorrected", scope="volatile"), [0.0] * minutes
    held = "solpi_gpu_clocks_event_active"
    for reason in FLICKER:
        yield named(held, **on, reason=reason), [float(dice.random() < 0.005) for _ in busy]
    yield named(held, **on, reason="sw_power_cap"), [float(share > 0.9) for share in busy]
