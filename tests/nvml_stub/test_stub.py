"""The stand-in for NVML, asked by the real binding in processes of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nvml_stub import Stub

TIMEOUT = 30

# What every child begins with. `code` is NVML's answer to a call, `say` replaces the control file.
PRELUDE = """
import json, os, threading, time
from pynvml import *

def code(call, *args):
    try:
        call(*args)
    except NVMLError as error:
        return error.value
    return 0

def say(*lines):
    path = os.environ["NVML_STUB"]
    with open(path + ".child", "w") as file:
        file.write("\\n".join(lines) + "\\n")
    os.replace(path + ".child", path)

def answer(value):
    print(json.dumps(value))

def gpus():
    return [nvmlDeviceGetHandleByIndex(index) for index in range(nvmlDeviceGetCount())]
"""


@pytest.fixture
def stub(library: Path, tmp_path: Path) -> Stub:
    """Return a host of one GPU."""
    stub = Stub(library, tmp_path / "control")
    stub.say("gpus 1")
    return stub


def run(stub: Stub, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + script]
    return subprocess.run(command, env=stub.environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False)


def ask(stub: Stub, script: str) -> Any:
    """Run a script after nvmlInit in a child and return what it gave to `answer`."""
    child = run(stub, "nvmlInit()\n" + script)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


def test_gpus_keep_their_number_whatever_the_order(stub: Stub) -> None:
    """NVML's index follows the line `order`; UUIDs, and the other lines, follow the GPU."""
    stub.say("gpus 2", "order 1 0", "busy 1 57")

    assert ask(stub, "answer([(nvmlDeviceGetUUID(h), nvmlDeviceGetUtilizationRates(h).gpu) for h in gpus()])") == [
        ["GPU-00000000-0000-0000-0000-000000000001", 57],
        ["GPU-00000000-0000-0000-0000-000000000000", 50],
    ]


def test_a_gpu_may_be_left_out(stub: Stub) -> None:
    """What `order` does not name is not counted, and not found by its UUID."""
    stub.say("gpus 3", "order 2 0")
    script = """answer([
        nvmlDeviceGetCount(),
        code(nvmlDeviceGetHandleByUUID, b"GPU-00000000-0000-0000-0000-000000000001"),
        code(nvmlDeviceGetHandleByUUID, b"GPU-00000000-0000-0000-0000-000000000002"),
    ])"""

    assert ask(stub, script) == [2, 6, 0]


def test_calls_before_init_are_refused(stub: Stub) -> None:
    """After nvmlShutdown no call answers until the next nvmlInit."""
    script = "nvmlShutdown(); first = code(nvmlDeviceGetCount); nvmlInit(); answer([first, code(nvmlDeviceGetCount)])"

    assert ask(stub, script) == [1, 0]


def test_init_fails_on_request(stub: Stub) -> None:
    """A driver of another version, or none, shows at nvmlInit."""
    stub.say("init 18")

    assert run(stub, "answer(code(nvmlInit))").stdout == "18\n"


def test_a_lost_gpu_fails_every_call_and_no_other_gpu_does(stub: Stub) -> None:
    """The line `error` concerns one GPU, its handle and its UUID included."""
    stub.say("gpus 2")
    script = """
handles = gpus()
say("gpus 2", "error 1 15")
answer([[code(nvmlDeviceGetHandleByIndex, i), code(nvmlDeviceGetPowerUsage, handles[i])] for i in range(2)])
"""

    assert ask(stub, script) == [[0, 0], [15, 15]]


def test_one_call_fails_on_one_gpu(stub: Stub) -> None:
    """The line `call-error` leaves all others alone; with * it holds for every GPU."""
    stub.say("gpus 2", "call-error nvmlDeviceGetPowerUsage 0 999", "call-error nvmlDeviceGetEccMode * 3")
    script = "answer([[code(nvmlDeviceGetPowerUsage, h), code(nvmlDeviceGetEccMode, h)] for h in gpus()])"

    assert ask(stub, script) == [[999, 3], [0, 3]]


def test_a_reset_voids_handles(stub: Stub) -> None:
    """A handle from before the line `generation` changed is an invalid argument; a new one is good."""
    script = """
[old] = gpus()
say("gpus 1", "generation 1")
answer([code(nvmlDeviceGetPowerUsage, old), code(nvmlDeviceGetPowerUsage, gpus()[0])])
"""

    assert ask(stub, script) == [2, 0]


def test_a_hang_lasts_as_long_as_its_line(stub: Stub) -> None:
    """The call blocks its thread alone, without the interpreter's lock, and returns when the line is gone."""
    stub.say("gpus 2")
    script = """
handles, values = gpus(), []
say("gpus 2", "hang 1")
thread = threading.Thread(target=lambda: values.append(nvmlDeviceGetPowerUsage(handles[1])), daemon=True)
thread.start()
thread.join(0.1)
during = [thread.is_alive(), code(nvmlDeviceGetPowerUsage, handles[0])]
say("gpus 2")
thread.join()
answer([during, values])
"""

    assert ask(stub, script) == [[True, 0], [390072]]


@pytest.mark.parametrize(
    "line", ["gpu 1", "hang", "error 1 15", "busy 0 101", "call-error nvmlDeviceGetPowerUsge 0 3", "order 0 0"]
)
def test_a_mistake_in_the_file_ends_the_process(stub: Stub, line: str) -> None:
    """Unknown lines, missing words, absent GPUs and calls that do not exist would make a test pass for nothing."""
    stub.say("gpus 1", line)
    child = run(stub, "nvmlInit()")

    assert child.returncode == -signal.SIGABRT
    assert "nvml stub: " in child.stderr


