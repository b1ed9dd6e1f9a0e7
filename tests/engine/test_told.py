"""What a server's log has told."""

import msgspec
import pytest

from solpi_exporter.engine.dialects.dialect import (
    TROUBLES,
    Capacity,
    Event,
    Iteration,
    Preemption,
    Said,
    Setting,
    Shutdown,
    Stats,
    Transfer,
    Trouble,
)
from solpi_exporter.engine.reading import EngineReading
from solpi_exporter.engine.told import Told

NOW = 2.0


def told(*events: Event) -> Told:
    """Return what a log has told that said all this while it was followed."""
    one = Told()
    for event in events:
        one.take(Said(event), NOW, NOW)
    return one


def engines(one: Told, *, counters: bool = True) -> dict[str, EngineReading]:
    return {reading.engine: reading for reading in one.engines("s", counters=counters)}


def settings(one: Told) -> dict[str, str]:
    (facts,) = one.start("s", "vllm")
    return dict(facts.settings)


def test_what_was_told_is_the_same_after_a_restart() -> None:
    """Reports with their times, capacities, counters, facts and processes: as JSON, and back."""
    one = told(Preemption("0", count=2.0), Trouble("ulimit"), Iteration("0", 0.25))
    one.take(Said(Setting({"version": "0.24.0", "block_size": "16"}, server=True), "", "APIServer", 7), 1.0, NOW)
    one.take(Said(Stats("0", {"running": 4.0, "generation_tokens_per_second": 100.0}), "11-29 15:45:33"), 1.5, NOW)
    one.take(Said(Capacity("0", blocks=512.0), "", "EngineCore", 8), 1.5, NOW)

    again = msgspec.json.decode(msgspec.json.encode(one), type=Told)

    assert again == one
    assert engines(again) == engines(one)
    assert engines(again)["0"].kv_cache_capacity_tokens == 8192.0
    assert list(again.start("s", "vllm")) == list(one.start("s", "vllm"))
    assert again.trouble("s") == one.trouble("s")


def test_a_companion_adds_to_the_report_that_it_follows() -> None:
    """Of the engine that reported last; the next report without one shows nothing of it."""
    one = told(Stats("0", {"running": 1.0}), Stats("1", {"running": 2.0}))
    one.take(Said(Stats("", {"acceptance_length": 3.0}, partial=True)), NOW, NOW)

    assert engines(one)["1"].acceptance_length == 3.0
    assert engines(one)["1"].running == 2.0
    assert engines(one)["0"].acceptance_length is None

    one.take(Said(Stats("1", {"running": 3.0})), NOW, NOW)

    assert engines(one)["1"].acceptance_length is None


@pytest.mark.parametrize(
    ("capacities", "engine"), [((), "0"), (("0",), "0"), (("0", "1"), "all")], ids=["none", "one", "two"]
)
def test_a_line_of_the_whole_server_is_of_its_one_engine_or_of_all(capacities: tuple[str, ...], engine: str) -> None:
    """The Rust front end sums up and does not say over how many."""
    one = told(*(Capacity(each, tokens=8.0) for each in capacities), Stats("", {"running": 9.0}))

    assert engines(one)[engine].running == 9.0


def test_amounts_are_added_up() -> None:
    """Of preemptions, transfers and steps each line tells its own."""
    one = told(
        Stats("0", {}, {"preemptions": 6.0}),
        Preemption("0", count=2.0),
        Transfer("", {"stored_bytes": 100.0, "stored_seconds": 0.5}, {"offload_usage_ratio": 0.25}),
        Transfer("", {"stored_bytes": 50.0}),
        Iteration("0", 0.25, {"kv_cache_usage_ratio": 0.5}),
        Iteration("0", None),
    )

    reading = engines(one)["0"]
    assert (reading.preemptions, reading.stored_bytes, reading.stored_seconds) == (8.0, 150.0, 0.5)
    assert (reading.iterations, reading.iteration_seconds) == (1.0, 0.25)
    assert (reading.offload_usage_ratio, reading.kv_cache_usage_ratio) == (0.25, 0.5)


