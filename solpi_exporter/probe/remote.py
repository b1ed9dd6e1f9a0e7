"""The bench of `isolation = "worker"`: the same bench in a worker process, which is asked and watched from here.

No torch is imported on this side, and nothing of a GPU is held: what hangs or spoils CUDA is one child.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from solpi_exporter.clock import Clock
from solpi_exporter.probe.child import Child, Lost
from solpi_exporter.probe.keeper import Keeper
from solpi_exporter.probe.launch import start
from solpi_exporter.probe.messages import BatchWanted, CostsWanted, Request
from solpi_exporter.probe.plan import Opening, Used
from solpi_exporter.probe.result import BatchResult, Costs, Identity
from solpi_exporter.source import NeedsRestart, SourceError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds without a sign of life after which a worker hangs.

    That is not how long an answer may take: before what it times, the worker says once a second that it goes on. A row
    of steps takes milliseconds; after 10 s it hangs, on whatever host. All rows of an answer, two seconds on a good
    host, may take longer than that on a starved one, which is what the probe is to tell of.
    """

    opening: float = 110.0  # torch is imported and graphs are captured without a word; ProbeSource.timeout is more
    answer: float = 10.0


def tell_nobody(_: int) -> None:
    """Tell nobody of a worker."""


def open_remote(
    python: Sequence[str], clock: Clock, wanted: Opening, started: Callable[[int], None] = tell_nobody
) -> "RemoteBench":
    """Return what `open_bench` would, in a worker under an interpreter; it is started when it is first asked.

    `started` is told the pid of each worker, before that holds anything of the GPU.
    """

    def begin() -> Child:
        child = start(python, wanted.device)
        started(child.pid)
        return child

    return RemoteBench(wanted, begin, clock)


class RemoteBench:
    """Has a worker that `start` makes do what it is asked for.

    All of it raises SourceError: the worker's own, or why there is no worker now.
    """

    def __init__(
        self, opening: Opening, start: Callable[[], Child], clock: Clock, patience: Patience = Patience()
    ) -> None:
        self._opening = opening
        self._keeper = Keeper(start, clock)
        self._patience = patience
        self._identity: Identity | None = None  # of the worker that runs
        self._measured = False  # by that one
        self._used: Used | None = None
        self._before = 0.0  # seconds that those before it used the GPU

    @property
    def identity(self) -> Identity:
        """On what the worker measures; it is started and has its bench opened where it has none."""
        return self._open()

    @property
    def is_open(self) -> bool:
        """Whether there is a worker with a bench."""
        return self._identity is not None

    @property
    def used(self) -> Used | None:
        """How long workers used the GPU, as far as they have told."""
        return None if self._used is None else Used(self._before + self._used.total, self._used.cycle)

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        """Have the raw costs measured; nothing of this process disturbs that, so `quiet` is left alone."""
        if self._measured:  # a cycle went well: a worker that dies in each of its first is not started ever so often
            self._keeper.trust()
        self._open()
        return self._ask(CostsWanted(), Costs, self._patience.answer)

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        """Have one batch size measured."""
        self._open()
        result = self._ask(BatchWanted(batch), BatchResult, self._patience.answer)
        self._measured = True
        return result

    def close(self) -> None:
        """End the worker."""
        self._identity = None
        self._keeper.close()

    def _open(self) -> Identity:
        if self._identity is None:
            self._identity = self._ask(self._opening, Identity, self._patience.opening)
        return self._identity

    def _ask(self, request: Request, kind: type[Value], silence: float) -> Value:
        try:
            answer = self._keeper.child().ask(request, silence)
        except Lost as lost:
            raise self._lose(f"the probe's worker {lost}") from lost
        if isinstance(answer, NeedsRestart):  # of that process, not of this one
            raise self._lose(str(answer)) from answer
        if isinstance(answer, SourceError):
            raise answer
        if not isinstance(answer.value, kind):
            raise self._lose("the probe's worker answered something else")
        self._used = answer.used
        return answer.value

    def _lose(self, why: str) -> SourceError:
        self._identity, self._measured = None, False
        if self._used is not None:
            self._before, self._used = self._before + self._used.total, Used(cycle=self._used.cycle)
        return self._keeper.lose(why)
