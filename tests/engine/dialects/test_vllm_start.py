"""vLLM's start: version, model, settings by name, the size of the KV cache, and what is kept to itself."""

from time import perf_counter

import pytest

from solpi_exporter.engine.dialects.dialect import Capacity, Setting
from solpi_exporter.engine.dialects.vllm import parse
from solpi_exporter.engine.dialects.vllm_start import ARGUMENTS, CAPACITY_FILES, SETTING_FILES, SETTINGS
from tests.engine.dialects.lines import event_of, head_of, log_line
from tests.fakes import RECORDINGS, SHIPPED

CORE = "(EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] "
UTILS = head_of("utils")
SECRET = "sk-0123456789abcdef"


def setting(line: str) -> Setting:
    event = event_of(line)
    assert isinstance(event, Setting)
    return event


def test_the_engines_settings_are_read_by_name() -> None:
    """Those on the list, out of a Python repr that nests and holds commas of its own."""
    lines = (SHIPPED / "vllm-0.24.0-h200/a-before.log").read_text().split("\n")
    start = next(event for event in map(event_of, lines) if isinstance(event, Setting) and event.engine is not None)

    assert dict(start.values) == {
        "version": "0.24.0",
        "model": "llama-8b-shape",
        "max_seq_len": "4096",
        "tensor_parallel_size": "1",
        "pipeline_parallel_size": "1",
        "data_parallel_size": "1",
        "quantization": "None",
        "enforce_eager": "True",
        "kv_cache_dtype": "auto",
        "enable_prefix_caching": "True",
        "enable_chunked_prefill": "True",
    }


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("vllm-v0-0.2.0-0.4.2.log", "blocks:", Capacity("0", blocks=7450.0)),
        ("vllm-v0-0.8-0.10.2.log", "blocks:", Capacity("0", blocks=27330.0)),
        ("vllm-v0-0.8-0.10.2.log", "Maximum concurrency", Capacity("0", concurrency=53.38)),
        ("vllm-v1-0.6.6-0.8.2.log", "blocks:", Capacity("0", blocks=27330.0)),
        ("vllm-v1-0.6.6-0.8.2.log", "KV cache size", Capacity("0", tokens=437280.0)),
        ("vllm-v1-0.6.6-0.8.2.log", "Maximum concurrency for 8,192", Capacity("0", concurrency=53.38)),
        ("vllm-v1-0.8.3-0.10.0.log", "KV cache size", Capacity("0", tokens=1005648.0)),
        ("vllm-v1-0.8.3-0.10.0.log", "num_gpu_blocks is", Capacity("0", blocks=62853.0)),
        ("vllm-v1-dp-and-aggregated.log", "DP1", Capacity("1", tokens=418544.0, concurrency=12.77)),
        ("vllm-v1-0.31-0.33.log", "KV cache size", Capacity("0", tokens=418544.0, concurrency=12.77)),
        ("vllm-json.log", "KV cache size", Capacity("0", tokens=418544.0, concurrency=12.77)),
    ],
)
def test_the_size_of_the_kv_cache_in_each_release(name: str, text: str, expected: Capacity) -> None:
    """In blocks or tokens, with thousands separated or not, and how many of the longest requests fit."""
    assert event_of(log_line(name, text)) == expected


def test_capacity_with_both_facts_on_one_line() -> None:
    """From 0.28 on, size and concurrency share a line, and the device is whatever it is."""
    line = (
        "(EngineCore_DP1 pid=9) INFO 11-29 15:18:14 [kv_cache_utils.py:2327] CPU KV cache size: 3,072 tokens, Maximum"
    )

    assert event_of(line) == Capacity("1", tokens=3072.0)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "GPU + host KV cache size: 1,418,544 tokens, Maximum concurrency for 32,768 tokens per request: 43.29x",
            Capacity("0", tokens=1418544.0, concurrency=43.29),
        ),
        ("XPU KV cache size: 96 tokens", Capacity("0", tokens=96.0)),
        ("# cpu blocks: 512, # CPU blocks: 0", Capacity("0", blocks=512.0)),
        ("Maximum concurrency for 8192 tokens per request: 3x", Capacity("0", concurrency=3.0)),
        (
            "Engine 003: vllm cache_config_info with initialization after num_gpu_blocks is: 62853",
            Capacity("3", blocks=62853.0),
        ),
    ],
)
@pytest.mark.parametrize("file", sorted(CAPACITY_FILES))
def test_each_form_of_a_size(file: str, message: str, expected: Capacity) -> None:
    """From each of the files that have told it."""
    assert event_of(head_of(file) + message) == expected


