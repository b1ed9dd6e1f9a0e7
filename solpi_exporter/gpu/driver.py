"""The one door to NVML: calls by name, plain values back, errors sorted into what they mean for us.

`gpu/replay.py` answers the same calls from a recording, so everything above runs without a GPU.
"""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Protocol

import pynvml

from solpi_exporter.source import SourceAbsent, SourceError


class DriverAbsent(SourceAbsent):
    """No NVIDIA driver on this host, or not yet."""


class DriverFailed(SourceError):
    """The driver answers for no GPU at present."""


class GpuLost(Exception):
    """One GPU no longer answers; the others may."""


class Unavailable(Exception):
    """One quantity of one GPU cannot be had: unsupported, not permitted, or no data now."""


class BadHandle(Unavailable):
    """A call refused its arguments: the handle may be of before a reset, or of a driver that was reloaded."""


class Driver(Protocol):
    """What the source needs of NVML. Values are numbers, text, lists, or dicts for NVML's structs."""

    def connect(self) -> None:
        """Attach to the driver; raise DriverAbsent or DriverFailed."""
        ...

    def query(self, call: str, *args: int) -> Any:
        """Call a function that concerns no GPU; raise Unavailable or DriverFailed."""
        ...

    def query_gpu(self, index: int, call: str, *args: int) -> Any:
        """Call a function of the GPU with this NVML index; raise Unavailable, GpuLost or DriverFailed."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


_ABSENT = {pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED}
_DRIVER_WIDE = {
    *_ABSENT,
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
_GPU_GONE = {
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED,
    getattr(pynvml, "NVML_ERROR_GPU_NOT_FOUND", 28),
}


class NvmlDriver:
    """NVML by nvidia-ml-py. Initialised once and held: repeated initialisation hangs some drivers."""

    def __init__(self) -> None:
        self._handles: dict[int, Any] = {}

    def connect(self) -> None:
        """Load libnvidia-ml.so.1 and attach; raise DriverAbsent where there is no driver."""
        refuse_shadowing_pynvml()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            if error.value in _ABSENT:
                raise DriverAbsent(
                    f"no NVIDIA driver on this host (nvmlInit: {error}); install it, or start with --no-gpu"
                ) from error
            raise _graded("nvmlInit", error) from error

    def query(self, call: str, *args: int) -> Any:
        """Call `pynvml.<call>(*args)`."""
        return self._call(call, *args)

    def query_gpu(self, index: int, call: str, *args: int) -> Any:
        """Call `pynvml.<call>(handle, *args)` for the GPU at `index`."""
        if index not in self._handles:
            self._handles[index] = self._call("nvmlDeviceGetHandleByIndex", index)
        try:
            return self._call(call, self._handles[index], *args)
        except (GpuLost, BadHandle):
            del self._handles[index]
            raise

    def close(self) -> None:
        """Detach, whatever the driver says to that; the library stays mapped for the life of the process."""
        self._handles.clear()
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def _call(self, call: str, *args: Any) -> Any:
        function = getattr(pynvml, call, None)
        if function is None:
            raise Unavailable(f"{call}: not in the installed nvidia-ml-py")
        try:
            return _plain(function(*args))
        except pynvml.NVMLError as error:
            raise _graded(call, error) from error


def refuse_shadowing_pynvml() -> None:
    """Raise DriverFailed when an old distribution named `pynvml` has put its module before nvidia-ml-py's."""
    try:
        shim = distribution("pynvml")
    except PackageNotFoundError:
        return
    if any(shim.locate_file(file) == Path(pynvml.__file__) for file in shim.files or ()):
        raise DriverFailed(
            f"the distribution pynvml {shim.version} shadows nvidia-ml-py: run "
            "`pip uninstall -y pynvml && pip install --force-reinstall nvidia-ml-py`"
        )


def _graded(call: str, error: pynvml.NVMLError) -> Exception:
    """Turn an NVML error into ours by its code, which, unlike its class, is known for every release."""
    message = f"{call}: {error} (NVML error {error.value})"
    if error.value in _DRIVER_WIDE:
        return DriverFailed(message)
    if error.value in _GPU_GONE:
        return GpuLost(message)
    if error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        return BadHandle(message)
    return Unavailable(message)


def _plain(value: Any) -> Any:
    """Turn a ctypes struct into a dict, bytes into text; leave handles and numbers as they are."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if hasattr(value, "_fields_"):
        return {field[0]: _plain(getattr(value, field[0])) for field in value._fields_}
    return value
