"""What each call of the GPU half costs on this host: wall and CPU time, one call after the other, as a Markdown table.

    python -m benchmarks.nvml_cost [--repeat 50]

Needs an NVIDIA GPU; changes nothing on it. The calls are those of the product's own table, plus those it does without.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

from solpi_exporter.gpu.driver import Device, GpuLost, Unavailable
from solpi_exporter.gpu.fields import FIELDS
from solpi_exporter.gpu.nvml import NvmlDriver
from solpi_exporter.gpu.origins import Activity, Call, FieldValue, Tier
from solpi_exporter.gpu.reader import UTILIZATION_SAMPLES
from solpi_exporter.gpu.transfers import TRANSFERS

GPU = Device(0)
Job = Callable[[], object]


def jobs(driver: NvmlDriver) -> Iterator[tuple[str, str, Job]]:
    """Yield (what, tier, call) of everything that a poll may ask."""
    for field in dict.fromkeys((one.origin, one.tier) for one in FIELDS):
        origin, tier = field
        if isinstance(origin, Call):
            arguments = " ".join(map(str, origin.args))
            yield f"{origin.name} {arguments}".strip(), tier.value, _ask(driver, origin)
    for tier in Tier:
        batch = [
            (one.origin.id, one.origin.scope)
            for one in FIELDS
            if isinstance(one.origin, FieldValue) and one.tier is tier
        ]
        if batch:
            ids = ", ".join(str(one) for one, _ in batch)
            yield f"nvmlDeviceGetFieldValues: {ids}", tier.value, lambda batch=batch: driver.fields(GPU, batch)  # type: ignore[misc]
    metrics = [one.origin.id for one in FIELDS if isinstance(one.origin, Activity)]
    metrics += [one.rate.id for one in TRANSFERS]
    yield f"GPM: a sample and {len(metrics)} metrics", Tier.MEAN.value, lambda: driver.activity(GPU, metrics)
    yield "nvmlDeviceGetSamples, all 14 s", "every 10 s", lambda: driver.samples(GPU, UTILIZATION_SAMPLES, 0)
    yield "nvmlDeviceGetUUID", Tier.FAST.value, lambda: driver.ask(GPU, "nvmlDeviceGetUUID")
    yield (
        "nvmlDeviceGetComputeRunningProcesses",
        Tier.MEAN.value,
        lambda: driver.ask(GPU, "nvmlDeviceGetComputeRunningProcesses"),
    )
    yield "nvmlDeviceGetCount", Tier.FAST.value, lambda: driver.query("nvmlDeviceGetCount")
    yield "nvmlDeviceGetMaxMigDeviceCount", "every minute", lambda: driver.ask(GPU, "nvmlDeviceGetMaxMigDeviceCount")
    for transfer in TRANSFERS:
        one = (transfer.counter.id, transfer.counter.scope)
        yield f"field value {one[0]} ({transfer.metric.name})", "without GPM", lambda one=one: driver.fields(GPU, [one])  # type: ignore[misc]
    yield "nvmlDeviceGetPcieThroughput 0", "never", lambda: driver.ask(GPU, "nvmlDeviceGetPcieThroughput", 0)


def _ask(driver: NvmlDriver, call: Call) -> Job:
    return lambda: driver.ask(GPU, call.name, *call.args)


def cost(job: Job, repeat: int) -> tuple[list[float], list[float], str]:
    """Return wall and CPU microseconds of each run, and why there is no answer."""
    wall: list[float] = []
    cpu: list[float] = []
    for _ in range(repeat):
        begun, used = time.perf_counter(), time.thread_time()
        try:
            job()
        except (Unavailable, GpuLost) as error:
            return wall, cpu, f"not answered (NVML error {error.code})"
        finally:
            cpu.append((time.thread_time() - used) * 1e6)
            wall.append((time.perf_counter() - begun) * 1e6)
    return wall, cpu, ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=50)
    repeat = parser.parse_args().repeat
    driver = NvmlDriver()
    driver.connect()
    print(
        f"{driver.ask(GPU, 'nvmlDeviceGetName')}, driver {driver.query('nvmlSystemGetDriverVersion')}, "
        f"{repeat} calls each\n"
    )
    print("| call | asked | wall p50 us | wall max us | CPU mean us |")
    print("|---|---|---|---|---|")
    for what, tier, job in jobs(driver):
        wall, cpu, refusal = cost(job, repeat)
        figures = f"{statistics.median(wall):,.1f} | {max(wall):,.0f} | {statistics.mean(cpu):,.1f}"
        print(f"| {what} | {tier} | {figures} | {refusal}" if refusal else f"| {what} | {tier} | {figures} |")
    driver.close()


if __name__ == "__main__":
    main()
