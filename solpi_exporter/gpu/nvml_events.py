"""NVML's event set behind the door: every GPU's critical errors (XIDs), waited for in the thread of who asks.

Only what happens after the registration is delivered.
"""

import ctypes
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pynvml

from solpi_exporter.gpu.driver import GONE, NOT_SUPPORTED, Unavailable, XidEvent
from solpi_exporter.gpu.lane import Calls, Hung, Lanes

WAITS_BEFORE_RETRY = 60  # a second each
PATIENCE = 0.5  # seconds for a call that registers a GPU; meanwhile no event of any other is heard
_XID = pynvml.nvmlEventTypeXidCriticalError


class EventSet:
    """One set for all GPUs. Its methods raise NVMLError, or Unavailable where no GPU reports anything."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self._set: Any = None
        self._gpus: dict[int | None, tuple[int, str]] = {}
        self._nothing = threading.Event()
        self._waits_left: int | None = None
        self._lanes = Lanes()
        self._hung: set[int] = set()

    @property
    def is_stuck(self) -> bool:
        """Whether a call that registers a GPU has not returned: what it works on must not be freed."""
        return self._lanes.any_stuck

    def register(self, epoch: int, handles: Mapping[int, Any]) -> None:
        """Make the set anew of the GPUs with these handles, by index.

        One that cannot be registered, being lost, not ours or hanging, is left out.
        """
        self.free()
        self._set = pynvml.nvmlEventSetCreate()
        refusals = self._lanes.run(self._round(handles), PATIENCE) - {pynvml.NVML_SUCCESS}
        if not self._gpus and refusals - GONE:
            raise Unavailable("no GPU of this host reports XID events", min(refusals - GONE))
        self.epoch = epoch
        self._waits_left = WAITS_BEFORE_RETRY if refusals - GONE - {NOT_SUPPORTED} else None

    def wait(self, seconds: float) -> XidEvent | None:
        """Wait for an event; None when the time is over."""
        if self._waits_left is not None:
            self._waits_left -= 1
            if self._waits_left <= 0:
                self.epoch = None  # what was refused may be permitted by now
        if not all(map(self._lanes.is_stuck, self._hung)):
            self.epoch = None  # one that hung is back
        if not self._gpus:  # as while all are lost: the set is made anew when one is back
            self._nothing.wait(seconds)
            return None
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
        if self._set is not None and not self.is_stuck:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
        self._set, self.epoch = None, None
        self._gpus.clear()

    def _round(self, handles: Mapping[int, Any]) -> Calls[set[int]]:
        """Register one GPU after the other; return NVML's codes."""
        codes: set[int] = set()
        self._hung.clear()
        for index, handle in handles.items():
            try:
                code, uuid = yield index, partial(_identify, handle)
                if code == pynvml.NVML_SUCCESS:
                    code = yield index, partial(_register, handle, self._set)
            except Hung:
                self._hung.add(index)
                continue
            codes.add(code)
            if code == pynvml.NVML_SUCCESS:
                self._gpus[_address(handle)] = (index, uuid)
        return codes


def _identify(handle: Any) -> tuple[int, str]:
    """Return NVML's code, which says whether the GPU reports XIDs, and its UUID."""
    try:
        if not _XID & pynvml.nvmlDeviceGetSupportedEventTypes(handle):
            return NOT_SUPPORTED, ""
        uuid = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError as error:
        return int(error.value), ""
    return int(pynvml.NVML_SUCCESS), uuid if isinstance(uuid, str) else uuid.decode()


def _register(handle: Any, event_set: Any) -> int:
    """Add a GPU to the set; return NVML's code."""
    try:
        pynvml.nvmlDeviceRegisterEvents(handle, _XID, event_set)
    except pynvml.NVMLError as error:
        return int(error.value)
    return int(pynvml.NVML_SUCCESS)


def _address(handle: Any) -> int | None:
    """Return what a handle points to: two objects of one handle are not equal by themselves."""
    return ctypes.cast(handle, ctypes.c_void_p).value