def test_v0s_preemptions_are_a_bound_that_begins_anew_with_the_engine() -> None:
    """It prints its own total, once in 50, and each of its schedulers counts for itself."""
    one = told(
        Setting({}, engine="0"),
        Stats("0", {}, {"preemptions_at_least": 0.0}),
        Preemption("0", at_least=51.0),
        Preemption("0", at_least=1.0),
        Stats("0", {}, {"preemptions_at_least": 0.0}),
    )
    assert engines(one)["0"].preemptions_at_least == 51.0
    assert engines(one)["0"].preemptions is None

    one.take(Said(Setting({}, engine="0")), NOW, NOW)

    assert engines(one)["0"].preemptions_at_least == 0.0


def test_a_counter_that_an_endpoint_has_is_the_endpoints() -> None:
    """With two origins it would fall whenever one of them fails; what no endpoint has is the log's all the same."""
    one = told(Preemption("0", count=2.0), Transfer("", {"loaded_bytes": 1.0}), Iteration("0", 0.25))

    reading = engines(one, counters=False)["0"]

    assert (reading.preemptions, reading.loaded_bytes) == (None, None)
    assert reading.iterations == 1.0


def test_every_kind_of_trouble_is_counted_from_0_on() -> None:
    """V0's preemption is one as well."""
    one = told(Trouble("out_of_memory"), Trouble("out_of_memory"), Preemption("0", at_least=1.0))

    counts = one.trouble("s").counts

    assert counts.keys() == set(TROUBLES)
    assert {what: count for what, count in counts.items() if count} == {"out_of_memory": 2.0, "preemption": 1.0}


def test_an_engine_that_is_dead_reports_nothing() -> None:
    """Its last running requests would be shown for ever; its size and what it is stay, and so do counters."""
    one = told(Capacity("0", tokens=8.0), Stats("0", {"running": 40.0}), Preemption("0", count=2.0))

    one.take(Said(Trouble("engine_dead")), NOW, NOW)
    one.take(Said(Stats("0", {"running": 40.0})), NOW, NOW)  # of another process, which had it ready

    assert engines(one)["0"] == EngineReading(server="s", kv_cache_capacity_tokens=8.0, preemptions=2.0)

    one.take(Said(Setting({}, engine="0")), NOW, NOW)
    one.take(Said(Stats("0", {"running": 1.0})), NOW, NOW)

    assert engines(one)["0"].running == 1.0


def test_a_server_that_was_told_to_end_reports_nothing() -> None:
    """Its requests ran to the last: while it is away they would be taken for those of an engine that hangs."""
    one = told(Capacity("0", tokens=8.0), Stats("0", {"running": 40.0}), Shutdown())

    assert engines(one)["0"] == EngineReading(server="s", kv_cache_capacity_tokens=8.0)

    one.take(Said(Stats("0", {"running": 1.0})), NOW, NOW)

    assert engines(one)["0"].running == 1.0


def test_what_the_lines_of_one_start_leave_open_the_others_tell() -> None:
    """Size and concurrency are two lines up to 0.27; neither takes the other away."""
    one = told(Capacity("0", tokens=8192.0), Capacity("0", concurrency=2.0, facts={"max_num_seqs": "8"}))

    assert (engines(one)["0"].kv_cache_capacity_tokens, engines(one)["0"].max_concurrency) == (8192.0, 2.0)
    assert settings(one) == {"max_num_seqs": "8"}


def test_what_a_server_says_before_its_engines_start_stays() -> None:
    """Its arguments come first, and then one start line after the other."""
    one = told(
        Setting({"version": "1"}, server=True),
        Setting({"max_num_seqs": "8"}),
        Setting({"enforce_eager": "True"}, engine="0"),
        Setting({"enforce_eager": "True"}, engine="1"),
    )

    assert settings(one) == {"max_num_seqs": "8", "enforce_eager": "True"}


