"""read: a log on the command line, as a user tries it."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from solpi_exporter.cli import main
from tests.engine.test_transcript import LINES

STATS = (
    "(APIServer pid=1) INFO 11-20 06:05:05 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 4.0%\n"
)


def read(*arguments: str | Path, standard_input: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["read", *map(str, arguments)], input=standard_input)


def objects(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_standard_input() -> None:
    """A dash, as everywhere; what is recognised is counted at the end."""
    report, summary = objects(read("-", standard_input=f"nothing\n{STATS}".encode()))

    assert (report["line"], report["engine"], report["kind"]) == (2, "0", "stats")
    assert report["requests"] == {"running": 3.0, "waiting": 0.0}
    assert report["kv_cache_usage_ratio"] == 0.04
    assert summary["log"] == "-"
    assert (summary["dialect"], summary["lines"], summary["passed_over"]) == ("vllm", 2, 1)
    assert {kind: count for kind, count in summary["kinds"].items() if count} == {"stats": 1}


def test_several_logs_have_a_count_each(tmp_path: Path) -> None:
    """And each its own dialect."""
    sglang, vllm = LINES / "sglang-0.5.8-0.5.23.log", tmp_path / "vllm.log"
    vllm.write_text(STATS)

    summaries = [one for one in objects(read(sglang, vllm)) if "log" in one]

    assert [(one["log"], one["dialect"]) for one in summaries] == [(str(sglang), "sglang"), (str(vllm), "vllm")]


def test_a_compressed_log(tmp_path: Path) -> None:
    """Rotated logs mostly are."""
    path = tmp_path / "vllm.log.1.gz"
    path.write_bytes(gzip.compress(STATS.encode()))

    assert [one["kind"] for one in objects(read(path)) if "kind" in one] == ["stats"]


def test_the_year_is_that_of_the_file(tmp_path: Path) -> None:
    """A stamp has none: an old log is not of this year."""
    path = tmp_path / "vllm.log"
    path.write_text(STATS)
    os.utime(path, (1_700_000_000, 1_700_000_000))  # 2023-11-14

    time = objects(read(path))[0]["time"]

    assert 1_668_900_000 < time < 1_668_990_000  # 2022-11-20


def test_a_dialect_and_an_envelope_that_are_named(tmp_path: Path) -> None:
    """Then nothing else is looked for."""
    path = tmp_path / "vllm.log"
    path.write_text(STATS)

    assert objects(read(path, "--dialect", "sglang"))[-1]["kinds"]["stats"] == 0
    assert objects(read(path, "--envelope", "docker"))[-1]["kinds"]["stats"] == 0
    assert objects(read(path, "--dialect", "vllm", "--envelope", "none"))[-1]["kinds"]["stats"] == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "Missing argument 'LOG...'"),
        (("/nowhere/vllm.log",), "/nowhere/vllm.log: cannot be read: No such file or directory"),
        (("/",), "/: cannot be read: Is a directory"),
        (("--dialect", "tgi", "-"), "'tgi' is not one of 'auto', 'vllm', 'sglang', 'tensorrt-llm'"),
        (("--envelope", "paper", "-"), "'paper' is not one of"),
    ],
    ids=["no log", "no file", "a folder", "unknown dialect", "unknown envelope"],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    """What, where and why; no traceback."""
    result = read(*arguments)

    assert result.exit_code != 0
    assert complaint in result.output
    assert "Traceback" not in result.output


def test_a_damaged_compressed_log_says_so(tmp_path: Path) -> None:
    """After what could be read of it."""
    path = tmp_path / "vllm.log.1.gz"
    path.write_bytes(gzip.compress(STATS.encode() * 1000)[:-20])

    result = read(path)

    assert result.exit_code != 0
    assert result.output.splitlines()[-1].startswith(f"Error: {path}: cannot be read: ")