def test_mig_instances_have_memory_and_little_else(stub: Stub) -> None:
    """Neither the parent nor its instances tell a utilisation; instances have UUIDs and GPU instance ids."""
    stub.say("gpus 1", "mig 0 2", "pid 0 4711 1000000")
    script = """
[gpu] = gpus()
found = [nvmlDeviceGetMigDeviceHandleByIndex(gpu, i) for i in range(2)]
answer([
    code(nvmlDeviceGetUtilizationRates, gpu),
    code(nvmlDeviceGetMigDeviceHandleByIndex, gpu, 2),
    [nvmlDeviceGetUUID(h) for h in found],
    [nvmlDeviceGetGpuInstanceId(h) for h in found],
    [nvmlDeviceGetMemoryInfo(h, nvmlMemory_v2).used for h in found],
    [code(nvmlDeviceGetUtilizationRates, h) for h in found],
])
"""

    assert ask(stub, script) == [
        3,
        6,
        ["MIG-00000000-0000-0000-0001-000000000000", "MIG-00000000-0000-0000-0002-000000000000"],
        [1, 2],
        [1000000, 0],
        [3, 3],
    ]


def test_processes_hold_memory(stub: Stub) -> None:
    """Each line `pid` is a compute process, and its bytes are used."""
    stub.say("gpus 1", "pid 0 4711 1000000", "pid 0 4712 5")
    script = """
[gpu] = gpus()
answer([[(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses(gpu)],
        nvmlDeviceGetMemoryInfo(gpu, nvmlMemory_v2).used])
"""

    assert ask(stub, script) == [[[4711, 1000000], [4712, 5]], 1000005]


def test_the_sample_buffer_holds_the_load_of_its_time(stub: Stub) -> None:
    """71 samples, 200 ms apart; those from before the load changed keep it, and only newer ones than seen come."""
    script = """
[gpu] = gpus()
before = time.time() * 1e6
say("gpus 1", "busy 0 80")
_, samples = nvmlDeviceGetSamples(gpu, 1, 0)
times = [s.timeStamp for s in samples]
answer([
    len(samples),
    sorted({b - a for a, b in zip(times, times[1:])}),
    sorted({s.sampleValue.uiVal for s in samples if s.timeStamp < before - 200000}),
    min(s.timeStamp for s in nvmlDeviceGetSamples(gpu, 1, times[-4])[1]) == times[-3],
])
"""

    assert ask(stub, script) == [71, [200000], [50], True]


def test_counters_never_fall(stub: Stub) -> None:
    """The energy goes on from what it was when the load falls."""
    script = """
[gpu] = gpus()
readings = []
for busy in (100, 0, 100, 0):
    say("gpus 1", f"busy 0 {busy}")
    readings += [nvmlDeviceGetTotalEnergyConsumption(gpu), nvmlDeviceGetFieldValues(gpu, [197])[0].value.ullVal]
answer([readings[::2], readings[1::2]])
"""

    for readings in ask(stub, script):
        assert readings == sorted(readings)


def test_field_values_answer_each_for_itself(stub: Stub) -> None:
    """Supported ids have a value, others a code; the line `field` sets one."""
    stub.say("gpus 1", "field 0 230 2")
    script = """
values = nvmlDeviceGetFieldValues(gpus()[0], [82, 230, (138, 0xFFFFFFFF), (138, 18), 5])
answer([(v.fieldId, v.nvmlReturn, v.valueType) for v in values] + [values[1].value.uiVal])
"""

    assert ask(stub, script) == [[82, 0, 1], [230, 0, 1], [138, 0, 3], [138, 2, 0], [5, 3, 0], 2]


def test_gpm_is_the_mean_load_between_two_samples(stub: Stub) -> None:
    """Metrics follow the load, each with its own code, for the GPU and for an instance."""
    stub.say("gpus 1", "mig 0 1", "busy 0 40")
    script = """
[gpu] = gpus()
def metrics(take):
    get = c_nvmlGpmMetricsGet_t(version=1, numMetrics=2, sample1=nvmlGpmSampleAlloc(), sample2=nvmlGpmSampleAlloc())
    get.metrics[0].metricId, get.metrics[1].metricId = 1, 9
    take(get.sample1)
    say("gpus 1", "mig 0 1", "busy 0 40")
    take(get.sample2)
    nvmlGpmMetricsGet(get)
    return [(round(m.value), m.nvmlReturn) for m in get.metrics[:2]]
both = [metrics(lambda s: nvmlGpmSampleGet(gpu, s)), metrics(lambda s: nvmlGpmMigSampleGet(gpu, 1, s))]
say("gpus 1", "gpm off")
answer([both, nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice, code(nvmlGpmSampleGet, gpu, nvmlGpmSampleAlloc())])
"""

    assert ask(stub, script) == [[[[40, 0], [0, 3]]] * 2, 0, 3]


def test_an_xid_comes_once_and_only_after_registration(stub: Stub) -> None:
    """Events of before are not delivered, each later SEQ is, and without one the wait times out."""
    stub.say("gpus 2", "xid 0 13 1")
    script = """
events, handles = nvmlEventSetCreate(), gpus()
for handle in handles:
    nvmlDeviceRegisterEvents(handle, nvmlEventTypeXidCriticalError, events)
quiet = code(nvmlEventSetWait, events, 0)
say("gpus 2", "xid 0 13 1", "xid 1 79 1")
event = nvmlEventSetWait(events, 1000)
got = [nvmlDeviceGetIndex(event.device), event.eventData, event.eventType]
again = code(nvmlEventSetWait, events, 0)
say("gpus 2", "events-error 999")
answer([quiet, got, again, code(nvmlEventSetWait, events, 1000)])
"""

    assert ask(stub, script) == [10, [1, 79, 8], 10, 999]
