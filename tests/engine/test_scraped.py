"""What an engine's /metrics says, release by release."""

from dataclasses import fields
from typing import Any

import pytest

from solpi_exporter.engine import scraped
from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.engine.scraped import parse
from solpi_exporter.metric import Distribution
from tests.fakes import RECORDINGS, SHIPPED, values

VLLM_V0 = """\
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:cpu_cache_usage_perc{model_name="m"} 0.25
vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.75
vllm:cpu_prefix_cache_hit_rate{model_name="m"} 0.125
vllm:num_requests_running{model_name="m"} 9.0
vllm:num_requests_waiting{model_name="m"} 4.0
vllm:num_requests_swapped{model_name="m"} 3.0
vllm:num_preemptions_total{model_name="m"} 7.0
vllm:prompt_tokens_total{model_name="m"} 1000.0
vllm:generation_tokens_total{model_name="m"} 2000.0
vllm:avg_prompt_throughput_toks_per_s{model_name="m"} 40.5
vllm:avg_generation_throughput_toks_per_s{model_name="m"} 80.5
vllm:iteration_tokens_total_count{model_name="m"} 300.0
vllm:request_success_total{finished_reason="stop",model_name="m"} 5.0
vllm:cache_config_info{block_size="16",num_cpu_blocks="None",num_gpu_blocks="192"} 1.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 1.5
vllm:time_per_output_token_seconds_bucket{le="0.1",model_name="m"} 10.0
vllm:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 30.0
vllm:time_in_queue_requests_sum{model_name="m"} 2.5
vllm:time_in_queue_requests_bucket{le="+Inf",model_name="m"} 8.0
"""
VLLM_0_16 = """\
vllm:kv_offload_total_bytes_total{engine="0",transfer_type="CPU_to_GPU"} 10.0
vllm:kv_offload_total_bytes_total{engine="0",transfer_type="GPU_to_CPU"} 20.0
vllm:kv_offload_total_time_total{engine="0",transfer_type="CPU_to_GPU"} 1.0
vllm:kv_offload_total_time_total{engine="0",transfer_type="GPU_to_CPU"} 2.0
"""
VLLM_0_32 = """\
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:num_requests_waiting{engine="0"} 6.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="deferred"} 4.0
vllm:num_requests_kv_fetch_by_stage{engine="0",stage="waiting_to_start"} 3.0
vllm:num_requests_kv_fetch_by_stage{engine="0",stage="in_progress"} 2.0
vllm:num_requests_kv_fetch_by_stage{engine="0",stage="completed_waiting"} 1.0
vllm:kv_offload_cpu_cache_usage_perc{engine="0"} 0.25
vllm:kv_offload_store_bytes_total{engine="0"} 200.0
vllm:kv_offload_store_time_total{engine="0"} 2.0
vllm:kv_offload_load_bytes_total{engine="0"} 100.0
vllm:kv_offload_load_time_total{engine="0"} 1.0
vllm:nixl_bytes_transferred_bucket{engine="0",le="+Inf"} 4.0
vllm:nixl_bytes_transferred_sum{engine="0"} 4096.0
vllm:nixl_xfer_time_seconds_sum{engine="0"} 0.5
vllm:nixl_num_failed_transfers_total{engine="0"} 3.0
"""
SGLANG_0_4 = """\
sglang:prompt_tokens_total{model_name="m"} 1000.0
sglang:generation_tokens_total{model_name="m"} 2000.0
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.5
sglang:num_running_reqs{model_name="m"} 9.0
sglang:num_queue_reqs{model_name="m"} 4.0
sglang:gen_throughput{model_name="m"} 86.5
sglang:time_to_first_token_seconds_sum{model_name="m"} 1.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 2.0
sglang:time_per_output_token_seconds_sum{model_name="m"} 3.0
sglang:time_per_output_token_seconds_bucket{le="+Inf",model_name="m"} 4.0
"""
SGLANG_0_5 = """\
sglang:max_total_num_tokens{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 444500.0
sglang:num_retracted_requests_total{model_name="m",pp_rank="0",tp_rank="0"} 7.0
sglang:num_retracted_reqs{model_name="m",pid="1",pp_rank="0",tp_rank="0"} 1.0
sglang:evicted_tokens_total{model_name="m",pp_rank="0",tp_rank="0"} 50.0
sglang:load_back_tokens_total{model_name="m",pp_rank="0",tp_rank="0"} 60.0
sglang:hicache_backup_bytes_total{dp_rank="0",pp_rank="0",tp_rank="0"} 200.0
sglang:hicache_backup_duration_seconds_sum{dp_rank="0",pp_rank="0",tp_rank="0"} 2.0
sglang:load_back_bytes_total{dp_rank="0",pp_rank="0",tp_rank="0"} 100.0
sglang:load_back_duration_seconds_sum{dp_rank="0",pp_rank="0",tp_rank="0"} 1.0
sglang:inter_token_latency_seconds_sum{model_name="m"} 3.0
sglang:inter_token_latency_seconds_bucket{le="+Inf",model_name="m"} 4.0
sglang:queue_time_seconds_sum{model_name="m",pp_rank="0",tp_rank="0"} 5.0
sglang:queue_time_seconds_bucket{le="+Inf",model_name="m",pp_rank="0",tp_rank="0"} 6.0
"""
TENSORRT_LLM = """\
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.62
trtllm_kv_cache_hit_rate{engine_type="trtllm",model_name="m"} 0.38
trtllm_kv_cache_max_blocks{engine_type="trtllm",model_name="m"} 100.0
trtllm_kv_cache_tokens_per_block{engine_type="trtllm",model_name="m"} 32.0
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 9.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 4.0
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="m"} 1000.0
trtllm_generation_tokens_total{engine_type="trtllm",model_name="m"} 2000.0
trtllm_kv_cache_offload_bytes_total{engine_type="trtllm",model_name="m"} 200.0
trtllm_kv_cache_onboard_bytes_total{engine_type="trtllm",model_name="m"} 100.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="stop",model_name="m"} 95.0
trtllm_request_success_total{engine_type="trtllm",finished_reason="length",model_name="m"} 5.0
trtllm_time_to_first_token_seconds_sum{engine_type="trtllm",model_name="m"} 1.0
trtllm_time_to_first_token_seconds_bucket{engine_type="trtllm",le="+Inf",model_name="m"} 2.0
trtllm_time_per_output_token_seconds_sum{engine_type="trtllm",model_name="m"} 3.0
trtllm_time_per_output_token_seconds_bucket{engine_type="trtllm",le="+Inf",model_name="m"} 4.0
trtllm_request_queue_time_seconds_sum{engine_type="trtllm",model_name="m"} 5.0
trtllm_request_queue_time_seconds_bucket{engine_type="trtllm",le="+Inf",model_name="m"} 6.0
"""
WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "vLLM V0": (
        VLLM_V0,
        {
            "kv_cache_usage_ratio": 0.5,
            "kv_cache_capacity_tokens": 3072.0,
            "swap_usage_ratio": 0.25,
            "prefix_hit_ratio": 0.75,
            "cpu_hit_ratio": 0.125,
            "running": 9.0,
            "waiting": 4.0,
            "swapped": 3.0,
            "preemptions": 7.0,
            "prompt_tokens": 1000.0,
            "generation_tokens": 2000.0,
            "prompt_tokens_per_second": 40.5,
            "generation_tokens_per_second": 80.5,
            "steps": 300.0,
            "finished": (("stop", 5.0),),
            "inter_token_latency": Distribution((0.1,), (10.0,), 30.0, 1.5),
            "queue_time": Distribution((), (), 8.0, 2.5),
        },
    ),
    "vLLM 0.16": (
        VLLM_0_16,
        {"stored_bytes": 20.0, "stored_seconds": 2.0, "loaded_bytes": 10.0, "loaded_seconds": 1.0},
    ),
    "vLLM 0.32": (
        VLLM_0_32,
        {
            "kv_cache_usage_ratio": 0.5,
            "waiting": 6.0,
            "deferred": 4.0,
            "fetch_waiting": 3.0,
            "fetch_in_progress": 2.0,
            "fetch_completed": 1.0,
            "offload_usage_ratio": 0.25,
            "stored_bytes": 200.0,
            "stored_seconds": 2.0,
            "loaded_bytes": 100.0,
            "loaded_seconds": 1.0,
            "received_bytes": 4096.0,
            "received_seconds": 0.5,
            "failed_transfers": 3.0,
        },
    ),
    "SGLang 0.4": (
        SGLANG_0_4,
        {
            "kv_cache_usage_ratio": 0.28,
            "prefix_hit_ratio": 0.5,
            "running": 9.0,
            "waiting": 4.0,
            "generation_tokens_per_second": 86.5,
            "prompt_tokens": 1000.0,
            "generation_tokens": 2000.0,
            "time_to_first_token": Distribution((), (), 2.0, 1.0),
            "inter_token_latency": Distribution((), (), 4.0, 3.0),
        },
    ),
    "SGLang 0.5": (
        SGLANG_0_5,
        {
            "kv_cache_capacity_tokens": 444500.0,
            "preemptions": 7.0,
            "stored_bytes": 200.0,
            "stored_seconds": 2.0,
            "loaded_bytes": 100.0,
            "loaded_seconds": 1.0,
            "inter_token_latency": Distribution((), (), 4.0, 3.0),
            "queue_time": Distribution((), (), 6.0, 5.0),
        },
    ),
    "TensorRT-LLM": (
        TENSORRT_LLM,
        {
            "kv_cache_usage_ratio": 0.62,
            "kv_cache_capacity_tokens": 3200.0,
            "prefix_hit_ratio": 0.38,
            "running": 9.0,
            "waiting": 4.0,
            "prompt_tokens": 1000.0,
            "generation_tokens": 2000.0,
            "stored_bytes": 200.0,
            "loaded_bytes": 100.0,
            "finished": (("stop", 95.0), ("length", 5.0)),
            "time_to_first_token": Distribution((), (), 2.0, 1.0),
            "inter_token_latency": Distribution((), (), 4.0, 3.0),
            "queue_time": Distribution((), (), 6.0, 5.0),
        },
    ),
}
# Histograms of recordings as their count and sum.
RECORDED: dict[str, dict[str, Any]] = {
    "vllm-0.8.5/kv-pressure.metrics.stage4.txt": {
        "kv_cache_usage_ratio": 0.84375,
        "kv_cache_capacity_tokens": 3072.0,
        "running": 9.0,
        "waiting": 22.0,
        "preemptions": 184.0,
        "prompt_tokens": 54759.0,
        "generation_tokens": 44960.0,
        "steps": 7532.0,
        "finished": (("length", 169.0),),
        "time_to_first_token": (362.0, 376.0713415145874),
        "inter_token_latency": (44598.0, 546.1837778091431),
        "queue_time": (169.0, 160.12452244758606),
    },
    "vllm-0.11.2/kv-pressure.metrics.stage4.txt": {
        "kv_cache_usage_ratio": 0.9842931937172775,
        "running": 11.0,
        "waiting": 21.0,
        "preemptions": 74.0,
        "prompt_tokens": 10624.0,
        "generation_tokens": 18848.0,
        "steps": 2322.0,
        "finished": (("stop", 0.0), ("length", 67.0), ("abort", 0.0)),
        "time_to_first_token": (83.0, 310.65129685401917),
        "inter_token_latency": (18776.0, 742.4784869320024),
        "queue_time": (67.0, 26.570418727000742),
    },
    "vllm-0.24.0-h200/c-kv-pressure.metrics.txt": {
        "kv_cache_usage_ratio": 0.0,
        "kv_cache_capacity_tokens": 8192.0,
        "max_concurrency": 2.0,
        "running": 0.0,
        "waiting": 0.0,
        "deferred": 0.0,
        "preemptions": 661.0,
        "prompt_tokens": 345856.0,
        "generation_tokens": 233472.0,
        "steps": 10246.0,
        "finished": (("stop", 0.0), ("length", 1092.0), ("abort", 0.0), ("error", 0.0), ("repetition", 0.0)),
        "time_to_first_token": (1092.0, 525.5903668403625),
        "inter_token_latency": (232380.0, 1644.536700669977),
        "queue_time": (1092.0, 438.4704043470009),
    },
    "vllm-0.24.0-h200/d-kv-offload.metrics.txt": {
        "kv_cache_usage_ratio": 0.0,
        "kv_cache_capacity_tokens": 8192.0,
        "max_concurrency": 2.0,
        "running": 0.0,
        "waiting": 0.0,
        "deferred": 0.0,
        "offload_usage_ratio": 0.0,
        "preemptions": 10633.0,
        "stored_bytes": 18740150272.0,
        "stored_seconds": 0.4633104003369805,
        "loaded_bytes": 45120225280.0,
        "loaded_seconds": 1.4397432627156372,
        "prompt_tokens": 396928.0,
        "generation_tokens": 220544.0,
        "steps": 10632.0,
        "finished": (("stop", 0.0), ("length", 1085.0), ("abort", 0.0), ("error", 0.0), ("repetition", 0.0)),
        "time_to_first_token": (1085.0, 590.8246190547943),
        "inter_token_latency": (219459.0, 1557.4961847949955),
        "queue_time": (1085.0, 535.735862208),
    },
    "vllm-0.32.0/kv-pressure.metrics.txt": {
        "kv_cache_usage_ratio": 0.0,
        "kv_cache_capacity_tokens": 3072.0,
        "max_concurrency": 3.0,
        "running": 0.0,
        "waiting": 0.0,
        "deferred": 0.0,
        "preemptions": 121.0,
        "prompt_tokens": 26368.0,
        "generation_tokens": 52736.0,
        "steps": 8038.0,
        "finished": (("stop", 0.0), ("length", 206.0), ("abort", 0.0), ("error", 0.0), ("repetition", 0.0)),
        "time_to_first_token": (206.0, 877.737060546875),
        "inter_token_latency": (52530.0, 1245.3221569930006),
        "queue_time": (206.0, 840.1468948640027),
    },
}
IDENTITY = ("server", "engine", "show_histograms")


