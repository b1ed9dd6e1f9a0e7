"""The bench in a worker: real workers with a scripted bench, and one with torch."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial

import pytest

from solpi_exporter.clock import SystemClock
from solpi_exporter.probe import remote as remote_module
from solpi_exporter.probe.child import Child
from solpi_exporter.probe.keeper import BACK_OFF
from solpi_exporter.probe.plan import GENTLE, Opening, Used
from solpi_exporter.probe.remote import Patience, RemoteBench, open_remote
from solpi_exporter.probe.result import Bench, Costs
from solpi_exporter.probe.source import ProbeSource, open_bench
from solpi_exporter.source import NeedsRestart, SourceAbsent, SourceError
from tests.fakes import FakeClock, values
from tests.probe.scripted_worker import (
    BUG,
    FINE,
    HUNG,
    KILLED,
    REFUSED,
    SECONDS,
    SLOW,
    SPOILT,
    ScriptedBench,
)
from tests.probe.workers import BABBLER, PYTHON, ROOT, SMALL, FakeProcess, child_of, program, scripted

QUIET = nullcontext()
PATIENT = Patience(20.0, 20.0)
OPEN = partial(open_remote, (sys.executable,))


class Remote:
    """A bench in workers, which are counted."""

    def __init__(self, start: Callable[[], Child] = scripted, patience: Patience = PATIENT) -> None:
        self.clock = FakeClock()
        self.children: list[Child] = []
        self._start = start
        self.bench = RemoteBench(SMALL, self.start, self.clock, patience)

    def start(self) -> Child:
        self.children.append(self._start())
        return self.children[-1]

    def loses(self, batch: int) -> str:
        """Return what is said of a worker that is lost over a batch size; wait until there may be a new one."""
        with pytest.raises(SourceError) as error:
            self.bench.measure(batch, QUIET)
        assert type(error.value) is SourceError
        assert self.children[-1].has_ended
        self.clock.now += BACK_OFF[-1]
        return str(error.value)

    def pid(self) -> int:
        return int(self.bench.costs(QUIET).wakeup[1])


@pytest.fixture
def remote() -> Iterator[Remote]:
    remote = Remote()
    with closing(remote.bench):
        yield remote


def test_it_is_the_bench_of_a_worker(remote: Remote) -> None:
    """One process, which is none of ours; it is started when it is first asked."""
    assert remote.children == []

    assert remote.bench.identity == ScriptedBench.identity
    assert [remote.pid(), remote.pid()] == 2 * [remote.children[0].pid]
    assert remote.bench.measure(FINE, QUIET).batch == FINE
    assert len(remote.children) == 1


def test_nothing_is_kept_quiet_for_it(remote: Remote) -> None:
    """What this process does is not in the worker's way."""
    quiet = threading.Lock()
    quiet.acquire()

    remote.bench.costs(quiet)

    assert remote.bench.measure(FINE, quiet).batch == FINE


def test_an_error_of_the_bench_is_its_own(remote: Remote) -> None:
    """The same words, from a worker that goes on."""
    for _ in range(2):
        with pytest.raises(SourceError, match=r"^the probe does not fit$"):
            remote.bench.measure(REFUSED, QUIET)

    assert remote.bench.measure(FINE, QUIET).batch == FINE
    assert len(remote.children) == 1


def test_cuda_that_is_spoilt_ends_the_worker_and_not_us(remote: Remote) -> None:
    """Only a new process can go on, which the next worker is."""
    remote.bench.costs(QUIET)

    with pytest.raises(SourceError, match=r"^CUDA failed; tried again at ") as error:
        remote.bench.measure(SPOILT, QUIET)

    assert not isinstance(error.value, NeedsRestart)
    assert remote.children[0].has_ended
    remote.clock.now += BACK_OFF[0]
    assert remote.pid() == remote.children[1].pid


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (KILLED, "the probe's worker was ended by signal 9 (Killed, without a word): see the kernel log; tried again"),
        (BUG, "the probe's worker ended with status 1 (RuntimeError: a bug); tried again"),
    ],
)
def test_a_worker_that_dies_is_told_and_replaced(remote: Remote, batch: int, said: str) -> None:
    """After a while, by one that is asked for everything anew."""
    assert remote.loses(batch).startswith(said)

    assert remote.bench.measure(FINE, QUIET).batch == FINE
    assert len(remote.children) == 2


def test_a_worker_that_hangs_is_ended() -> None:
    """It was silent for as long as it may be."""
    remote = Remote(patience=Patience(20.0, 0.1))
    with closing(remote.bench):
        assert remote.bench.identity
        assert remote.loses(HUNG).startswith("the probe's worker gave no sign of life for 0.1 s; tried again at ")


def test_a_worker_that_does_not_open_its_bench_is_ended() -> None:
    """Importing torch may take longer than an answer, and not for ever."""
    remote = Remote(partial(program, "import sys; sys.stdin.read()"), Patience(0.1, 20.0))

    with pytest.raises(SourceError, match=r"gave no sign of life for 0.1 s"):
        _ = remote.bench.identity

    assert remote.children[0].has_ended


def test_a_host_that_is_slow_loses_no_worker(remote: Remote) -> None:
    """Before each row of steps it says that it goes on, which is no answer."""
    assert remote.bench.measure(SLOW, QUIET).batch == SLOW


def test_a_worker_that_talks_nonsense_is_ended() -> None:
    """What cannot be read could be anything."""
    remote = Remote(partial(program, BABBLER))

    with pytest.raises(SourceError, match="gave an answer that cannot be read"):
        _ = remote.bench.identity

    assert remote.children[0].has_ended


