"""vLLM's KV connectors: what they moved, under the names of each generation, and what is not ours."""

import pytest

from solpi_exporter.engine.dialects.dialect import Transfer
from solpi_exporter.engine.dialects.vllm_transfer import MEANS, MOVED, TRANSFERS, USAGE
from tests.engine.dialects.lines import event_of, head_of, log_line

LOG = "vllm-kv-transfer-offload-lmcache.log"
METRICS = head_of("metrics") + "KV Transfer metrics: "


def transfer(parts: str) -> Transfer:
    event = event_of(METRICS + parts)
    assert isinstance(event, Transfer)
    return event


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metrics: num_successful_transfers", Transfer("", {})),
        (
            "metrics: GPU_to_CPU_total_bytes",
            Transfer(
                "",
                {
                    "stored_bytes": 4831838208.0,
                    "stored_seconds": 0.4120035171508789,
                    "loaded_bytes": 1207959552.0,
                    "loaded_seconds": 0.0810002,
                },
            ),
        ),
        (
            "Num failed transfers",
            Transfer(
                "",
                {
                    "failed_transfers": 1.0,
                    "received_bytes": 41 * 64.0 * 1048576,
                    "received_seconds": 41 * 7.113 * 1e-3,
                },
            ),
        ),
        (
            "metrics: vllm:kv_offload_total_bytes",
            Transfer(
                "",
                {
                    "stored_bytes": 4831838208.0,
                    "stored_seconds": 0.412,
                    "loaded_bytes": 1207959552.0,
                    "loaded_seconds": 0.081,
                },
                {"offload_usage_ratio": 0.3125},
            ),
        ),
        (
            "NixlConnector={",
            Transfer(
                "",
                {"stored_bytes": 4831838208.0, "stored_seconds": 0.412, "received_seconds": 3 * 7.1 * 1e-3},
            ),
        ),
        ("simple_kv_offload", Transfer("", {})),
    ],
)
def test_the_lines_of_each_connector(text: str, expected: Transfer) -> None:
    """Old names and new, NIXL's means, a dict for each of several, and one whose keys are unknown."""
    assert event_of(log_line(LOG, text)) == expected


@pytest.mark.parametrize(("key", "attribute"), MOVED.items())
def test_each_quantity_is_read(key: str, attribute: str) -> None:
    """Alone, between others, and in a connector's own dict, for whose keys Python chooses the quotes."""
    assert transfer(f"{key}=12").counted == {attribute: 12.0}
    assert transfer(f"unknown=1, {key}=12, unknown:('a', 'b')=2").counted == {attribute: 12.0}
    assert transfer(f"One={{'x': 1}}, Two={ {key: 12, 'y': 2.5} }").counted == {attribute: 12.0}


@pytest.mark.parametrize("order", [1, -1])
def test_old_and_new_names_in_one_line_are_one_quantity(order: int) -> None:
    """They are not added up, and the new one is taken wherever it stands."""
    parts = [
        "vllm:kv_offload_total_bytes:('GPU_to_CPU',)=5",
        "vllm:kv_offload_store_bytes=7",
        "GPU_to_CPU_total_bytes=9",
    ]

    assert transfer(", ".join(parts[::order])).counted == {"stored_bytes": 7.0}


@pytest.mark.parametrize(("key", "product"), [(key, 3 * 2.5 * unit) for key, (_, unit) in MEANS.items()])
def test_a_mean_is_multiplied_by_the_number_of_transfers(key: str, product: float) -> None:
    """NIXL prints no totals; without the number there is none."""
    attribute = MEANS[key][0]

    assert transfer(f"{key}=2.5, {TRANSFERS}=3").counted == {attribute: product}
    assert transfer(f"{key}=2.5").counted == {}
    assert transfer(f"{TRANSFERS}=3").counted == {}


@pytest.mark.parametrize(("value", "known"), [("0.0", 0.0), ("1.0", 1.0), ("0.00390625", 0.00390625)])
def test_the_usage_is_a_state(value: str, known: float) -> None:
    """Under the key that ends in `perc` it is from 0 to 1."""
    assert transfer(f"{USAGE}={value}") == Transfer("", {}, {"offload_usage_ratio": known})


@pytest.mark.parametrize("value", ["1.5", "nan", "-0.1", "31.25", ""])
def test_a_usage_that_cannot_be_true_is_left_out(value: str) -> None:
    """What was moved stands."""
    assert transfer(f"{USAGE}={value}, GPU_to_CPU_total_bytes=9") == Transfer("", {"stored_bytes": 9.0})


@pytest.mark.parametrize(
    "value", ["nan", "inf", "-1", "-0.5", "1e999", "٣", "9" * 400, "0x1f", "1_000", "", "'9'", "[9]"]
)
def test_an_amount_that_cannot_be_true_is_left_out(value: str) -> None:
    """A counter never goes back, and never to infinity."""
    assert transfer(f"GPU_to_CPU_total_bytes={value}, CPU_to_GPU_total_bytes=9").counted == {"loaded_bytes": 9.0}
    assert transfer(f"A={{'GPU_to_CPU_total_bytes': {value}, 'CPU_to_GPU_total_bytes': 9}}").counted == {
        "loaded_bytes": 9.0
    }


@pytest.mark.parametrize("value", ["1e-05", "1.5e+3", "2.5E3"])
def test_small_and_large_numbers_are_printed_with_an_exponent(value: str) -> None:
    """As Python prints floats; it never writes a capital."""
    assert transfer(f"GPU_to_CPU_total_time={value}").counted == (
        {} if "E" in value else {"stored_seconds": float(value)}
    )


@pytest.mark.parametrize(
    "parts",
    [
        "x",
        "=",
        "=,=",
        ", , ,",
        "a={",
        "a={'b': 1",
        "a=}",
        "}{",
        "((((",
        "))))",
        "a=(1, 2",
        "'",
        ": : :",
        "a={b}",
        "a={}",
    ],
)
def test_a_line_of_no_known_form_moves_nothing(parts: str) -> None:
    """Brackets that never close, or were never open, are no error."""
    assert transfer(parts) == Transfer("", {})


def test_an_amount_that_is_cut_off_is_not_read() -> None:
    """A dict without its end was torn, and so was its last number."""
    assert transfer("OffloadingConnector={'vllm:kv_offload_store_bytes': 4831838208").counted == {}


@pytest.mark.parametrize("message", ["EC Transfer metrics: GPU_to_CPU_total_bytes=9", "KV Transfer metrics: "])
def test_another_line_is_no_transfer(message: str) -> None:
    """The encoder's cache has a line that ends alike; nothing is no report."""
    assert event_of(head_of("metrics") + message) is None


def test_lmcaches_own_lines_are_not_read() -> None:
    """They have another head, and tell of requests."""
    for text in ("Retrieved 704", "Stored 128", "need to load: -64", "Tier #1"):
        assert event_of(log_line(LOG, text)) is None
