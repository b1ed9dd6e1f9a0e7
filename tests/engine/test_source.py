"""An engine's log as a source."""

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from solpi_exporter.engine.dialects.dialect import KINDS
from solpi_exporter.engine.dialects.table import AUTO, chosen
from solpi_exporter.engine.dialects.vllm import VLLM
from solpi_exporter.engine.listener import Listener
from solpi_exporter.engine.progress import METRICS
from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.engine.source import LogSource, LogState
from solpi_exporter.follow.files import FileFollower
from solpi_exporter.follow.lines import Block
from solpi_exporter.source import SourceError
from tests.fakes import RECORDINGS, FakeClock, FakeWatcher, values

HEAD = "(APIServer pid=800) INFO 11-29 15:45:33 [loggers.py:273] "
START = (
    "(EngineCore pid=8) INFO 11-29 15:45:01 [core.py:1] Initializing a V1 LLM engine (v0.24.0) with config: model='m', "
)
VERSION = "(APIServer pid=1) INFO 11-29 15:45:00 [api_server.py:1] vLLM API server version 0.24.0"
SIZE = "(EngineCore pid=8) INFO 11-29 15:45:03 [kv_cache_utils.py:2] GPU KV cache size: 8,192 tokens"


def stats(running: int, rate: float, engine: int = 0) -> str:
    return HEAD + (
        f"Engine {engine:03d}: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {rate} tokens/s, "
        f"Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%"
    )


class Log:
    """A log file and the source that follows it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.dead = self.full = self.has_endpoint = False
        self.recognised: list[str] = []
        self.saved: LogState | None = None
        self.saves: list[bool] = []
        self.follower: FileFollower | None = None
        self.source: LogSource

    def write(self, *lines: str) -> None:
        with self.path.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def follow(self, *, from_beginning: bool = True) -> None:
        """Start, without a word to whoever followed before: as after a kill."""
        if self.follower is not None:
            self.follower.close()
        state = self.saved or LogState()
        self.follower = FileFollower(
            [str(self.path)],
            from_beginning=from_beginning,
            start=VLLM.start,
            watcher=FakeWatcher(),
            clock=self.clock,
            position=state.position,
            counters=state.counters,
        )
        self.source = LogSource(
            "s",
            self.follower,
            Listener(chosen(AUTO), AUTO, () if self.saved is None else self.saved.unfinished),
            self.clock,
            timeout=30.0,
            is_dead=lambda: self.dead,
            saved=self.saved,
            save=self.save,
            counters=not self.has_endpoint,
            report=self.recognised.append,
        )

    def save(self, state: LogState, often: bool) -> bool:
        """Keep a state as the state directory does: a copy of the moment."""
        if not self.full:
            self.saved = msgspec.json.decode(msgspec.json.encode(state), type=LogState)
            self.saves.append(often)
        return not self.full

    def poll(self) -> dict[str, dict[tuple[str, ...], Any]]:
        self.clock.now += 1.0
        return values([sample for reading in self.source.poll() for sample in reading.samples()])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    one = Log(tmp_path / "vllm.log")
    one.follow()
    yield one
    one.source.close()


def test_the_last_report_of_each_engine_is_shown(log: Log) -> None:
    """Later lines replace earlier ones, engine by engine."""
    log.write(stats(1, 50.0), stats(4, 100.0), stats(8, 400.0, engine=1))

    shown = log.poll()

    assert shown["solpi_engine_requests"] == {
        ("s", "0", "running"): 4.0,
        ("s", "0", "waiting"): 0.0,
        ("s", "1", "running"): 8.0,
        ("s", "1", "waiting"): 0.0,
    }
    assert shown["solpi_engine_mean_token_seconds"] == {("s", "0"): 0.04, ("s", "1"): 0.02}


def test_the_last_values_stay_while_the_log_is_silent(log: Log) -> None:
    """Silence is no zero: the values stand beside the time of the report."""
    log.write(stats(4, 100.0))
    reported = log.poll()["solpi_engine_last_report_timestamp_seconds"]

    log.clock.now += 3600.0
    shown = log.poll()

    assert shown["solpi_engine_requests"][("s", "0", "running")] == 4.0
    assert shown["solpi_engine_last_report_timestamp_seconds"] == reported


def test_a_live_line_is_as_old_as_its_arrival(log: Log) -> None:
    """Its own stamp has no year and no zone."""
    log.write("nothing")
    log.poll()
    log.write(stats(4, 100.0))

    shown = log.poll()

    assert shown["solpi_engine_last_report_timestamp_seconds"][("s", "0")] == log.clock.time()


def test_a_line_of_the_past_is_as_old_as_its_stamp(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading yesterday's log must not make a dead engine look alive."""
    utc(monkeypatch)
    log.clock.wall = datetime.fromisoformat("2026-11-30T12:00:00+00:00").timestamp()
    log.clock.now = 0.0
    log.write(stats(4, 100.0))

    shown = log.poll()

    then = datetime.fromisoformat("2026-11-29T15:45:33+00:00").timestamp()
    assert shown["solpi_engine_last_report_timestamp_seconds"][("s", "0")] == then