def test_an_engine_that_starts_again_without_a_server_takes_the_old_ones_facts_away() -> None:
    """Two runs of the offline API in one log: what the second one said before its start line is its own."""
    one = told(
        Setting({"max_num_seqs": "8"}),
        Setting({"quantization": "fp8"}, engine="0"),
        Setting({"async_scheduling": "True"}),
        Setting({"max_num_batched_tokens": "2048"}),
        Setting({"model": "b"}, engine="0"),
    )

    assert settings(one) == {"async_scheduling": "True", "max_num_batched_tokens": "2048"}


def test_a_server_that_starts_ends_all_but_the_counters() -> None:
    """They go on, as counters do; trouble of the old one is what the new one may come from."""
    one = told(Stats("0", {"running": 4.0}), Preemption("0", count=2.0), Trouble("engine_dead"))

    one.take(Said(Setting({"version": "2"}, server=True)), NOW, NOW)

    assert engines(one)["0"].running is None
    assert engines(one)["0"].preemptions == 2.0
    assert one.trouble("s").counts["engine_dead"] == 1.0


def test_of_the_past_only_the_start_is_learnt() -> None:
    """What was preempted, moved or went wrong before we came is not counted."""
    one = Told()
    for event in (
        Capacity("0", tokens=8.0),
        Stats("0", {"running": 1.0}),
        Preemption("0", count=1.0),
        Trouble("ulimit"),
    ):
        one.learn(Said(event))

    assert engines(one) == {"0": EngineReading(server="s", kv_cache_capacity_tokens=8.0)}
    assert not any(one.trouble("s").counts.values())


def test_a_report_without_any_time_is_shown_without_one() -> None:
    """SGLang's first releases print no date: when it was is not known, and is not now."""
    one = Told()
    one.take(Said(Stats("0", {"running": 1.0})), None, NOW)

    assert engines(one)["0"].running == 1.0
    assert engines(one)["0"].last_report_time is None


def test_the_bound_of_an_engine_that_was_joined_late_begins_with_its_first_total() -> None:
    """At 0 it would rise by all that was preempted before, and page as a storm."""
    one = Told()
    one.learn(Said(Setting({}, engine="0")))
    one.take(Said(Stats("0", {}, {"preemptions_at_least": 0.0})), NOW, NOW)
    assert engines(one)["0"].preemptions_at_least is None

    one.take(Said(Preemption("0", at_least=5051.0)), NOW, NOW)

    assert engines(one)["0"].preemptions_at_least == 5051.0


def test_of_two_logs_the_later_report_holds() -> None:
    """In whatever order they are read, as after a start; what is seen being written is the latest."""
    one = Told()
    one.take(Said(Stats("0", {"running": 2.0})), 20.0, NOW, "b.log", live=False)
    one.take(Said(Stats("0", {"running": 1.0})), 10.0, NOW, "a.log", live=False)
    assert engines(one)["0"].running == 2.0

    one.take(Said(Stats("0", {"running": 3.0})), 5.0, NOW, "a.log", live=True)

    assert engines(one)["0"].running == 3.0


def test_the_smallest_of_the_ranks_sizes_is_the_engines() -> None:
    """Up to 0.11.0 each rank prints its own; with pipeline parallelism they differ."""
    one = told(Capacity("0", tokens=80000.0), Capacity("0", tokens=120000.0))
    assert engines(one)["0"].kv_cache_capacity_tokens == 80000.0

    one.take(Said(Setting({}, engine="0")), NOW, NOW)
    one.take(Said(Capacity("0", tokens=120000.0)), NOW, NOW)

    assert engines(one)["0"].kv_cache_capacity_tokens == 120000.0


def test_a_sum_of_all_engines_is_none_beside_an_endpoint() -> None:
    """That has one series for each of them: a sum over the server would be doubled."""
    one = told(Stats("all", {"running": 9.0}))

    assert engines(one, counters=True).keys() == {"all"}
    assert engines(one, counters=False) == {}


def test_a_name_that_another_version_kept_is_passed_over() -> None:
    """A state of before an upgrade, or after one, must not stop the log for good."""
    one = told(Stats("0", {"running": 1.0, "of_old": 2.0}))
    one.counted["0"] = {"preemptions": 1.0, "gone": 5.0}

    assert engines(one) == {"0": EngineReading(server="s", running=1.0, preemptions=1.0, last_report_time=NOW)}