def recorded(name: str) -> str:
    shipped = SHIPPED / name
    return (shipped if shipped.exists() else RECORDINGS / name).read_text()


def readings(text: str) -> dict[str, EngineReading]:
    return {reading.engine: reading for reading in parse(text, "s")}


def only(text: str) -> EngineReading:
    (reading,) = parse(text, "s")
    return reading


def known(reading: EngineReading) -> dict[str, Any]:
    """Return every attribute that says something."""
    said = {each.name: getattr(reading, each.name) for each in fields(reading) if each.name not in IDENTITY}
    return {name: value for name, value in said.items() if value not in (None, ())}


def short(value: object) -> object:
    return (value.count, value.sum) if isinstance(value, Distribution) else value


@pytest.mark.parametrize(("text", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_every_engine_speaks_one_vocabulary(text: str, expected: dict[str, Any]) -> None:
    """Whatever a release calls it, and nothing that it does not say."""
    assert known(only(text)) == expected


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_servers(name: str) -> None:
    """From V0 to the newest release, exactly what the recording holds: 0.8.5 has hidden its swapped requests."""
    said = known(only(recorded(name)))

    assert {attribute: short(value) for attribute, value in said.items()} == RECORDED[name]


def test_every_name_is_tested() -> None:
    """A name of the tables that no exposition above holds would be one that nobody has checked."""
    names = {line.split("{")[0] for text, _ in WRITTEN.values() for line in text.splitlines()}
    names |= {line.split("{")[0] for name in RECORDED for line in recorded(name).splitlines()}

    assert {series.name for series in scraped.SERIES} <= names
    assert {f"{name}_bucket" for name in scraped.HISTOGRAMS} <= names
    assert {*scraped.FINISHED, scraped.CACHE, *scraped.BLOCKS} <= names


def test_each_engine_of_a_server_is_one_reading() -> None:
    """vLLM's data parallel engines are told apart by their number."""
    both = readings(recorded("vllm-0.32.0/dp2-one-api-server.metrics.txt"))

    assert {engine: reading.preemptions for engine, reading in both.items()} == {"0": 1.0, "1": 2.0}
    assert {engine: reading.steps for engine, reading in both.items()} == {"0": 1154.0, "1": 1028.0}
    assert {engine: reading.max_concurrency for engine, reading in both.items()} == {"0": 3.0, "1": 3.0}


def test_old_and_new_histogram_in_one_answer_count_once() -> None:
    """0.11 prints the inter-token latency under both names, and 0.7 the time in the queue; the newer is taken."""
    newer = [("inter_token_latency_seconds", 4), ("request_queue_time_seconds", 5)]
    line = 'vllm:{0}_bucket{{engine="0",le="+Inf"}} {1}\nvllm:{0}_sum{{engine="0"}} 0\n'

    reading = only(VLLM_V0 + "".join(line.format(*each) for each in newer))

    assert reading.inter_token_latency == Distribution((), (), 4.0, 0.0)
    assert reading.queue_time == Distribution((), (), 5.0, 0.0)


@pytest.mark.parametrize("old_first", [True, False])
def test_old_and_new_name_of_a_copy_are_not_added_up(old_first: bool) -> None:
    """0.24 prints what it offloads under both; the newer is taken, whatever the order."""
    texts = [VLLM_0_16, VLLM_0_32]

    reading = only("".join(texts if old_first else reversed(texts)))

    assert (reading.stored_bytes, reading.stored_seconds) == (200.0, 2.0)
    assert (reading.loaded_bytes, reading.loaded_seconds) == (100.0, 1.0)


def test_copies_elsewhere_than_to_the_host_are_not_counted() -> None:
    """Connectors of others use the old name with types of their own."""
    text = 'vllm:kv_offload_total_bytes_total{engine="0",transfer_type="GPU_to_SHARED_STORAGE"} 5\n'

    assert known(only(text)) == {}


def test_v1_has_no_swap_to_speak_of() -> None:
    """Absent, which is not 0."""
    reading = only(recorded("vllm-0.32.0/kv-pressure.metrics.txt"))

    assert reading.swapped is None
    assert reading.swap_usage_ratio is None
    assert reading.stored_bytes is None
    assert reading.fetch_waiting is None


def test_a_cache_that_is_off_has_no_hits() -> None:
    """V0 says -1 of a prefix cache that it does not use."""
    text = "vllm:gpu_prefix_cache_hit_rate -1.0\nvllm:cpu_prefix_cache_hit_rate -1.0\nvllm:num_requests_running 3.0\n"

    assert known(only(text)) == {"running": 3.0}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ('block_size="16",num_gpu_blocks="192"', {"kv_cache_capacity_tokens": 3072.0}),
        ('block_size="16",kv_cache_size_tokens="5000",num_gpu_blocks="192"', {"kv_cache_capacity_tokens": 5000.0}),
        ('block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="None"', {}),
        ('kv_cache_max_concurrency="1.75"', {"max_concurrency": 1.75}),
        ('kv_cache_max_concurrency="inf"', {}),
    ],
)
def test_capacity_is_what_the_cache_settings_tell(labels: str, expected: dict[str, float]) -> None:
    """Tokens where they are told, else blocks; "None" is not known."""
    assert known(only(f"vllm:cache_config_info{{{labels}}} 1.0\n")) == expected


