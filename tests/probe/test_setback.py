"""How long the probe is held back after it spoilt its process."""

from solpi_exporter.probe.setback import SetbackKeeper, Setbacks


def test_the_delay_grows_with_each_setback() -> None:
    """A minute, five, fifteen, an hour, and an hour from then on: a bad GPU makes no crash loop."""
    setbacks, delays = Setbacks(), []

    for _ in range(5):
        setbacks = setbacks.another(1000.0)
        delays.append(setbacks.left(1000.0))

    assert delays == [60.0, 300.0, 900.0, 3600.0, 3600.0]


def test_the_delay_passes() -> None:
    """And is never negative."""
    setbacks = Setbacks().another(1000.0)

    assert (setbacks.left(1059.0), setbacks.left(1060.0), setbacks.left(9000.0)) == (1.0, 0.0, 0.0)


def test_a_clock_that_is_set_back_holds_nothing_back_for_years() -> None:
    """The longest delay is the limit."""
    assert Setbacks().another(2_000_000_000.0).left(1000.0) == 3600.0


def test_a_cycle_that_goes_well_ends_it() -> None:
    """That is saved once, not after every cycle."""
    saved: list[Setbacks] = []

    def save(setbacks: Setbacks) -> bool:
        saved.append(setbacks)
        return True

    keeper = SetbackKeeper(Setbacks(3, 0.0), save)

    keeper.is_over()
    keeper.is_over()

    assert saved == [Setbacks()]
