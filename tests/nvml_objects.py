"""What the stand-in for NVML's library keeps, and how it writes into the memory that the binding hands it."""

import ctypes
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pynvml

from solpi_exporter.gpu.driver import Device

_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
ULL = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG


class Refused(Exception):
    """A function returns a code other than success."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Event:
    """What an event wait returns; `handle` is an address."""

    handle: int
    type: int
    data: int


@dataclass(slots=True)
class Set:
    """An event set: the mask of each registered device, and what has happened to them since."""

    masks: dict[Device, int] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=deque)


@dataclass(slots=True)
class Sample:
    """A GPM sample: of what, and when; the `number` of its taking tells samples of one instant apart."""

    device: Device | None = None
    time: float = 0.0
    number: int = 0


def address_of(pointer: Any) -> int:
    """Return what a handle, a sample or a set points to."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def point(out: Any, address: int) -> None:
    """Let a by-reference pointer point to an address."""
    ctypes.c_void_p.from_buffer(out._obj).value = address


def fill(out: Any, value: Any) -> None:
    """Write a number, or a dict into a struct."""
    if isinstance(out, ctypes.Structure):
        for name, member in value.items():
            setattr(out, name, member)
    else:
        out.value = value


def fill_union(union: Any, value_type: int, value: float) -> None:
    """Write the member of NVML's value type; the bytes beside it are not 0, so that no other member reads the same."""
    union.ullVal = (1 << 64) - 1
    setattr(union, _MEMBERS.get(value_type, "ullVal"), value)


def known(objects: dict[int, Any], pointer: Any) -> Any:
    """Return the object that a pointer points to."""
    if address_of(pointer) not in objects:
        raise Refused(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return objects[address_of(pointer)]