def test_blocks_of_unknown_size_are_no_capacity() -> None:
    """TensorRT-LLM tells both; one alone says nothing of tokens."""
    assert known(only("trtllm_kv_cache_max_blocks 100.0\n")) == {}


def test_ranks_that_run_one_engine_together_do_not_add_up() -> None:
    """Every rank of SGLang counts the same retractions; the first of the first stage speaks for all."""
    line = 'sglang:num_retracted_requests_total{{pp_rank="{}",tp_rank="{}"}} {}\n'
    ranks = [("1", "0", 5), ("0", "10", 6), ("0", "2", 7)]

    assert only("".join(line.format(*rank) for rank in ranks)).preemptions == 7.0


def test_histograms_of_ranks_do_not_add_up() -> None:
    """A request waits once, however many ranks tell of it."""
    second = SGLANG_0_5.replace('tp_rank="0"', 'tp_rank="1"')

    assert only(SGLANG_0_5 + second).queue_time == Distribution((), (), 6.0, 5.0)


def test_shares_of_a_copy_add_up_over_ranks() -> None:
    """Each rank of SGLang moves its own part of the KV cache."""
    reading = only(SGLANG_0_5 + SGLANG_0_5.replace('tp_rank="0"', 'tp_rank="1"'))

    assert (reading.stored_bytes, reading.stored_seconds) == (400.0, 4.0)
    assert (reading.loaded_bytes, reading.loaded_seconds) == (200.0, 2.0)
    assert reading.kv_cache_capacity_tokens == 444500.0


