"""The table of dialects: the names that a configuration may give, and the start of any of them."""

import pytest

from solpi_exporter.engine.dialects.sglang import SGLANG
from solpi_exporter.engine.dialects.table import AUTO, DIALECTS, chosen, start_of
from solpi_exporter.engine.dialects.tensorrt_llm import TENSORRT_LLM
from solpi_exporter.engine.dialects.vllm import VLLM

STARTS = {
    "vllm": b"(EngineCore pid=90) INFO 11-20 06:00:12 [core.py:139] Initializing a V1 LLM engine (v1) with config: x",
    "sglang": b"[2026-10-30 09:00:50] max_total_num_tokens=444500, chunked_prefill_size=8192",
    "tensorrt-llm": b"[TensorRT-LLM] TensorRT LLM version: 1.3.0",
}


def test_each_dialect_stands_under_its_own_name() -> None:
    """In the order in which `auto` tries them."""
    assert list(DIALECTS.items()) == [("vllm", VLLM), ("sglang", SGLANG), ("tensorrt-llm", TENSORRT_LLM)]


@pytest.mark.parametrize("name", DIALECTS)
def test_a_name_means_one(name: str) -> None:
    """The one that it names."""
    assert chosen(name) == (DIALECTS[name],)


def test_auto_means_any() -> None:
    """It is no dialect's name."""
    assert AUTO not in DIALECTS
    assert chosen(AUTO) == (VLLM, SGLANG, TENSORRT_LLM)


def test_a_name_that_is_none_is_an_error() -> None:
    """The configuration refuses it before."""
    with pytest.raises(KeyError):
        chosen("vLLM")


def test_the_table_cannot_be_changed() -> None:
    """It is what there is."""
    with pytest.raises(TypeError):
        DIALECTS["x"] = VLLM  # type: ignore[index]


@pytest.mark.parametrize("name", DIALECTS)
def test_a_start_is_found_as_any_dialects(name: str) -> None:
    """By its own pattern and by the joint one, and by no other."""
    log = b"noise\n" + STARTS[name] + b"\nnoise\n"
    others = [one for one in DIALECTS.values() if one.name != name]

    assert start_of(chosen(name)).search(log)
    assert start_of(chosen(AUTO)).search(log)
    assert not start_of(others).search(log)


@pytest.mark.parametrize("name", ["sglang", "tensorrt-llm"])
def test_a_start_begins_its_line(name: str) -> None:
    """Jointly with the others as well as alone."""
    assert not start_of(chosen(AUTO)).search(b"noise " + STARTS[name])


@pytest.mark.parametrize("name", DIALECTS)
def test_markers_read_the_same_within_a_container_s_record(name: str) -> None:
    """Docker's JSON escapes quotes, backslashes and what HTML minds; only a first quote may have a backslash before."""
    dialect = DIALECTS[name]
    for marker in (*dialect.markers, *dialect.begins, dialect.structured.strip()):
        assert marker.isascii()
        assert not set(b'\\<>&"') & set(marker[1:])
        assert not set(b"\\<>&") & set(marker[:1])


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("wrap", [b"%s", b'{"log":"%s\\n"}', b"2026-11-20T06:05:05.001234567Z stdout F %s"])
def test_a_start_is_found_within_a_container_s_record(name: str, wrap: bytes) -> None:
    """Around it an engine's facts are looked for when a log is joined late."""
    block = b"noise\n" + wrap % STARTS[name] + b"\n"

    assert start_of(chosen(AUTO)).search(block)
    assert DIALECTS[name].starts_in(block)