def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_facts_are_found_in_the_head_of_a_log_joined_late(log: Log) -> None:
    """From the end, reports of the past are not shown; what the engine told at its start is."""
    log.write(START + "enforce_eager=True, ", SIZE, stats(4, 100.0))
    log.follow(from_beginning=False)

    shown = log.poll()

    assert shown["solpi_engine_info"] == {("s", "vllm", "0.24.0", "m"): 1.0}
    assert shown["solpi_engine_setting_info"] == {("s", "enforce_eager", "True"): 1.0}
    assert shown["solpi_engine_kv_cache_capacity_tokens"] == {("s", "0"): 8192.0}
    assert "solpi_engine_requests" not in shown
    assert shown["solpi_log_matched_lines_total"][("s", "stats")] == 0


def test_an_engine_that_starts_anew_ends_what_the_old_one_said(log: Log) -> None:
    """The old engine's requests are not the new one's."""
    log.write(START, SIZE, stats(4, 100.0))
    log.poll()

    log.write(START.replace("0.24.0", "0.25.0"))
    shown = log.poll()

    assert "solpi_engine_requests" not in shown
    assert "solpi_engine_kv_cache_capacity_tokens" not in shown
    assert shown["solpi_engine_info"] == {("s", "vllm", "0.25.0", "m"): 1.0}


def test_a_server_that_starts_anew_ends_everything(log: Log) -> None:
    """Settings that the new one does not print are not the old one's, and neither is its block size."""
    arguments = "INFO 11-29 15:38:59 [api_server.py:1] args: Namespace(model='m', block_size=128, seed=None)"
    log.write(VERSION, arguments, START + "quantization=fp8, enforce_eager=True, ", stats(4, 100.0))
    log.poll()

    log.write(VERSION.replace("0.24.0", "0.25.0"), START.replace("0.24.0", "0.25.0"))
    log.write("INFO 11-29 15:39:18 [executor_base.py:1] # cuda blocks: 100, # CPU blocks: 0")
    shown = log.poll()

    assert "solpi_engine_setting_info" not in shown
    assert "solpi_engine_kv_cache_capacity_tokens" not in shown
    assert shown["solpi_engine_info"] == {("s", "vllm", "0.25.0", "m"): 1.0}


def test_one_engine_of_several_starts_for_itself(log: Log) -> None:
    """With data parallelism each engine prints its start; it takes nothing from the others."""
    second = START.replace("(EngineCore pid", "(EngineCore_DP1 pid")
    log.write(START, SIZE, second, SIZE.replace("(EngineCore pid", "(EngineCore_DP1 pid"))

    assert log.poll()["solpi_engine_kv_cache_capacity_tokens"] == {("s", "0"): 8192.0, ("s", "1"): 8192.0}


