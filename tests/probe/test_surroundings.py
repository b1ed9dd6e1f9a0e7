"""What explains a change of the probe's figures."""

from dataclasses import fields, replace

import pytest

from solpi_exporter.probe.surroundings import ITEMS, SETUP, Surroundings, differences

BEFORE = Surroundings(
    driver="580.1",
    torch="2.11.0",
    kernel="6.8.0",
    governor="performance",
    cpu_frequency=3.0e9,
    cpu_waiting=0.01,
    sm_clock=1.98e9,
    ecc=True,
    pcie_width=16,
)


def told(now: Surroundings) -> list[str]:
    return [str(one) for one in differences(BEFORE, now)]


def test_what_is_the_same_is_not_told() -> None:
    """Nor is what was known on neither side."""
    assert told(BEFORE) == []


def test_what_differs_is_told_as_before_and_now() -> None:
    """In words, with its unit."""
    now = replace(BEFORE, driver="590.2", ecc=False, pcie_width=8, sm_clock=1.2e9, cpu_waiting=0.4)

    assert told(now) == [
        "driver 580.1 -> 590.2",
        "tasks waiting for a CPU 1% -> 40%",
        "PCIe lanes 16 -> 8",
        "SM clock 1.98 GHz -> 1.20 GHz",
        "ECC on -> off",
    ]


def test_what_is_known_on_one_side_is_told() -> None:
    """It may be the change that explains all."""
    assert told(replace(BEFORE, governor=None)) == ["governor performance -> not known"]


def test_what_moves_by_itself_is_told_only_when_it_moves_far() -> None:
    """A frequency within 5 %, waiting within 5 points."""
    assert told(replace(BEFORE, cpu_frequency=3.1e9, cpu_waiting=0.05)) == []
    assert told(replace(BEFORE, cpu_frequency=2.0e9)) == ["CPU frequency 3.00 GHz -> 2.00 GHz"]


def test_every_field_has_a_row() -> None:
    """One that is recorded and not shown explains nothing."""
    assert [item.name for item in ITEMS] == [field.name for field in fields(Surroundings)]


@pytest.mark.parametrize("name", SETUP)
def test_another_setup_is_noticed(name: str) -> None:
    """By each thing that stays until it is changed again; what is not known is no change."""
    old, new = (replace(Surroundings(), **{name: value}) for value in ("a", "b"))  # type: ignore[arg-type]

    assert new.is_other_setup(old)
    assert not new.is_other_setup(Surroundings())
    assert not Surroundings().is_other_setup(old)


def test_clocks_and_conditions_are_no_setup() -> None:
    """They move all the time."""
    assert not replace(BEFORE, sm_clock=1e9, conditions="quiet").is_other_setup(BEFORE)


def test_what_is_not_known_now_is_as_it_was() -> None:
    """And what is known now is as it is now."""
    assert Surroundings(driver="590.2").filled(BEFORE) == replace(BEFORE, driver="590.2")