def test_no_tokens_are_no_size() -> None:
    """A cache of nothing is not known, rather than a division by it."""
    for number in ("0", ",", "0,000"):
        assert event_of(head_of("kv_cache_utils") + f"GPU KV cache size: {number} tokens") == Capacity("0")


@pytest.mark.parametrize(
    "message",
    [
        "4 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: 26159",
        "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: None",
        "GPU KV cache size: 418,544 blocks",
        "GPU KV cache size: nan tokens",
        "# GPU blocks: many",
        "# NPU blocks: 5",
        "see: Maximum concurrency for 8,192 tokens per request: 53.38x",
        "Maximum concurrency for 8,192 tokens per request: infx",
    ],
)
def test_what_is_no_size_of_one_engine_is_not_read(message: str) -> None:
    """Several engines' sum, and what cannot be a number."""
    assert event_of(head_of("loggers") + message) is None


def test_a_size_without_end_is_no_number() -> None:
    """Five thousand digits are no size, and no error."""
    digits = "9" * 5000

    assert event_of(head_of("kv_cache_utils") + f"GPU KV cache size: {digits} tokens") is None
    assert event_of(head_of("executor_base") + f"# cuda blocks: {digits}") is None
    assert parse(f"INFO 11-29 15:38:59 [api_server.py:1] args: Namespace(block_size={digits})") is None


def test_a_setting_that_is_not_on_the_list_is_not_read() -> None:
    """Labels hold what is on a list: never a token, a path or whatever else an engine prints."""
    event = event_of(
        "INFO 11-29 15:39:18 [core.py:1] Initializing a V1 LLM engine (v0.1) with config: model='m', hf_token=secret, "
        "enforce_eager=True, download_dir='/home/somebody'"
    )

    assert event == Setting({"version": "0.1", "model": "m", "enforce_eager": "True"}, engine="0")


def test_the_model_is_the_engines_own() -> None:
    """A draft model of speculative decoding stands in the same line; a path may hold blanks."""
    event = event_of(
        "INFO 11-29 15:39:18 [core.py:1] Initializing a V1 LLM engine (v0.1) with config: "
        "model='/data/my models/llama', speculative_config=SpeculativeConfig(model='acme/draft'), seed=0"
    )

    assert isinstance(event, Setting)
    assert event.values["model"] == "/data/my models/llama"


def test_the_name_that_is_served_is_the_models() -> None:
    """It is what clients ask for, and the label of the engine's own metrics."""
    line = CORE + "Initializing a V1 LLM engine (v0.33.0) with config: model='/m', served_model_name=acme/tiny:8b, x=1"

    assert setting(line).values["model"] == "acme/tiny:8b"


@pytest.mark.parametrize("model", ["", "caf\u00e9", "x" * 201, "a\tb"])
def test_a_model_that_cannot_be_a_label_is_not_known(model: str) -> None:
    """Its name is printable ASCII of a limited length, or it is left out."""
    line = CORE + f"Initializing a V1 LLM engine (v0.33.0) with config: model='{model}', enforce_eager=False"
    known = setting(line).values

    assert known == {"version": "0.33.0", "enforce_eager": "False"}


@pytest.mark.parametrize(("key", "name"), SETTINGS.items())
def test_each_setting_is_read(key: str, name: str) -> None:
    """By the names that it has had; a longer name that ends or begins so is another one."""
    start = CORE + "Initializing a V1 LLM engine (v0.33.0) with config: model='m', "

    assert setting(f"{start}{key}=fp8_e4m3, seed=0").values == {"version": "0.33.0", "model": "m", name: "fp8_e4m3"}
    assert setting(f"{start}draft_{key}=1, {key}_config=2").values == {"version": "0.33.0", "model": "m"}
    assert setting(f"{start}{key}=1, other(x={key}=2)").values[name] == "1"
    assert name not in setting(f"{start}{key}='a b'").values


