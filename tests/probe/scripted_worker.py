"""A real worker whose bench does what the batch size says; a program of its own, with the standard library alone."""

import os
import signal
import sys
from contextlib import AbstractContextManager
from unittest import mock

from solpi_exporter import __version__
from solpi_exporter.probe import worker
from solpi_exporter.probe.plan import Used
from solpi_exporter.probe.result import EAGER_SYNC, BatchResult, Costs, Identity, ModeResult
from solpi_exporter.source import NeedsRestart, SourceError

FINE, REFUSED, SPOILT, KILLED, HUNG, SLOW, LOUD, BUG, CURIOUS = range(1, 10)
SECONDS = 0.125  # of the GPU, for a batch size


class ScriptedBench:
    """Says who it is, and does as it is told."""

    identity = Identity("cuda:0", "GPU-1", "Scripted", "8b", 4, 512, "bfloat16", "2.13.0", 13.0)

    def __init__(self) -> None:
        self.used = Used()

    def costs(self, quiet: AbstractContextManager[object]) -> Costs:
        self.used = self.used.begin()
        return Costs((1e-6, float(os.getpid())))

    def measure(self, batch: int, quiet: AbstractContextManager[object]) -> BatchResult:
        if batch == REFUSED:
            raise SourceError("the probe does not fit")
        if batch == SPOILT:
            raise NeedsRestart("CUDA failed")
        if batch == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        if batch == HUNG:
            signal.pause()
        if batch == SLOW:
            for _ in range(3):
                with quiet:
                    pass
        if batch == LOUD:
            for stream in (sys.stdout, sys.stderr):
                os.write(stream.fileno(), b"a library\n")
                stream.write("torch\n")
                stream.flush()
        if batch == BUG:
            raise RuntimeError("a bug")
        if batch == CURIOUS:
            assert sys.stdin.read() == ""
        self.used = self.used.more(SECONDS)
        return BatchResult(batch, {EAGER_SYNC: ModeResult(1e-3, 1e-4, 1e-4, 0.0, (1e-3,))})

    def close(self) -> None:
        raise AssertionError("a worker is ended, not closed")


if __name__ == "__main__":
    with (
        mock.patch.object(worker, "open_bench", return_value=ScriptedBench()),
        mock.patch.object(worker, "BEAT_SECONDS", 0.0),
    ):
        worker.main(sys.argv[1] if len(sys.argv) > 1 else __version__)
