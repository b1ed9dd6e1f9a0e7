"""What is done to the probe and around it: a loaded host, a neighbour on the GPU, faults in the step; and its cycles.

    python -m benchmarks.probe_load [--steps FILE] PID

is the neighbour: it decodes with CUDA graphs for as long as PID is its parent, and writes to FILE when each step ended.
Needs a GPU.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode

from solpi_exporter.probe import cuda_steps
from solpi_exporter.probe.bench import GpuBench
from solpi_exporter.probe.cuda import CudaRig, CudaVariant
from solpi_exporter.probe.decode import DecodeStack, DecodeStep
from solpi_exporter.probe.device import variants
from solpi_exporter.probe.plan import THOROUGH, Plan
from solpi_exporter.probe.result import BatchResult, Costs, Identity, Verdict, verdict
from solpi_exporter.probe.rig import Variant
from solpi_exporter.probe.rounds import Step
from solpi_exporter.probe.shape import ELEMENT_BYTES, Shape, shape_of
from solpi_exporter.probe.timing import time_pipeline, time_step

ROOT = Path(__file__).parent.parent
DEVICE = torch.device("cuda", 0)
BATCHES = (1, 8)
SHAPE = shape_of("8b")
LONG = shape_of("8b", context=8 * SHAPE.context)

BURNERS_PER_CPU = 2
BURN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(1_000_000): pass"
NEIGHBOUR_SHAPE = shape_of("8b", context=1024, layers=32)
NEIGHBOUR_BATCH = 16
READY = "ready"
SETTLE = 1.0  # seconds after a load has begun or ended

LATE = 2e-3  # seconds between the notice that a step is done and reading its tokens
HOOK = 10e-6  # seconds for each call of torch
SPIN = 4_000_000  # cycles of the GPU's clock: two milliseconds on an H200


@dataclass(frozen=True, slots=True)
class Cycle:
    """What the exporter's probe would have told at once: the raw costs, then each batch size."""

    identity: Identity
    costs: Costs
    results: tuple[BatchResult, ...]

    def of(self, batch: int) -> BatchResult:
        """Return the result of one batch size."""
        return next(one for one in self.results if one.batch == batch)

    @property
    def verdict(self) -> Verdict:
        """Under which conditions it was taken, as the probe says."""
        return verdict(self.costs, self.results)

    @property
    def noisy(self) -> int:
        """How many of the results have no split."""
        return sum(one.noise is not None for one in self.results)


def make_rig(shape: Shape, batches: Sequence[int], plan: Plan = THOROUGH) -> CudaRig:
    """Make the rig for a plan, without a cap on memory: several stand side by side here."""
    return CudaRig(shape, variants(shape, batches), DEVICE, plan.steps, plan.chain)


def make_bench(shape: Shape, batches: Sequence[int], plan: Plan = THOROUGH) -> GpuBench:
    """Make the exporter's bench on such a rig."""
    return GpuBench(make_rig(shape, batches, plan), shape, batches, plan)


def cycle(bench: GpuBench) -> Cycle:
    """Measure once as the exporter does."""
    costs = bench.costs(nullcontext())
    return Cycle(bench.identity, costs, tuple(bench.measure(batch, nullcontext()) for batch in BATCHES))


@contextmanager
def burning() -> Iterator[None]:
    """Load the host: two burning processes for each CPU that this process may use."""
    burners: list[subprocess.Popen[str]] = []
    try:
        for _ in range(BURNERS_PER_CPU * len(os.sched_getaffinity(0))):
            burners.append(_start("-c", BURN))
        time.sleep(SETTLE)
        yield
    finally:
        _end(burners)


@contextmanager
def neighbour(*options: str) -> Iterator[None]:
    """Keep the GPU busy: a process of its own decodes on it."""
    process = _start("-m", "benchmarks.probe_load", *options)
    try:
        assert process.stdout is not None
        if READY not in process.stdout.readline():
            raise SystemExit("the neighbour did not start: see its error above")
        time.sleep(SETTLE)
        yield
    finally:
        _end([process])


def _start(*command: str) -> subprocess.Popen[str]:
    """Start a Python process that ends with this one, however that ends; Ctrl-C is not its business."""
    arguments = [sys.executable, *command, str(os.getpid())]
    return subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    for one in processes:
        one.kill()
    for one in processes:
        with one:  # waits, and closes its pipe
            pass
    time.sleep(SETTLE)


@contextmanager
def item_in_each_layer() -> Iterator[None]:
    """Read a number of what goes into each layer, which waits for the layer before."""
    attention = DecodeStep._attention

    def reading(step: DecodeStep, x: torch.Tensor, layer: int, limit: int) -> torch.Tensor:
        x[0, 0].item()
        return attention(step, x, layer, limit)

    with patch.object(DecodeStep, "_attention", reading):
        yield


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _spin_gpu() -> None:
    torch.cuda._sleep(SPIN)  # type: ignore[no-untyped-call]


