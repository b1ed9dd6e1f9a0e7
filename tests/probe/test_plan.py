"""What a cycle uses of a GPU."""

from solpi_exporter.probe.plan import Used


def test_a_warm_up_is_in_the_total_and_in_no_cycle() -> None:
    """And each cycle begins at nothing."""
    used = Used().more(1.0).warmer(2.0)

    assert used == Used(3.0, 1.0)
    assert used.begin() == Used(3.0, 0.0)
