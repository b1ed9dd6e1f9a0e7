"""A log as tail.py reads it: a line in a hundred is a report, one in a thousand a warning, the rest is access."""

import random
from collections.abc import Iterator
from pathlib import Path

SEED = 20261130
CHUNK = 20_000  # lines written at once


def report(running: int, rate: float = 400.0) -> str:
    """Return a periodic line as vLLM 0.24 prints it."""
    return (
        "(APIServer pid=800) INFO 11-29 15:45:33 [loggers.py:273] Engine 000: Avg prompt throughput: 120.5 tokens/s, "
        f"Avg generation throughput: {rate:.1f} tokens/s, Running: {running} reqs, Waiting: 0 reqs, "
        "GPU KV cache usage: 5.0%, Prefix cache hit rate: 12.5%"
    )


def lines(count: int) -> Iterator[str]:
    """Yield the lines, the same ones each time."""
    chance = random.Random(SEED)
    for _ in range(count):
        kind = chance.random()
        if kind < 0.01:
            yield report(chance.randrange(256), chance.randrange(30000) / 10)
        elif kind < 0.011:
            yield (
                "(EngineCore pid=801) WARNING 11-29 15:45:33 [scheduler.py:1754] Sequence group cmpl-"
                f"{chance.getrandbits(64):016x}-0 is preempted by PreemptionMode.RECOMPUTE mode because there is not "
                "enough KV cache space. This can affect the end-to-end performance."
            )
        else:
            address = ".".join(str(chance.randrange(256)) for _ in range(3))
            port = chance.randrange(1024, 65536)
            yield f'(APIServer pid=800) INFO:     10.{address}:{port} - "POST /v1/completions HTTP/1.1" 200 OK'


def write(path: Path, count: int) -> tuple[int, int]:
    """Write a log, and return how many of its lines are reports and how many are warnings."""
    reports = warnings = 0
    with path.open("w") as file:
        chunk: list[str] = []
        for line in lines(count):
            reports += "Avg prompt throughput" in line
            warnings += "is preempted by" in line
            chunk.append(line)
            if len(chunk) == CHUNK:
                file.write("\n".join(chunk) + "\n")
                chunk.clear()
        file.writelines(f"{line}\n" for line in chunk)
    return reports, warnings