@pytest.mark.parametrize(
    ("name", "text", "engine", "version"),
    [
        ("vllm-v0-0.2.0-0.4.2.log", "Initializing", "0", None),
        ("vllm-v0-0.8-0.10.2.log", "Initializing", "0", "0.8.5"),
        ("vllm-v1-0.8.3-0.10.0.log", "Initializing", "0", "0.9.2"),
        ("vllm-v1-0.10.1-0.11.2-ansi-prefix.log", "Initializing", "0", "0.11.2"),
        ("vllm-v1-0.31-0.33.log", "Initializing", "0", "0.33.0"),
    ],
)
def test_an_engine_starts_in_each_release(name: str, text: str, engine: str, version: str | None) -> None:
    """With its version, from 0.4.1 on."""
    start = setting(log_line(name, text))

    assert (start.engine, start.server, start.values.get("version")) == (engine, False, version)
    assert start.values["model"].startswith("acme/tiny-")


def test_an_engine_of_several_starts() -> None:
    """The process that says it is the engine."""
    line = "(EngineCore_DP2 pid=9) INFO 11-20 06:00:12 [core.py:139] Initializing a V1 LLM engine (v1) with config: x"

    assert event_of(line) == Setting({"version": "1"}, engine="2")


def test_the_config_that_a_crash_dumps_is_no_start() -> None:
    """It is the same text, from another file."""
    assert event_of(log_line("vllm-trouble.log", "Dumping input data")) is None


@pytest.mark.parametrize(
    "message",
    [
        "vLLM API server version 0.9.2",
        " ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.9.2",
        "vLLM server version 0.9.2, serving x",
    ],
)
def test_a_server_starts_with_its_version(message: str) -> None:
    """In each of the forms that it has had."""
    head = "(APIServer pid=1) INFO 11-20 06:00:01 [launcher.py:367] "

    assert event_of(head + message) == Setting({"version": "0.9.2"}, server=True)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("vllm-v0-0.8-0.10.2.log", "0.8.5"),
        ("vllm-v1-0.8.3-0.10.0.log", "0.9.2"),
        ("vllm-v1-0.10.1-0.11.2-ansi-prefix.log", "0.11.2"),
        ("vllm-v1-0.16-0.27-plain-prefix.log", "0.16.0"),
        ("vllm-v1-0.31-0.33.log", "0.33.0"),
    ],
)
def test_a_server_starts_in_each_release(name: str, version: str) -> None:
    """With a sentence, or with a picture."""
    assert event_of(log_line(name, " version ")) == Setting({"version": version}, server=True)


@pytest.mark.parametrize("message", ["vLLM API server version x", "CUDA version 13.0", " version 1.0 of this"])
def test_another_version_is_not_the_servers(message: str) -> None:
    """A version begins with a digit, and follows its own words."""
    assert event_of(UTILS + message) is None


def test_an_engine_of_the_first_releases_tells_no_version() -> None:
    """Before 0.4.1 its start line had none."""
    line = "INFO 10-03 09:12:02 llm_engine.py:72] Initializing an LLM engine with config: model='a', tokenizer='a'"

    assert event_of(line) == Setting({"model": "a"}, engine="0")


NAMESPACE = (
    "args: Namespace(host='0.0.0.0', api_key='{secret}', hf_token=None, block_size=16, ssl_keyfile='/root/{secret}', "
    "max_num_batched_tokens=2048, middleware=[], max_num_seqs=128)"
)
DICT = (
    "non-default args: {{'model': 'acme/tiny-8b', 'api_key': ['{secret}'], 'block_size': 16, 'max_num_seqs': 128, "
    "'hf_token': '{secret}', 'max_num_batched_tokens': 2048}}"
)


@pytest.mark.parametrize("form", [NAMESPACE, DICT], ids=["Namespace", "dict"])
def test_the_listed_arguments_are_read_and_the_secrets_beside_them_are_not(form: str) -> None:
    """Three numbers, whatever stands around them."""
    event = setting(UTILS + form.format(secret=SECRET))

    assert event == Setting({"block_size": "16", "max_num_seqs": "128", "max_num_batched_tokens": "2048"})
    assert SECRET not in str(event)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("form", ["args: Namespace({}=8)", "non-default args: {{'{}': 8}}"])
def test_each_argument_is_read(form: str, name: str) -> None:
    """Alone, as the first and the last one."""
    assert setting(UTILS + form.format(name)).values == {name: "8"}


