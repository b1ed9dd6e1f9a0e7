"""What the GPU half needs of NVML: the calls, plain values, and errors sorted into what they mean for us.

`gpu/nvml.py` answers them from the real library, `gpu/replay.py` from a recording, so everything above runs without a
GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from solpi_exporter.source import Reading, SourceAbsent, SourceError

# Codes of NVML that this package tells apart, written out since a recording and a fake have no NVML.
NOT_SUPPORTED = 3
NO_PERMISSION = 4
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
NO_DATA = 21
NOT_READY = 27
UNKNOWN = 999
GONE = {GPU_IS_LOST, RESET_REQUIRED, 28}  # and: GPU not found
LASTING = {NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25, 26}  # and: argument version mismatch, deprecated

EVERY_LINK = 0xFFFFFFFF  # scope of a field value: the sum over a GPU's links


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A GPU by its NVML index, or the MIG instance at a position within it."""

    gpu: int
    instance: int | None = None


@dataclass(frozen=True, slots=True)
class XidEvent:
    """A critical error that a GPU reported; `gpu` is its NVML index when it was registered."""

    gpu: int
    uuid: str
    xid: int


class DriverAbsent(SourceAbsent):
    """No NVIDIA driver on this host, or not yet."""


class DriverFailed(SourceError):
    """The driver answers for no GPU at present; `code` is NVML's, None where it never got that far."""

    def __init__(self, message: str, code: int | None = None, readings: Sequence[Reading] = ()) -> None:
        super().__init__(message, readings)
        self.code = code


class GpuLost(Exception):
    """One GPU no longer answers; the others may. `code` is NVML's."""

    def __init__(self, message: str, code: int = GPU_IS_LOST) -> None:
        super().__init__(message)
        self.code = code


class Unavailable(Exception):
    """One quantity of one GPU cannot be had: unsupported, not permitted, or no data now. `code` is NVML's."""

    def __init__(self, message: str, code: int = NOT_SUPPORTED) -> None:
        super().__init__(message)
        self.code = code

    @property
    def lasting(self) -> bool:
        """Whether asking again is of no use until the GPU is attached anew."""
        return self.code in LASTING


class BadHandle(Unavailable):
    """A call refused its arguments: the handle may be of before a reset, or of a driver that was reloaded."""


class Driver(Protocol):
    """NVML's calls. Values are numbers, text, lists, or dicts for NVML's structs.

    `connect` and `query` raise DriverAbsent or DriverFailed; whatever concerns a device may also raise GpuLost, or
    Unavailable for what that device does not answer.
    """

    @property
    def epoch(self) -> int:
        """A number that changes whenever handles were given up, and what was registered with them is void."""
        ...

    def connect(self) -> None:
        """Attach to the driver."""
        ...

    def query(self, call: str, *args: int) -> Any:
        """Call a function that concerns no GPU."""
        ...

    def ask(self, device: Device, call: str, *args: int) -> Any:
        """Call a function of one device."""
        ...

    def fields(self, device: Device, wanted: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
        """Return those of the `wanted` field values (id, scope) that the device has, in one call."""
        ...

    def activity(self, device: Device, wanted: Sequence[int]) -> Mapping[int, float]:
        """Return GPM metrics by id, each the mean since the last call for this device; the first returns nothing."""
        ...

    def samples(self, device: Device, kind: int, since: int) -> Sequence[tuple[int, int]]:
        """Return a driver's sample buffer as (time stamp in us, value), oldest first: what is newer than `since`."""
        ...

    def wait_xid(self, seconds: float) -> XidEvent | None:
        """Wait for a GPU's next critical error: of every GPU that has been asked something, anew as `epoch` changes."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
