"""What NVIDIA's XID codes mean: code -> class, action, meaning. A plain table that `gpu/events.py` reads and publishes.

Codes and actions follow NVIDIA's catalogue for Ampere and later (docs.nvidia.com/deploy/xid-errors), its column
"immediate action"; the words are ours. Codes it calls unused are left out; a code that is not here is "unknown".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from solpi_exporter.metric import Metric, Sample

INFO = Metric(
    "solpi_xid_info",
    "Constant 1; class and recommended action of each XID code that NVIDIA documents, to be joined on xid.",
    labels=("xid", "class", "action"),
)


class Class(StrEnum):
    """The part that failed, as far as NVIDIA names it."""

    APPLICATION = "application"  # one program's work failed, mostly by its own doing; the GPU goes on
    MEMORY = "memory"  # HBM, caches, registers: what ECC watches
    LINK = "link"  # NVLink, C2C, PCIe traffic
    FIRMWARE = "firmware"  # GSP and the engines' firmware
    HARDWARE = "hardware"  # the GPU as a whole
    DRIVER = "driver"  # kernel driver and the rest of the software
    POWER = "power"
    INFORMATION = "information"  # says something about another event, or nothing
    UNKNOWN = "unknown"


class Action(StrEnum):
    """What to do first. NVIDIA's second step is in most cases its support."""

    NONE = "none"
    FOLLOW_OTHER = "follow_other_xid"  # a consequence of, or an addition to, another code at the same time
    FOLLOW_RECOVERY = "follow_recovery_action"  # what the driver's recovery action says
    RESTART_APP = "restart_app"
    RESTART_VM = "restart_vm"
    RESET_GPU = "reset_gpu"
    REBOOT_HOST = "reboot_host"
    CHECK_LINK = "check_link"
    CHECK_MECHANICALS = "check_mechanicals"
    CHECK_POWER = "check_power"
    UPDATE_SOFTWARE = "update_software"
    CONTACT_SUPPORT = "contact_support"
    LOOK_UP = "look_up"  # NVIDIA names no action, or we do not know the code


@dataclass(frozen=True, slots=True)
class Xid:
    """One row: `kind` is the label `class`, `meaning` a few words for the log."""

    code: int
    kind: Class
    action: Action
    meaning: str


# Engines by number: a fault of one ends the program that used it.
_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135)
_VIDEO_DECODERS = (68, 83, 84, 88, 89, 96, 97, 98)
_JPEG_DECODERS = (82, 99, 100, 101, 102, 103, 104, 105)
_OPTICAL_FLOW = (86, 139)


def _engines(name: str, codes: tuple[int, ...]) -> Iterator[Xid]:
    for number, code in enumerate(codes):
        yield Xid(code, Class.APPLICATION, Action.RESTART_APP, f"{name} {number} failed")


