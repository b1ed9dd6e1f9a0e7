"""Lines of engines' logs for the tests of dialects: the forms of vLLM's head, and what is kept in tests/loglines."""

from pathlib import Path

from solpi_exporter.engine.dialects.dialect import Event
from solpi_exporter.engine.dialects.vllm import parse

LOGLINES = Path(__file__).parents[2] / "loglines"

HEAD = "(APIServer pid=800) INFO 11-29 15:45:33 [loggers.py:273] "
STATS = (
    "Engine 000: Avg prompt throughput: 46.6 tokens/s, Avg generation throughput: 47.6 tokens/s, Running: 1 reqs, "
    "Waiting: 2 reqs, GPU KV cache usage: 43.0%, Prefix cache hit rate: 12.5%"
)


def head_of(file: str, level: str = "INFO", tag: str = "(APIServer pid=1) ") -> str:
    """Return the head of a line that a file of vLLM's source writes."""
    return f"{tag}{level} 11-20 06:05:05 [{file}.py:335] "


def log_lines(name: str) -> list[str]:
    """Return a log of tests/loglines in lines, each without its newline."""
    return (LOGLINES / name).read_bytes().decode(errors="replace").split("\n")


def log_line(name: str, text: str) -> str:
    """Return the first line of a log of tests/loglines that holds `text`."""
    return next(line for line in log_lines(name) if text in line)


def event_of(line: str) -> Event | None:
    """Return what vLLM's dialect reads of a line."""
    said = parse(line)
    return None if said is None else said.event