@contextmanager
def late_read_back() -> Iterator[None]:
    """Let the thread do something else before it reads the tokens of a step that is done, in every mode."""

    def late(finish: Callable[..., object], *number: int) -> None:
        finish(*number)
        _spin(LATE)

    def late_step(enqueue: Callable[[], None], finish: Callable[[], object]) -> Step:
        return time_step(enqueue, partial(late, finish))

    def late_pipeline(
        count: int, enqueue: Callable[[int], None], finish: Callable[[int], object], *, fill: int
    ) -> list[Step]:
        return time_pipeline(count, enqueue, partial(late, finish), fill=fill)

    with patch.object(cuda_steps, "time_step", late_step), patch.object(cuda_steps, "time_pipeline", late_pipeline):
        yield


@contextmanager
def sleep_on_the_gpu() -> Iterator[None]:
    """Let the GPU spin at the end of each step, launched or captured: before that, launches would hide behind it."""
    forward = DecodeStep.forward

    def sleeping(step: DecodeStep, **arguments: Any) -> None:
        forward(step, **arguments)
        _spin_gpu()

    with patch.object(DecodeStep, "forward", sleeping):
        yield


class SlowDispatch(TorchFunctionMode):
    """Spends some time on each call of torch, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Be late, then call."""
        self.calls += 1
        _spin(HOOK)
        return func(*args, **(kwargs or {}))


@contextmanager
def replayed() -> Iterator[None]:
    """Replay the step as a graph where it would be launched call by call."""

    def launch(variant: CudaVariant, started: Callable[[], None]) -> None:
        variant.graph.replay()
        started()

    with patch.object(CudaVariant, "launch", launch):
        yield


def reads(without: Cycle, batch: int) -> float:
    """Return what a round trip for each layer takes: a read is one."""
    assert without.costs.round_trip is not None
    return SHAPE.layers * without.costs.round_trip[0]


def slept(without: Cycle, batch: int) -> float:
    """Return how long the GPU spins, once its clocks are up, behind another spin so that no launch is in it."""
    start, done = cuda_steps.event(), cuda_steps.event()
    seconds: list[float] = []
    for _ in range(100):
        _spin_gpu()
        start.record()
        _spin_gpu()
        done.record()
        done.synchronize()
        seconds.append(start.elapsed_time(done) / 1e3)
    return statistics.median(seconds[50:])


def moved(without: Cycle, batch: int) -> float:
    """Return what reading the longer KV cache takes at least: its bytes at the bandwidth of a copy."""
    assert without.costs.copy_bandwidth is not None
    more = LONG.moved_elements(batch) - SHAPE.moved_elements(batch)
    return ELEMENT_BYTES * more / without.costs.copy_bandwidth


def hooked(without: Cycle, batch: int) -> float:
    """Return what the hook spends on a step, its own overhead left out."""
    step = DecodeStep(DecodeStack(SHAPE, batch, DEVICE, torch.bfloat16), batch)
    with torch.inference_mode(), SlowDispatch() as hook:
        step.prepare()
        step.forward()
    return float(hook.calls * HOOK)


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of those that are there; None without any."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else None


def row(**parts: object) -> dict[str, Any]:
    """Return a row for `write`: a Cycle and whatever is named, spread out."""
    spread: dict[str, Any] = {}
    for name, part in parts.items():
        spread.update(asdict(part) if isinstance(part, Cycle) else {name: part})
    return spread


def write(path: Path, head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write JSON with one row a line, every number as it was."""
    versions = {"torch": torch.__version__, "python": sys.version.partition(" ")[0]}
    begin = json.dumps({**versions, **head}, indent=1).removesuffix("\n}")
    path.write_text(begin + ',\n "runs": [\n' + ",\n".join(json.dumps(one) for one in rows) + "\n]\n}\n")


def main() -> None:
    """Decode, reading each step's tokens, until the parent has gone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=Path, default=Path(os.devnull), help="doubles: the clock that all processes share"
    )
    parser.add_argument("parent", metavar="PID", type=int)
    options = parser.parse_args()
    rig = make_rig(NEIGHBOUR_SHAPE, (NEIGHBOUR_BATCH,))
    variant = rig.variants[Variant(NEIGHBOUR_BATCH, NEIGHBOUR_SHAPE.layers)]
    with torch.inference_mode(), options.steps.open("wb", buffering=0) as steps:
        print(READY, flush=True)
        while os.getppid() == options.parent:
            variant.step.prepare()
            variant.graph.replay()
            variant.step.tokens.tolist()
            steps.write(struct.pack("d", time.monotonic()))


if __name__ == "__main__":
    main()
