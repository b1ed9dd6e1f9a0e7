"""NVML's event set behind the door: every GPU's critical errors (XIDs), waited for in the thread of who asks.

Only what happens after the registration is delivered.
"""

import ctypes
from contextlib import suppress
from typing import Any

import pynvml

from solpi_exporter.gpu.driver import NOT_SUPPORTED, Unavailable, XidEvent

_XID = pynvml.nvmlEventTypeXidCriticalError


class EventSet:
    """One set for all GPUs. Its methods raise NVMLError, or Unavailable where no GPU reports anything."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self._set: Any = None
        self._gpus: dict[int | None, tuple[int, str]] = {}

    def register(self, epoch: int) -> None:
        """Make the set anew; a GPU that cannot be registered, being lost or not ours, is left out."""
        self.free()
        self._set = pynvml.nvmlEventSetCreate()
        for index in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):
                self._add(index)
        if not self._gpus:
            raise Unavailable("no GPU of this host reports XID events", NOT_SUPPORTED)
        self.epoch = epoch

    def wait(self, seconds: float) -> XidEvent | None:
        """Wait for an event; None when the time is over."""
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        known = self._gpus.get(_address(event.device))
        return None if known is None or event.eventType != _XID else XidEvent(*known, int(event.eventData))

    def free(self) -> None:
        """Give the set back; the next wait needs a new registration."""
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
        self._set, self.epoch = None, None
        self._gpus.clear()

    def _add(self, index: int) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        if not _XID & pynvml.nvmlDeviceGetSupportedEventTypes(handle):
            return
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        pynvml.nvmlDeviceRegisterEvents(handle, _XID, self._set)
        self._gpus[_address(handle)] = (index, uuid if isinstance(uuid, str) else uuid.decode())


def _address(handle: Any) -> int | None:
    """Return what a handle points to: two objects of one handle are not equal by themselves."""
    return ctypes.cast(handle, ctypes.c_void_p).value
