"""A stand-in for vLLM: its log line by line and its /metrics as 0.24 writes them, of a load that is set outside."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

TICK_SECONDS = 0.1
REPORT_SECONDS = 1.0  # vLLM's ten, as far as a stamp of whole seconds allows
EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0)
LABELS = 'engine="0",model_name="llama-8b-shape"'
REPORT = (
    "(APIServer pid=7) INFO {now} [loggers.py:273] Engine 000: Avg prompt throughput: 1766.4 tokens/s, Avg generation "
    "throughput: {rate:.1f} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {kv:.1f}%, "
    "Prefix cache hit rate: 0.0%\n"
)
DEATH = (
    "(EngineCore pid=90) ERROR {now} [core.py:1586] EngineCore encountered a fatal error.\n"
    "(EngineCore pid=90) ERROR {now} [core.py:1586] Traceback (most recent call last):\n"
    "(APIServer pid=7) ERROR {now} [async_llm.py:941] vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
    "encountered an issue. See stack trace (above) for the root cause.\n"
)


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine does at present: requests, share of the KV cache, rates a second, seconds between two tokens."""

    running: int = 7
    waiting: int = 0
    kv: float = 0.41
    tokens: float = 640.0
    preemptions: float = 0.0
    between: float = 0.02
    loaded_bytes: float = 0.0  # KV cache that comes back from the host


@dataclass(slots=True)
class Vllm:
    """One server: whoever changes `load` changes what it says from the next tick on; None is one that hangs."""

    log: Path
    load: Load | None = field(default_factory=Load)
    _last: Load = field(default_factory=Load)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _totals: dict[str, float] = field(default_factory=dict)
    _buckets: dict[float, float] = field(default_factory=lambda: dict.fromkeys(EDGES, 0.0))

    def run(self, stop: Event) -> None:
        """Live until `stop`."""
        last = reported = time.monotonic()
        while not stop.wait(TICK_SECONDS):
            now = time.monotonic()
            if self.load is not None:
                self._advance(self.load, now - last)
                if self.load.running and now - reported >= REPORT_SECONDS:  # an idle one says nothing
                    reported = now
                    self.report()
            last = now

    def report(self) -> None:
        """Write the line that comes each ten seconds."""
        load = self._last
        kv = 100 * load.kv
        self.say(REPORT, rate=load.tokens, running=load.running, waiting=load.waiting, kv=kv)

    def say(self, lines: str, **values: object) -> None:
        """Append to the log, which may have been moved."""
        with self.log.open("a") as file:
            file.write(lines.format(now=time.strftime("%m-%d %H:%M:%S"), **values))

    def rotate(self) -> None:
        """Move the log away."""
        self.log.rename(self.log.with_suffix(".log.1"))

    def idle(self) -> None:
        """Say once that nothing runs, then nothing more."""
        self.load = self._last = Load(running=0, kv=0.0, tokens=0.0)
        self.report()

    def text(self) -> str:
        """Return its exposition."""
        with self._lock:
            load, totals, buckets = self._last, dict(self._totals), dict(self._buckets)
        tokens = totals.get("generation_tokens", 0.0)
        lines = ["# TYPE vllm:num_requests_running gauge"]
        lines += [
            f"vllm:num_requests_running{{{LABELS}}} {load.running}",
            f"vllm:num_requests_waiting{{{LABELS}}} {load.waiting}",
            f"vllm:kv_cache_usage_perc{{{LABELS}}} {load.kv}",
            f"vllm:num_preemptions_total{{{LABELS}}} {totals.get('preemptions', 0.0)}",
            f"vllm:prompt_tokens_total{{{LABELS}}} {3 * tokens}",
            f"vllm:generation_tokens_total{{{LABELS}}} {tokens}",
            f"vllm:iteration_tokens_total_count{{{LABELS}}} {totals.get('steps', 0.0)}",
            f"vllm:kv_offload_load_bytes_total{{{LABELS}}} {totals.get('loaded_bytes', 0.0)}",
            f"vllm:inter_token_latency_seconds_count{{{LABELS}}} {tokens}",
            f"vllm:inter_token_latency_seconds_sum{{{LABELS}}} {totals.get('between', 0.0)}",
            f'vllm:inter_token_latency_seconds_bucket{{{LABELS},le="+Inf"}} {tokens}',
        ]
        lines += [
            f'vllm:inter_token_latency_seconds_bucket{{{LABELS},le="{edge}"}} {count}'
            for edge, count in buckets.items()
        ]
        return "\n".join(lines) + "\n"

    def _advance(self, load: Load, seconds: float) -> None:
        tokens = seconds * load.tokens
        growth = {
            "generation_tokens": tokens,
            "steps": tokens / max(load.running, 1),
            "preemptions": seconds * load.preemptions,
            "loaded_bytes": seconds * load.loaded_bytes,
            "between": tokens * load.between,
        }
        with self._lock:
            self._last = load
            for name, value in growth.items():
                self._totals[name] = self._totals.get(name, 0.0) + value
            for edge in EDGES:
                self._buckets[edge] += tokens if load.between <= edge else 0.0


@contextmanager
def answering(vllm: Vllm) -> Iterator[ThreadingHTTPServer]:
    """Let it live, and serve its /metrics on a port of loopback, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = vllm.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    stop = Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threads = [
            Thread(target=server.serve_forever, args=(0.05,), daemon=True),
            Thread(target=vllm.run, args=(stop,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            stop.set()
            server.shutdown()
            for thread in threads:
                thread.join(5.0)
