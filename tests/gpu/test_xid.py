"""The catalogue of XID codes: its vocabularies are closed, and rules may lean on its classes."""

import pytest

from solpi_exporter.gpu.xid import CATALOGUE, CRITICAL, INFO, ROWS, Action, CatalogueReading, Class, look_up
from tests.fakes import values


def test_every_code_has_one_row() -> None:
    """A code that stood twice in the table would be two series for one join."""
    assert len(ROWS) == len(CATALOGUE)


def test_every_row_says_what_it_means_in_a_few_words() -> None:
    """The meaning fits into a log line."""
    assert all(0 < len(row.meaning) < 80 for row in ROWS)


def test_classes_and_actions_are_label_values() -> None:
    """Both vocabularies are closed, and lower case words joined by underscores."""
    assert all(isinstance(row.kind, Class) and isinstance(row.action, Action) for row in ROWS)
    assert all(word.value.replace("_", "").islower() for word in [*Class, *Action])


def test_no_row_is_of_class_unknown() -> None:
    """Unknown is what the table does not hold."""
    assert Class.UNKNOWN not in {row.kind for row in ROWS}


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_the_programs_own_errors_are_of_class_application(code: int) -> None:
    """A rule that leaves out application errors is not woken by a user's bug."""
    assert look_up(code).kind is Class.APPLICATION


@pytest.mark.parametrize(
    ("code", "kind", "action"),
    [
        (48, Class.MEMORY, Action.RESET_GPU),
        (63, Class.MEMORY, Action.NONE),
        (74, Class.LINK, Action.CHECK_LINK),
        (79, Class.HARDWARE, Action.REBOOT_HOST),
        (94, Class.MEMORY, Action.RESTART_APP),
        (95, Class.MEMORY, Action.RESET_GPU),
        (119, Class.FIRMWARE, Action.RESET_GPU),
        (149, Class.LINK, Action.CHECK_LINK),
        (154, Class.INFORMATION, Action.FOLLOW_RECOVERY),
    ],
)
def test_the_well_known_codes_mean_what_nvidia_says(code: int, kind: Class, action: Action) -> None:
    """Class and action of the codes that rules name."""
    assert (look_up(code).kind, look_up(code).action) == (kind, action)


def test_engines_are_numbered_as_nvidia_numbers_them() -> None:
    """An engine's codes are scattered; the order in the table is the engine's number."""
    assert look_up(41).meaning == "copy engine 2 failed"
    assert look_up(135).meaning == "copy engine 19 failed"
    assert look_up(98).meaning == "video decoder 7 failed"


def test_critical_codes_are_in_the_catalogue() -> None:
    """A zero without a row could not be joined with its action."""
    assert set(CRITICAL) <= set(CATALOGUE)


def test_critical_codes_are_few_and_none_is_the_programs_own() -> None:
    """Each is a series on every GPU, there from the start."""
    assert len(set(CRITICAL)) == len(CRITICAL) <= 15
    assert Class.APPLICATION not in {look_up(code).kind for code in CRITICAL}
    assert {48, 62, 64, 74, 79, 94, 95, 119, 120} <= set(CRITICAL)


def test_a_code_that_is_not_in_the_table_is_to_be_looked_up() -> None:
    """A new driver's codes are counted and named as unknown."""
    row = look_up(4711)

    assert (row.code, row.kind, row.action) == (4711, Class.UNKNOWN, Action.LOOK_UP)


def test_the_catalogue_is_one_series_a_row() -> None:
    """Info is not per GPU: it is joined on xid."""
    info = values(list(CatalogueReading().samples()))[INFO.name]

    assert len(info) == len(ROWS)
    assert info["79", "hardware", "reboot_host"] == 1.0
