"""Plays a recording through the driver interface: the same calls, answered as an NVML of that instant did.

A recording is a device (constant answers by call) and a list of samples in time order; see recordings/README.md.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from solpi_exporter.gpu.driver import Unavailable
from solpi_exporter.gpu.fields import CLOCK_DOMAINS, MEMORY_V2, TEMPERATURE_GPU

Recorded = Mapping[str, Any]
Call = tuple[str, tuple[int, ...]]

# How a call is answered from one recorded sample.
ANSWERS: Mapping[Call, Callable[[Recorded], Any]] = {
    ("nvmlDeviceGetUtilizationRates", ()): lambda s: {"gpu": s["gpu"], "memory": s["mem"]},
    ("nvmlDeviceGetMemoryInfo", (MEMORY_V2,)): lambda s: {
        "total": s["mem_total"],
        "used": s["mem_used"],
        "free": s["mem_free"],
        "reserved": s["mem_reserved"],
    },
    ("nvmlDeviceGetPowerUsage", ()): lambda s: s["power_mw"],
    ("nvmlDeviceGetTemperature", (TEMPERATURE_GPU,)): lambda s: s["temp"],
    ("nvmlDeviceGetClockInfo", (CLOCK_DOMAINS["sm"],)): lambda s: s["sm"],
    ("nvmlDeviceGetClockInfo", (CLOCK_DOMAINS["memory"],)): lambda s: s["memclk"],
    ("nvmlDeviceGetPerformanceState", ()): lambda s: s["pstate"],
    ("nvmlDeviceGetCurrentClocksEventReasons", ()): lambda s: s["reasons"],
}


ENERGY = ("nvmlDeviceGetTotalEnergyConsumption", ())


class ReplayDriver:
    """One recorded GPU; `position` says which instant of the recording (Unix seconds) is now.

    `rounds` says how often the recording has been played before: its energy is a total and goes on.
    """

    def __init__(
        self,
        device: Mapping[str, Any],
        samples: Sequence[Recorded],
        position: Callable[[], float],
        rounds: Callable[[], int] = lambda: 0,
    ) -> None:
        self._device = device
        self._samples = samples
        self._times = [sample["t"] for sample in samples]
        self._position = position
        self._rounds = rounds

    def connect(self) -> None:
        """Nothing to attach to."""

    def query(self, call: str, *args: int) -> Any:
        """Answer a system call from the device's constants."""
        return self._constant(call)

    def query_gpu(self, index: int, call: str, *args: int) -> Any:
        """Answer for the recorded GPU: from the sample of now, else from the device's constants."""
        if (call, args) == ENERGY:
            return self._now()["energy_mj"] + self._rounds() * self._energy_of_a_round()
        answer = ANSWERS.get((call, args))
        return self._constant(call) if answer is None else answer(self._now())

    def close(self) -> None:
        """Nothing to let go of."""

    def _energy_of_a_round(self) -> int:
        used: int = self._samples[-1]["energy_mj"] - self._samples[0]["energy_mj"]
        return used

    def _constant(self, call: str) -> Any:
        if call not in self._device:
            raise Unavailable(f"{call}: not in the recording")
        return self._device[call]

    def _now(self) -> Recorded:
        """Return the last sample that is not in the future; before the first one, the first."""
        return self._samples[max(0, bisect_right(self._times, self._position()) - 1)]