def test_data_parallel_ranks_are_engines() -> None:
    """Under SGLang's data parallel attention each has other tensor parallel ranks, none of which is 0 in the second."""
    line = 'sglang:num_running_reqs{{dp_rank="{}",pp_rank="0",tp_rank="{}"}} {}\n'
    text = line.format("0", "0", 3) + line.format("1", "4", 5) + line.format("1", "5", 5)

    assert {engine: reading.running for engine, reading in readings(text).items()} == {"0": 3.0, "1": 5.0}


def test_priorities_are_not_added_to_their_total() -> None:
    """SGLang tells queues for each priority as well, and tokens for each priority only."""
    line = 'sglang:{}{{priority="{}"}} {}\n'
    queues = [("num_queue_reqs", "", 5), ("num_queue_reqs", "1", 2), ("num_queue_reqs", "2", 3)]
    tokens = [("prompt_tokens_total", "1", 10), ("prompt_tokens_total", "2", 20)]

    reading = only("".join(line.format(*each) for each in queues + tokens))

    assert reading.waiting == 5.0
    assert reading.prompt_tokens == 30.0


def test_a_server_without_statistics_yields_no_engine() -> None:
    """--disable-log-stats leaves nothing of vLLM in the answer; that is absence, not zero."""
    assert readings(recorded("vllm-0.32.0/no-stats.metrics.txt")) == {}