def test_while_it_waits_no_worker_is_started(remote: Remote) -> None:
    """Each request says why, and when. One that dies in each cycle waits ever longer, although it began well."""
    for pause in BACK_OFF:
        remote.bench.costs(QUIET)
        remote.bench.measure(FINE, QUIET)
        with pytest.raises(SourceError) as lost:
            remote.bench.measure(KILLED, QUIET)
        started = len(remote.children)
        remote.clock.now += pause - 1.0
        with pytest.raises(SourceError) as refused:
            remote.bench.costs(QUIET)
        assert str(refused.value) == str(lost.value)
        assert len(remote.children) == started
        remote.clock.now += 1.0
    assert remote.pid() == remote.children[-1].pid


def test_a_worker_that_went_through_a_cycle_is_trusted(remote: Remote) -> None:
    """What was lost before it makes nobody wait longer."""
    remote.loses(KILLED)
    for _ in range(2):
        remote.bench.costs(QUIET)
        remote.bench.measure(FINE, QUIET)
    with pytest.raises(SourceError):
        remote.bench.measure(KILLED, QUIET)
    remote.clock.now += BACK_OFF[0]

    assert remote.pid() == remote.children[-1].pid


def test_the_use_of_a_gpu_adds_up_over_workers(remote: Remote) -> None:
    """A total does not fall because a process has ended."""
    remote.bench.measure(FINE, QUIET)
    remote.bench.measure(FINE, QUIET)
    remote.loses(KILLED)
    before = remote.bench.used
    remote.bench.costs(QUIET)
    remote.bench.measure(FINE, QUIET)

    assert before == Used(2 * SECONDS, 2 * SECONDS)
    assert remote.bench.used == Used(3 * SECONDS, SECONDS)


def test_closing_ends_the_worker(remote: Remote) -> None:
    """With the daemon, and not before."""
    remote.bench.costs(QUIET)

    remote.bench.close()

    assert remote.children[0].has_ended


def test_a_worker_without_torch_is_absent() -> None:
    """So the source has nothing to measure on, which is no outage."""
    bench = open_remote(PYTHON, FakeClock(), Opening("auto", "auto", (1,), GENTLE))

    with closing(bench), pytest.raises(SourceAbsent, match="torch is not installed"):
        _ = bench.identity


def test_a_worker_is_told_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later its memory would be somebody else's for a while; each that takes its place is told as well."""
    told: list[int] = []
    processes = [FakeProcess(status=0, pid=pid) for pid in (31, 32)]
    left = iter(processes)
    monkeypatch.setattr(remote_module, "start", lambda *_: child_of(next(left)))
    clock = FakeClock()
    bench = open_remote(PYTHON, clock, SMALL, told.append)
    assert told == []

    for known in ([31], [31, 32]):
        with pytest.raises(SourceError, match="ended with status 0"):  # its connection is closed
            _ = bench.identity
        assert told == known
        clock.now += BACK_OFF[0]


def series(opener: Callable[[], Bench]) -> set[tuple[str, tuple[str, ...]]]:
    """Return name and labels of everything that is shown once a split was made: a busy machine may need some tries."""
    source = ProbeSource(opener, (1,), QUIET, SystemClock(), 300.0)
    try:
        for _ in range(20):
            shown = values([sample for reading in source.poll() for sample in reading.samples()])
            if "solpi_probe_phase_seconds" in shown:
                return {(name, labels) for name, by_labels in shown.items() for labels in by_labels}
    finally:
        source.close()
    pytest.fail("no split in 20 tries")


def test_a_worker_gives_the_same_series() -> None:
    """Name by name, label by label, with real torch on both sides."""
    wanted = Opening("cpu", "small", (1,), GENTLE, context=16, layers=1)

    assert series(partial(OPEN, SystemClock(), wanted)) == series(partial(open_bench, wanted))


PARENT = """
import sys
from contextlib import nullcontext
from solpi_exporter.clock import SystemClock
from solpi_exporter.probe.plan import GENTLE
from solpi_exporter.sources import bench_opener
from solpi_exporter.config import ProbeSettings
settings = ProbeSettings(
    isolation="worker", device="cpu", shape="small", batches=(1,), rotation=(), context=16, layers=1
)
bench = bench_opener(settings, GENTLE, SystemClock())()
costs = bench.costs(nullcontext())
result = bench.measure(1, nullcontext())
identity = bench.identity
bench.close()
print(identity.device, type(costs).__name__, result.batch, sorted({"torch", "numpy"} & sys.modules.keys()))
"""


def test_the_parent_imports_no_torch() -> None:
    """It has none of its memory, and needs none in its environment."""
    result = subprocess.run(
        [sys.executable, "-c", PARENT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert result.stdout.split() == ["cpu", Costs.__name__, "1", "[]"]
    assert result.stderr == ""


@pytest.mark.gpu
def test_a_worker_takes_the_gpu_that_is_named() -> None:
    """By its UUID; it sees no other, so its number is 0."""
    uuid = str(open_bench(Opening("cuda", "8b", (1,), GENTLE, context=16)).identity.uuid)

    with closing(OPEN(SystemClock(), Opening(uuid, "8b", (1,), GENTLE, context=16))) as bench:
        costs = bench.costs(QUIET)
        result = bench.measure(1, QUIET)

        assert (bench.identity.uuid, bench.identity.device) == (uuid, "cuda:0")
        assert costs.launch is not None
        assert result.batch == 1
        assert bench.used is not None
