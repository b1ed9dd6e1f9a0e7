"""A recorded run: its lines, its metrics at any instant."""

from typing import Any

import pytest

from solpi_exporter.demo.recording import RUNS, RecordedMetrics, frames_of, load_device, load_run, timed_lines
from solpi_exporter.engine.scraped import parse
from solpi_exporter.gpu.driver import Device
from solpi_exporter.gpu.fields import FIELDS
from solpi_exporter.gpu.origins import Call
from solpi_exporter.gpu.recording import key_of

EXPOSITION = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 0.0
vllm:num_preemptions_total{engine="0"} 40.0
vllm:num_preemptions_created{engine="0"} 1.7e+09
vllm:x_seconds_bucket{engine="0",le="0.1"} 10.0
vllm:x_seconds_bucket{engine="0",le="+Inf"} 40.0
vllm:x_seconds_count{engine="0"} 40.0
vllm:x_seconds_sum{engine="0"} 8.0
vllm:cache_config_info{block_size="16"} 1.0
python_info{version="3"} 1.0
"""
SNAPSHOTS = [
    (
        110.0,
        {
            'vllm:num_requests_running{engine="0"}': 4.0,
            'vllm:num_preemptions_total{engine="0"}': 20.0,
            'vllm:x_seconds_count{engine="0"}': 20.0,
            'vllm:x_seconds_sum{engine="0"}': 3.0,
        },
    )
]


@pytest.fixture
def metrics() -> RecordedMetrics:
    return RecordedMetrics(EXPOSITION, SNAPSHOTS, start=100.0, end=120.0)


@pytest.mark.parametrize(
    ("time", "preemptions"), [(90.0, 0.0), (100.0, 0.0), (105.0, 10.0), (110.0, 20.0), (115.0, 30.0), (130.0, 40.0)]
)
def test_counters_run_straight_between_snapshots(metrics: RecordedMetrics, time: float, preemptions: float) -> None:
    """From nothing at the start through each snapshot to the whole text at the end."""
    assert metrics.value('vllm:num_preemptions_total{engine="0"}', time) == preemptions


def test_counts_are_whole_numbers(metrics: RecordedMetrics) -> None:
    """There is no third of a preemption."""
    assert metrics.value('vllm:num_preemptions_total{engine="0"}', 100.9) == 1.0


def test_gauges_hold_until_the_next_snapshot(metrics: RecordedMetrics) -> None:
    """A value that was not recorded is the last one that was."""
    running = 'vllm:num_requests_running{engine="0"}'

    assert [metrics.value(running, time) for time in (105.0, 110.0, 119.0, 120.0)] == [0.0, 4.0, 4.0, 0.0]


def test_buckets_keep_their_share_of_the_end(metrics: RecordedMetrics) -> None:
    """A quarter of the observations were below 0.1 at the end, so they are at any instant; all are below +Inf."""
    assert metrics.value('vllm:x_seconds_bucket{engine="0",le="0.1"}', 110.0) == 5.0
    assert metrics.value('vllm:x_seconds_bucket{engine="0",le="+Inf"}', 110.0) == 20.0


def test_the_text_is_vllms_alone(metrics: RecordedMetrics) -> None:
    """Info stays as it is; creation times and what is Python's are left out."""
    text = metrics.text(110.0)

    assert 'vllm:cache_config_info{block_size="16"} 1.0' in text
    assert "_created" not in text
    assert "python_info" not in text


def test_lines_without_a_stamp_follow_the_line_before() -> None:
    """An access line was written when the logger line before it was, as far as anybody knows."""
    start = 1795967056.0  # 2026-11-29 15:44:16 UTC
    lines = ["INFO: no stamp", "(APIServer pid=1) INFO 11-29 15:44:20 [a.py:1] x", "INFO: no stamp"]

    assert [time - start for time, _ in timed_lines(lines, start)] == [0.0, 4.0, 4.0]


@pytest.mark.parametrize("name", RUNS)
def test_a_shipped_run_is_consistent(name: str) -> None:
    """Counters never fall, buckets ascend, and the whole answer parses at every second."""
    run = load_run(name)
    last = 0.0
    for second in range(int(run.end - run.start)):
        (reading,) = parse(run.metrics.text(run.start + second), "s")
        assert reading.inter_token_latency is not None
        counts = (*reading.inter_token_latency.counts, reading.inter_token_latency.count)
        assert list(counts) == sorted(counts)
        assert reading.generation_tokens is not None
        assert reading.generation_tokens >= last
        last = reading.generation_tokens
    assert last > 0


def test_the_device_names_no_machine() -> None:
    """The UUID is made up and no serial is in the recording."""
    device = load_device()

    assert device["0 nvmlDeviceGetUUID"] == "GPU-00000000-1111-2222-3333-444444444444"
    assert not any("Serial" in key for key in device)


def test_the_device_answers_what_the_daemon_asks() -> None:
    """Its keys are those of a recording: the driver's own, and those of GPU 0."""
    asked = {field.origin.name for field in FIELDS if isinstance(field.origin, Call)}
    identity = {f"nvmlDeviceGet{what}" for what in ("UUID", "Name", "PciInfo", "VbiosVersion")}
    for key in load_device():
        place, _, call = key.partition(" ")
        assert place in ("-", "0")
        assert call in asked | identity if place == "0" else call.startswith(("nvmlSystemGet", "nvmlDeviceGetCount"))


def sample(time: float, util_samples: list[int], sm: float = 50.0) -> dict[str, Any]:
    recorded = load_run("a-before").samples[100]
    return {**recorded, "t": time, "util_samples": util_samples, "gpm": {**recorded["gpm"], "SM_UTIL": sm}}


def test_a_sample_becomes_a_frame() -> None:
    """At its own time, every answer under the key by which the daemon asks for it."""
    ((time, answers),) = frames_of([sample(100.0, [])])

    asked = {
        key_of(Device(0), field.origin.name, *field.origin.args) for field in FIELDS if isinstance(field.origin, Call)
    }
    assert time == 100.0
    assert {key for key in answers if "nvml" in key} <= asked
    assert {key for key in answers if "nvml" not in key} == {
        *(f"0 gpm {number}" for number in (1, 2, 3, 5, 10, 20, 21)),
        *(f"0 field {number} 0" for number in (74, 82, 186)),
        "0 samples 1",
    }


def test_a_gpm_metric_that_was_no_number_is_left_out() -> None:
    """As by the driver."""
    ((_, answers),) = frames_of([sample(100.0, [], sm=float("nan"))])

    assert "0 gpm 2" not in answers
    assert answers["0 gpm 1"] is not None


def test_utilisation_samples_stand_between_two_samples() -> None:
    """Evenly, the last at the time of the sample that brought them, in microseconds."""
    frames = list(frames_of([sample(100.0, [1, 2]), sample(102.0, [3, 4, 5, 6]), sample(103.0, [])]))

    assert [answers["0 samples 1"] for _, answers in frames] == [
        [(99_500_000, 1), (100_000_000, 2)],
        [(100_500_000, 3), (101_000_000, 4), (101_500_000, 5), (102_000_000, 6)],
        [],
    ]