def test_histograms_can_be_left_out() -> None:
    """Where Prometheus scrapes vLLM itself, they would be stored twice."""
    text = recorded("vllm-0.24.0-h200/c-kv-pressure.metrics.txt")

    reading = next(parse(text, "s", show_histograms=False))
    shown = values(list(reading.samples()))

    assert reading.inter_token_latency is not None  # the engine's own token needs it all the same
    assert "solpi_engine_inter_token_latency_seconds" not in shown
    assert shown["solpi_engine_preemptions_total"] == {("s", "0"): 661.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-0.5", "1.5", "97.0"])
@pytest.mark.parametrize(
    "name",
    ["vllm:kv_cache_usage_perc", "vllm:kv_offload_cpu_cache_usage_perc", "sglang:cache_hit_rate", "sglang:token_usage"],
)
def test_what_cannot_be_a_ratio_is_not_known(name: str, value: str) -> None:
    """Prometheus may say NaN; a usage above 1 is another unit."""
    assert known(only(f"{name} {value}\nvllm:num_requests_running 3.0\n")) == {"running": 3.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_what_cannot_be_a_number_of_things_is_not_known(value: str) -> None:
    """Nothing that is counted here is negative or without end."""
    text = f"vllm:num_requests_waiting {value}\nvllm:num_requests_running 3.0\n"

    assert known(only(text)) == {"running": 3.0}


def test_old_and_new_name_of_a_ratio_are_not_summed() -> None:
    """0.9.2 to 0.10.2 print the KV usage under both."""
    text = "".join(f'vllm:{name}{{engine="0"}} 0.45\n' for name in ("gpu_cache_usage_perc", "kv_cache_usage_perc"))

    assert only(text).kv_cache_usage_ratio == 0.45


def test_a_ratio_of_several_models_is_the_largest() -> None:
    """Two halves are not one whole."""
    line = 'vllm:kv_cache_usage_perc{{engine="0",model_name="{}"}} {}\n'

    assert only(line.format("a", 0.7) + line.format("b", 0.6)).kv_cache_usage_ratio == 0.7


def test_series_of_several_models_add_up() -> None:
    """Labels other than the engine do not multiply its counters."""
    line = 'vllm:num_preemptions_total{{engine="0",model_name="{}"}} {}\n'

    assert only(line.format("a", 3) + line.format("b", 4)).preemptions == 7.0


def test_a_histogram_without_its_last_bucket_is_not_known() -> None:
    """A sum without a count is no distribution, and a bucket without a bound none at all."""
    name = "vllm:inter_token_latency_seconds"
    text = f'{name}_sum{{engine="0"}} 3\n{name}_bucket{{engine="0"}} 3\nvllm:num_requests_running{{engine="0"}} 1\n'

    assert known(only(text)) == {"running": 1.0}


def test_a_line_separator_in_a_label_is_no_end_of_line() -> None:
    """Only a newline ends a line of an exposition."""
    text = 'vllm:num_requests_running{engine="0",model_name="a\u2028b"} 3\n'

    assert only(text).running == 3.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("<html>please log in</html>\n", "the answer is no exposition"),
        ('[{"iter": 1}]', "the answer is no exposition"),
        ("sglang:num_running_reqs 12", "the answer is cut off"),
        ("sglang:num_running_reqs{tp_rank= 3\n", "Invalid"),
    ],
    ids=["a page", "TensorRT-LLM's JSON", "cut off", "broken"],
)
def test_what_is_no_exposition_is_refused(text: str, error: str) -> None:
    """Rather than read as an engine that says nothing."""
    with pytest.raises(ValueError, match=error):
        list(parse(text, "s"))


def test_a_histogram_without_its_sum_is_none() -> None:
    """A mean of 0 would be made of it; an unbelievable sum is as good as none."""
    buckets = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf"} 4\n'

    assert only(buckets + 'vllm:num_requests_running{engine="0"} 1\n').time_to_first_token is None
    assert only(buckets + 'vllm:time_to_first_token_seconds_sum{engine="0"} -1\n').time_to_first_token is None


def test_blocks_are_no_size_where_models_may_be_hybrid() -> None:
    """V1's own figure divides by groups of layers and multiplies by ranks: without it, the log knows better."""
    cache = 'vllm:cache_config_info{engine="0",num_gpu_blocks="1000",block_size="16"} 1\n'

    assert only(cache + 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\n').kv_cache_capacity_tokens == 16000.0
    assert only(cache + 'vllm:kv_cache_usage_perc{engine="0"} 0.5\n').kv_cache_capacity_tokens is None