@pytest.mark.parametrize(
    "arguments",
    [
        "Namespace(block_size=None, max_num_seqs='12')",
        "Namespace(my_block_size=12)",
        "Namespace(api_key='block_size=12')",
        "{'api_key': 'block_size: 12'}",
        "Namespace(api_key='a, block_size=12, b')",
        "{'api_key': \"it's, block_size=12, b\"}",
        "{'kv_transfer_config': KVTransferConfig(kv_connector='OffloadingConnector', "
        "kv_connector_extra_config={'num_cpu_blocks': 1000, 'block_size': 64})}",
        "{'speculative_config': {'method': 'eagle', 'max_num_seqs': 4}}",
        "[('block_size', 12)]",
    ],
)
def test_what_stands_within_an_argument_is_not_read(arguments: str) -> None:
    """Neither a connector's own block size nor a text that looks like an argument is the engine's."""
    assert event_of(UTILS + f"non-default args: {arguments}") is None


@pytest.mark.parametrize("text", ["'\\", "\\'", '"\\', "'", "(", "[", "'a': ", ", "])
def test_a_long_argument_is_read_at_once(text: str) -> None:
    """Quotes and brackets that never close are passed over once: 40 kB take milliseconds, not seconds."""
    begin = perf_counter()
    event_of(UTILS + "non-default args: {" + text * 20_000 + "\\")

    assert perf_counter() - begin < 2


def test_the_arguments_of_a_recorded_server_are_read() -> None:
    """0.8.5 prints them all."""
    lines = (RECORDINGS / "vllm-0.8.5/kv-pressure.log").read_text().split("\n")

    assert setting(next(line for line in lines if "args: Namespace(" in line)).values == {"block_size": "16"}


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("vllm-v1-0.8.3-0.10.0.log", "non-default args", {"max_num_seqs": "128"}),
        ("vllm-v1-0.31-0.33.log", "non-default args", {"max_num_seqs": "256"}),
        ("vllm-v1-0.8.3-0.10.0.log", "Using max model len", {"max_seq_len": "32768"}),
        (
            "vllm-v1-0.10.1-0.11.2-ansi-prefix.log",
            "Chunked prefill",
            {"enable_chunked_prefill": "True", "max_num_batched_tokens": "2048"},
        ),
    ],
)
def test_what_is_said_of_the_settings_in_each_release(name: str, text: str, values: dict[str, str]) -> None:
    """Sentences and arguments, before the engine's own line or in place of it."""
    assert event_of(log_line(name, text)) == Setting(values)


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (
            "Chunked prefill is enabled with max_num_batched_tokens=8192.",
            {"enable_chunked_prefill": "True", "max_num_batched_tokens": "8192"},
        ),
        ("Using max model len 32768", {"max_seq_len": "32768"}),
        ("Asynchronous scheduling is enabled.", {"async_scheduling": "True"}),
        ("Asynchronous scheduling is disabled.", {"async_scheduling": "False"}),
        ("Enforce eager set, overriding optimization level to -O0", {"enforce_eager": "True"}),
        ("Cudagraph is disabled under eager mode", {"enforce_eager": "True"}),
    ],
)
@pytest.mark.parametrize("file", sorted(SETTING_FILES))
def test_each_sentence_tells_one_thing(file: str, message: str, values: dict[str, str]) -> None:
    """From each of the files that have told it, since files are renamed."""
    assert event_of(head_of(file) + message) == Setting(values)


@pytest.mark.parametrize(
    "message",
    [
        "Chunked prefill is enabled with max_num_batched_tokens=many.",
        "Using max model len 32768 or so",
        "Asynchronous scheduling is unwell.",
        "To run the model in eager mode, set 'enforce_eager=True'",
        "Resolved architecture: LlamaForCausalLM",
    ],
)
def test_what_only_looks_like_a_setting_is_none(message: str) -> None:
    """A sentence is known by its beginning, and whole."""
    assert event_of(head_of("model") + message) is None


def test_an_engine_of_ray_s_has_no_number() -> None:
    """All of them say the same name: a size would be everybody's, and a second start would end the first one's."""
    tag = "(DPEngineCoreActor pid=9) INFO 11-20 06:00:12 "

    assert event_of(tag + "[kv_cache_utils.py:1] GPU KV cache size: 8,192 tokens") is None
    assert event_of(
        tag + "[core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m', seed=0"
    ) == Setting({"version": "0.11.0", "model": "m"})