# fmt: off
ROWS = (
    Xid(8, Class.APPLICATION, Action.RESTART_APP, "a channel made no progress"),
    Xid(11, Class.APPLICATION, Action.RESTART_APP, "broken command stream"),
    Xid(13, Class.APPLICATION, Action.RESTART_APP, "a kernel did what it must not: out of bounds, illegal instruction"),
    Xid(25, Class.APPLICATION, Action.RESTART_APP, "illegal command stream"),
    Xid(31, Class.APPLICATION, Action.RESTART_APP, "a program touched memory that is not mapped"),
    Xid(43, Class.APPLICATION, Action.NONE, "a program's channel was stopped for a fault of its own"),
    Xid(45, Class.APPLICATION, Action.FOLLOW_OTHER, "channels removed after a program was killed or another error"),
    Xid(60, Class.APPLICATION, Action.RESTART_APP, "security engine (SEC2) exception"),
    Xid(69, Class.APPLICATION, Action.RESTART_APP, "compute engine got a command that its class does not know"),
    Xid(109, Class.APPLICATION, Action.RESET_GPU, "switching between contexts timed out"),
    Xid(137, Class.APPLICATION, Action.NONE, "illegal access to a peer's memory over NVLink"),
    Xid(141, Class.APPLICATION, Action.NONE, "error on CUDA's fast path"),
    Xid(142, Class.APPLICATION, Action.CONTACT_SUPPORT, "video encoder 3 failed"),
    *_engines("copy engine", _COPY_ENGINES),
    *_engines("video decoder", _VIDEO_DECODERS),
    *_engines("JPEG decoder", _JPEG_DECODERS),
    *_engines("optical flow engine", _OPTICAL_FLOW),

    Xid(48, Class.MEMORY, Action.RESET_GPU, "uncorrectable ECC error; with 63 or 64, drain first"),
    Xid(63, Class.MEMORY, Action.NONE, "a bad memory row was noted for remapping; active after the next reset"),
    Xid(64, Class.MEMORY, Action.RESET_GPU, "a bad memory row could not be remapped"),
    Xid(92, Class.MEMORY, Action.NONE, "many correctable ECC errors"),
    Xid(94, Class.MEMORY, Action.RESTART_APP, "memory error contained to one program; reset when convenient"),
    Xid(95, Class.MEMORY, Action.RESET_GPU, "memory error that may have reached several programs"),
    Xid(140, Class.MEMORY, Action.RESET_GPU, "uncorrectable ECC error that the driver could not handle"),
    Xid(156, Class.MEMORY, Action.RESET_GPU, "a faulty resource was retired"),
    Xid(157, Class.MEMORY, Action.NONE, "a faulty resource could not be retired: no spare left; may come again"),
    Xid(160, Class.MEMORY, Action.NONE, "a memory channel was retired"),
    Xid(161, Class.MEMORY, Action.NONE, "a memory channel could not be retired"),
    Xid(168, Class.MEMORY, Action.REBOOT_HOST, "errors in protected memory with ECC off: switch ECC on"),
    Xid(171, Class.MEMORY, Action.FOLLOW_OTHER, "beside 48: the error was in DRAM"),
    Xid(172, Class.MEMORY, Action.FOLLOW_OTHER, "beside 48: the error was in SRAM"),

    Xid(32, Class.LINK, Action.RESTART_APP, "command stream damaged, mostly on PCIe"),
    Xid(74, Class.LINK, Action.CHECK_LINK, "NVLink error, here or at the other end"),
    Xid(80, Class.LINK, Action.RESTART_APP, "commands arrived with a wrong checksum"),
    Xid(121, Class.LINK, Action.NONE, "corrected errors on the C2C link to the CPU"),
    Xid(136, Class.LINK, Action.RESET_GPU, "NVLink training failed"),
    Xid(144, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (SAW)"),
    Xid(145, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (RLW)"),
    Xid(146, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (TLW)"),
    Xid(147, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (TREX)"),
    Xid(148, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (NVLPW control)"),
    Xid(149, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (NETIR)"),
    Xid(150, Class.LINK, Action.CHECK_LINK, "NVLink 5 error (MSE)"),
    Xid(155, Class.LINK, Action.RESET_GPU, "NVLink taken down by software"),
    Xid(159, Class.LINK, Action.CONTACT_SUPPORT, "C2C error without data"),
    Xid(166, Class.LINK, Action.LOOK_UP, "confidential traffic on an NVLink not yet set up for it"),
    Xid(167, Class.LINK, Action.LOOK_UP, "fatal time-out on PCIe"),
    Xid(170, Class.LINK, Action.LOOK_UP, "NVLink interrupt in confidential mode"),

    Xid(37, Class.FIRMWARE, Action.NONE, "engine firmware got a method that it does not know"),
    Xid(38, Class.FIRMWARE, Action.NONE, "engine firmware timed out"),
    Xid(119, Class.FIRMWARE, Action.RESET_GPU, "GSP firmware did not answer in time"),
    Xid(120, Class.FIRMWARE, Action.RESET_GPU, "GSP firmware failed"),

    # NVIDIA calls 61 unused from Ampere on; earlier data-centre GPUs report it.
    Xid(61, Class.HARDWARE, Action.CONTACT_SUPPORT, "internal micro-controller stopped at a breakpoint"),
    Xid(62, Class.HARDWARE, Action.RESET_GPU, "internal micro-controller (PMU) halted"),
    Xid(79, Class.HARDWARE, Action.REBOOT_HOST, "the GPU fell off the bus"),
    Xid(110, Class.HARDWARE, Action.RESET_GPU, "security fault; rare without broken hardware"),
    Xid(143, Class.HARDWARE, Action.RESET_GPU, "the GPU could not be initialised"),
    Xid(158, Class.HARDWARE, Action.RESET_GPU, "fatal time-out inside the GPU"),
    Xid(169, Class.HARDWARE, Action.LOOK_UP, "internal micro-controller (SEC2) halted"),

    Xid(44, Class.DRIVER, Action.NONE, "compute engine fault while switching contexts"),
    Xid(46, Class.DRIVER, Action.RESET_GPU, "the GPU stopped working on what it was given"),
    Xid(66, Class.DRIVER, Action.NONE, "illegal register access by the driver"),
    Xid(67, Class.DRIVER, Action.NONE, "illegal access by the driver"),
    Xid(78, Class.DRIVER, Action.UPDATE_SOFTWARE, "a vGPU could not start"),
    Xid(151, Class.DRIVER, Action.RESTART_VM, "key rotation failed (confidential computing)"),

    Xid(54, Class.POWER, Action.CHECK_MECHANICALS, "auxiliary power is not plugged in"),
    Xid(162, Class.POWER, Action.NONE, "power smoothing is on again"),
    Xid(163, Class.POWER, Action.NONE, "power smoothing is off, for heat or a time-out"),
    Xid(164, Class.POWER, Action.CHECK_POWER, "power smoothing is near the end of its life"),
    Xid(165, Class.POWER, Action.CHECK_POWER, "power smoothing is worn out: loads will swing"),

    Xid(93, Class.INFORMATION, Action.NONE, "InfoROM write limit reached, as it was set"),
    Xid(106, Class.INFORMATION, Action.NONE, "test message of the management bus"),
    Xid(107, Class.INFORMATION, Action.NONE, "silent test message of the management bus"),
    Xid(154, Class.INFORMATION, Action.FOLLOW_RECOVERY, "the recovery action changed; sums up other codes"),
)
# fmt: on

CATALOGUE: Mapping[int, Xid] = MappingProxyType({row.code: row for row in ROWS})

# Counters that exist from the start, for increase() misses a counter that is born at 1. Few, since each is a series a
# GPU: faults of memory, link, firmware and the GPU itself on Ampere to Blackwell (where 145 and 149 stand for 74), and
# 154, which accompanies every fault after which the driver asks for a reset or reboot.
CRITICAL = (48, 62, 64, 74, 79, 94, 95, 119, 120, 140, 143, 145, 149, 154)


def look_up(code: int) -> Xid:
    """Return the code's row; one of class "unknown" for a code that is not in the table."""
    return CATALOGUE.get(code) or Xid(code, Class.UNKNOWN, Action.LOOK_UP, "not in this exporter's catalogue")


@dataclass(frozen=True, slots=True)
class CatalogueReading:
    """The table as a reading, the same for every GPU."""

    def samples(self) -> Iterator[Sample]:
        """Yield one series a row."""
        for row in ROWS:
            yield INFO.sample(1.0, str(row.code), row.kind.value, row.action.value)
