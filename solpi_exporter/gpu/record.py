"""Notes what a driver answers while the GPU source reads it, with every UUID masked: for bug reports and tests."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from solpi_exporter.gpu.driver import NO_DATA, NOT_SUPPORTED, Device, Driver, GpuLost, Unavailable, XidEvent
from solpi_exporter.gpu.recording import key_of

_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{8,}(/\d+/\d+)?")

Wanted = TypeVar("Wanted")


class RecordingDriver:
    """Another driver, of whose answers a note is kept until they are taken as a frame."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._answers: dict[str, Any] = {}
        self._masked: dict[str, str] = {}

    @property
    def epoch(self) -> int:
        """That of the driver."""
        return self._driver.epoch

    def frame(self) -> dict[str, Any]:
        """Return what was answered since the last frame."""
        answers, self._answers = self._answers, {}
        return answers

    def connect(self) -> None:
        """Attach to the driver."""
        self._driver.connect()

    def query(self, call: str, *args: int) -> Any:
        """Ask the driver and note it."""
        return self._note(key_of(None, call, *args), lambda: self._driver.query(call, *args))

    def ask(self, device: Device, call: str, *args: int) -> Any:
        """Ask the driver and note it."""
        return self._note(key_of(device, call, *args), lambda: self._driver.ask(device, call, *args))

    def fields(self, device: Device, wanted: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], float]:
        """Ask the driver and note every value."""
        keys = {one: key_of(device, "field", *one) for one in wanted}
        return self._note_each(keys, lambda: self._driver.fields(device, wanted))

    def activity(self, device: Device, wanted: Sequence[int]) -> Mapping[int, float]:
        """Ask the driver and note every mean."""
        keys = {one: key_of(device, "gpm", one) for one in wanted}
        return self._note_each(keys, lambda: self._driver.activity(device, wanted))

    def samples(self, device: Device, kind: int, since: int) -> Sequence[tuple[int, int]]:
        """Ask the driver and note what is new."""
        return self._note(  # type: ignore[no-any-return]
            key_of(device, "samples", kind), lambda: list(self._driver.samples(device, kind, since))
        )

    def wait_xid(self, seconds: float) -> XidEvent | None:
        """Ask the driver; events are not recorded."""
        return self._driver.wait_xid(seconds)

    def close(self) -> None:
        """Let go of the driver."""
        self._driver.close()

    def _note(self, key: str, ask: Callable[[], Any]) -> Any:
        try:
            answer = ask()
        except (Unavailable, GpuLost) as error:
            self._answers[key] = {"error": error.code}
            raise
        self._answers[key] = self._mask(answer)
        return answer

    def _note_each(
        self, keys: Mapping[Wanted, str], ask: Callable[[], Mapping[Wanted, float]]
    ) -> Mapping[Wanted, float]:
        """Note many numbers; what is missing is not supported, unless all are missing, as at GPM's first call."""
        try:
            values = ask()
        except (Unavailable, GpuLost) as error:
            self._answers.update({key: {"error": error.code} for key in keys.values()})
            raise
        missing = {"error": NOT_SUPPORTED if values else NO_DATA}
        self._answers.update({key: round(values[one], 3) if one in values else missing for one, key in keys.items()})
        return values

    def _mask(self, answer: Any) -> Any:
        """Replace every UUID by one that tells only which of the recorded ones it was."""
        if isinstance(answer, str):
            return _UUID.sub(self._substitute, answer)
        if isinstance(answer, dict):
            return {name: self._mask(value) for name, value in answer.items()}
        if isinstance(answer, list):
            return [self._mask(one) for one in answer]
        return answer

    def _substitute(self, match: re.Match[str]) -> str:
        mask = f"{match[1]}-00000000-0000-0000-0000-{len(self._masked) + 1:012d}"
        return self._masked.setdefault(match[0], mask)