def test_a_server_that_is_known_to_be_gone_shows_no_last_values(log: Log) -> None:
    """Nothing listens at its endpoint: 40 running requests would be those of a dead engine."""
    log.write(START, stats(40, 100.0))
    log.poll()

    log.dead = True
    shown = log.poll()
    assert "solpi_engine_requests" not in shown
    assert "solpi_engine_info" not in shown
    assert "solpi_log_lines_total" in shown

    log.dead = False
    assert "solpi_engine_requests" in log.poll()


def test_what_a_log_says_last_holds_whatever_its_stamps_are(log: Log) -> None:
    """After the end of summer time, and from a container in another zone, a later line may have an earlier stamp."""
    log.write(stats(4, 100.0), stats(9, 100.0).replace("15:45:33", "15:44:33"))

    assert log.poll()["solpi_engine_requests"][("s", "0", "running")] == 9.0


def test_what_was_written_while_nobody_followed_holds(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live report has the reader's time, and what was missed has its stamp, which may be of a zone behind."""
    utc(monkeypatch)
    log.write("nothing")
    log.poll()
    log.clock.wall = datetime.fromisoformat("2026-11-29T23:00:00+00:00").timestamp()
    log.write(stats(40, 100.0))
    log.poll()

    log.write(stats(0, 0.0))
    log.follow()

    assert log.poll()["solpi_engine_requests"][("s", "0", "running")] == 0.0


def test_a_clock_that_is_set_back_freezes_nothing(log: Log) -> None:
    """What is seen being written is the latest, whatever the wall clock says."""
    log.write("nothing")
    log.poll()
    log.write(stats(1, 50.0))
    log.poll()

    log.clock.wall -= 3600.0
    log.write(stats(42, 50.0))

    assert log.poll()["solpi_engine_requests"][("s", "0", "running")] == 42.0


def test_an_idle_engine_has_no_mean_token(log: Log) -> None:
    """Nothing running, or nothing generated, is no time between tokens."""
    log.write(stats(0, 100.0))
    assert "solpi_engine_mean_token_seconds" not in log.poll()

    log.write(stats(4, 0.0))
    assert "solpi_engine_mean_token_seconds" not in log.poll()


def test_blocks_become_tokens_where_the_block_size_was_told(log: Log) -> None:
    """V0 prints blocks; its arguments hold the block size, where it was given."""
    log.write("INFO 11-29 15:39:18 [executor_base.py:1] # cpu blocks: 192, # CPU blocks: 0")
    assert "solpi_engine_kv_cache_capacity_tokens" not in log.poll()

    log.write("INFO 11-29 15:38:59 [api_server.py:1] args: Namespace(model='m', block_size=16, seed=None)")

    assert log.poll()["solpi_engine_kv_cache_capacity_tokens"] == {("s", "0"): 3072.0}


def test_a_missing_log_is_a_failure_that_says_where_it_looked(log: Log) -> None:
    """The server was asked for; its readings come once the file is there."""
    with pytest.raises(SourceError, match=f"no log to follow: {log.path} does not exist"):
        log.poll()

    log.write(stats(4, 100.0))

    assert "solpi_engine_requests" in log.poll()


def test_a_log_that_goes_away_is_a_failure_after_its_drain(log: Log) -> None:
    """While the removed file may still grow, its source goes on; then it says so."""
    log.write(stats(4, 100.0))
    log.poll()
    log.path.unlink()
    log.poll()

    log.clock.now += 11.0
    with pytest.raises(SourceError, match="no log to follow"):
        log.poll()


def test_following_is_counted(log: Log) -> None:
    """Lines, bytes, matches by kind, and the lag."""
    log.write("nothing", START, stats(4, 100.0))

    shown = log.poll()

    assert shown["solpi_log_lines_total"] == {("s",): 3}
    assert shown["solpi_log_bytes_total"] == {("s",): os.path.getsize(log.path)}
    matched = shown["solpi_log_matched_lines_total"]
    assert {kind: count for (_, kind), count in matched.items() if count} == {"stats": 1, "setting": 1}
    assert {kind for _, kind in matched} == set(KINDS)
    assert shown["solpi_log_lag_bytes"] == {("s",): 0}
    assert {metric.name for metric in METRICS} <= shown.keys()


def test_a_prompt_that_quotes_reports_gives_none(log: Log) -> None:
    """V0 logs every request with its prompt; the recorded ones and this one report nothing."""
    log.write(f"INFO 11-29 15:39:18 [logger.py:1] Received request a: prompt: '{stats(4, 1.0)}', params: x")

    assert "solpi_engine_requests" not in log.poll()


def test_two_engines_of_the_recorded_run(log: Log) -> None:
    """The data-parallel recording ends with both of its engines idle, before it is shut down."""
    recorded, end, _ = (RECORDINGS / "vllm-0.32.0" / "dp2-one-api-server.log").read_bytes().partition(b" [shutdown] ")
    assert end
    log.path.write_bytes(recorded + b"\n")
    log.clock.now += 1.0

    engines = {reading.engine: reading.running for reading in log.source.poll() if isinstance(reading, EngineReading)}

    assert engines == {"0": 0.0, "1": 0.0}


def test_a_daemon_that_is_killed_is_succeeded_by_one_that_goes_on(log: Log) -> None:
    """With the counters, the last report and the facts; what was written meanwhile counts once, as everything does."""
    log.write(VERSION, START, SIZE, stats(4, 100.0))
    shown = log.poll()
    log.write(stats(8, 100.0), "nothing")

    log.follow()
    then = log.poll()

    assert shown["solpi_log_lines_total"] == {("s",): 4.0}
    assert then["solpi_log_lines_total"] == {("s",): 6.0}
    assert then["solpi_log_matched_lines_total"][("s", "stats")] == 2.0
    assert then["solpi_engine_info"] == shown["solpi_engine_info"] == {("s", "vllm", "0.24.0", "m"): 1.0}
    assert then["solpi_engine_kv_cache_capacity_tokens"] == {("s", "0"): 8192.0}
    assert then["solpi_engine_requests"][("s", "0", "running")] == 8.0


def test_a_silent_log_says_after_a_restart_what_it_said_before(log: Log) -> None:
    """An idle engine logs nothing, so nothing would be known of it; the time of its report is what it was."""
    log.write(stats(4, 100.0))
    shown = log.poll()

    log.follow()
    then = log.poll()

    for name in ("solpi_engine_requests", "solpi_engine_last_report_timestamp_seconds", "solpi_log_lines_total"):
        assert then[name] == shown[name]


def test_values_are_saved_before_they_are_shown(log: Log) -> None:
    """The state holds the lines that the poll returns, and the position behind them, already when it returns."""
    log.write("one", "two")
    shown = log.poll()

    assert log.saved is not None
    assert log.saved.counters.lines == shown["solpi_log_lines_total"][("s",)] == 2.0
    assert [record.proof.offset for record in log.saved.position.records] == [len("one\ntwo\n")]


def test_nothing_is_saved_while_nothing_changes(log: Log) -> None:
    """But a rotation without a line is a change as well."""
    log.write("one")
    log.poll()
    log.poll()
    saves = len(log.saves)
    for _ in range(5):
        log.poll()
    assert len(log.saves) == saves

    log.path.rename(f"{log.path}.1")
    log.path.touch()
    log.poll()

    assert len(log.saves) > saves
    assert log.saved is not None
    assert log.saved.counters.renames == 1


def test_what_could_not_be_saved_is_saved_later(log: Log) -> None:
    """After a full disk, though nothing was written to the log since."""
    log.full = True
    log.write("one")
    assert log.poll()["solpi_log_lines_total"] == {("s",): 1.0}
    assert log.saved is None

    log.full = False
    log.poll()

    assert log.saves == [True]


def test_the_last_state_is_brought_to_the_disk(log: Log) -> None:
    """A daemon that stops in order leaves a copy behind that outlives the host; one that never read leaves nothing."""
    log.source.close()
    assert log.saves == []

    log.follow()
    log.write("one")
    log.poll()
    log.source.close()

    assert log.saves == [True, False]


def test_the_first_poll_reads_to_the_end(log: Log) -> None:
    """Whatever a poll is limited to: counters of a state that is older than what was shown have to get past that."""
    log.write(*map(str, range(300_000)))
    log.source._poll_bytes = 1

    assert log.poll()["solpi_log_lines_total"] == {("s",): 300_000.0}


def test_a_log_that_ends_in_the_poll_that_reads_it_is_saved(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll fails for want of a file, after a report: stopping then saves that, as any other."""
    log.write(stats(4, 100.0))
    log.poll()
    log.write(stats(8, 100.0))
    read = log.source._log.read

    def read_and_fail(limit: int) -> Iterator[Block]:
        yield from read(limit)
        raise SourceError("no log to follow")

    monkeypatch.setattr(log.source._log, "read", read_and_fail)
    with pytest.raises(SourceError):
        log.poll()
    log.source.close()

    assert log.saved is not None
    assert log.saved.told.reports["0"].values["running"] == 8.0


def docker(text: str, time: str = "2026-11-20T06:05:05Z") -> str:
    return json.dumps({"log": text, "stream": "stdout", "time": time}, separators=(",", ":"))


def test_a_containers_log_is_as_old_as_its_records(log: Log) -> None:
    """The runtime's time has a year and a zone; it is that of the line, seen being written or not."""
    log.write(docker(f"{START}\n"), docker(f"{stats(4, 100.0)}\n"))

    shown = log.poll()

    then = datetime.fromisoformat("2026-11-20T06:05:05+00:00").timestamp()
    assert shown["solpi_engine_last_report_timestamp_seconds"] == {("s", "0"): then}
    assert shown["solpi_engine_requests"][("s", "0", "running")] == 4.0


def test_the_rest_of_a_line_that_was_cut_by_a_kill_is_no_line(log: Log) -> None:
    """A prompt above 16 KiB comes in pieces, and the second one may begin like a report."""
    log.write(docker(f"{HEAD}Received request x: " + "x" * 16384))
    log.poll()

    log.follow()
    log.write(docker(f"{stats(666, 1.0)}\n"))
    assert "solpi_engine_requests" not in log.poll()

    log.write(docker(f"{stats(4, 100.0)}\n"))
    assert log.poll()["solpi_engine_requests"][("s", "0", "running")] == 4.0


def test_the_engine_is_recognised_once_and_said(log: Log) -> None:
    """By its first line that reports something; a silent log is still that engine's after a restart."""
    log.write("nothing", SIZE)
    log.poll()
    log.write(stats(4, 100.0))
    log.poll()
    assert log.recognised == ["vllm"]

    log.follow()
    shown = log.poll()

    assert log.recognised == ["vllm"]
    assert {labels[1] for labels in shown["solpi_engine_info"]} == {"vllm"}


def test_what_the_log_counts_is_an_endpoints_where_there_is_one(log: Log) -> None:
    """A retraction of SGLang's is in both: counted by the log alone only where there is no endpoint."""
    retraction = (
        "[2026-10-30 09:02:00] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 1"
    )
    log.write("[2026-10-30 09:01:07] Decode batch, #running-req: 3, #token: 9000, token usage: 0.02, #queue-req: 0")
    assert log.poll()["solpi_engine_preemptions_total"] == {("s", "0"): 0.0}
    log.write(retraction)
    assert log.poll()["solpi_engine_preemptions_total"] == {("s", "0"): 2.0}

    log.has_endpoint = True
    log.follow()

    assert "solpi_engine_preemptions_total" not in log.poll()
    assert log.poll()["solpi_engine_errors_total"][("s", "preemption")] == 1.0


def test_trouble_is_counted_from_0_on(log: Log) -> None:
    """Each kind is there before it comes, or increase() would miss the first."""
    log.write("nothing")
    assert set(log.poll()["solpi_engine_errors_total"].values()) == {0.0}

    log.write("(EngineCore pid=8) ERROR 11-29 15:45:03 [core.py:1586] EngineCore encountered a fatal error.")

    assert log.poll()["solpi_engine_errors_total"][("s", "engine_dead")] == 1.0
