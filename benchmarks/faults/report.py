"""The table of what each fault raised."""

from collections.abc import Iterator, Sequence

from benchmarks.faults.cases import Needs
from benchmarks.faults.run import WAITS, Outcome, bar
from solpi_exporter.rules.files import ALERTS
from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING
from tests.paging import FASTER

SEVERITIES = {alert.name: alert.severity for alert in ALERTS}
QUIET = {WARNING: "a ticket", INFO: "to nobody"}


def table(found: Sequence[Outcome]) -> Iterator[str]:
    """Yield a row for each fault, in Markdown."""
    yield "| fault | its alert | `for` | and needs | at most | fired | paged | also fired | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in found:
        case, own = one.case, one.own
        also = ", ".join(_other(one, name) for name in sorted(set(one.fired) - {own}))
        if own is None:
            cells = ["none", "", "", "", "", ""]
        else:
            paged = one.paged.get(own)
            at = QUIET.get(SEVERITIES[own], _seconds(paged))
            cells = [own, WAITS[own], _needs(case.needs), f"{bar(case):.1f} s", _seconds(one.after), at]
        yield f"| {case.name} | {' | '.join(cells)} | {also} | {verdict(one)} |"


def verdict(one: Outcome) -> str:
    """Return one word, or what is wrong."""
    if one.wrong:
        return f"**wrong: {', '.join(one.wrong)}**"
    if not one.is_right:
        return "**missing**" if one.after is None else "**before the fault**"
    return "silent" if one.own is None else "in time" if one.is_in_time else "**late**"


def _needs(needs: Needs) -> str:
    return f"{needs.seconds:g} s{'' if needs.divided else ' here'}: {needs.why}" if needs.seconds else ""


def _other(one: Outcome, name: str) -> str:
    if SEVERITIES[name] == CRITICAL:
        return f"{name} (a page)" if name in one.paged else f"{name} (silenced)"
    return f"{name} ({QUIET[SEVERITIES[name]]})"


def _seconds(after: float | None) -> str:
    return "never" if after is None else f"{after:.1f} s"


def document(found: Sequence[Outcome], versions: str, cpus: int) -> str:
    """Return the report."""
    good = sum(one.is_in_time for one in found)
    lines = [
        "# The fault matrix",
        "",
        "    python -m benchmarks.fault_matrix --out docs/fault-matrix.md",
        "",
        f"{len(found)} faults, each in a real daemon on a host of its own, through {versions} to a pager, on "
        f"{cpus} CPUs, with every duration of rules and routing divided by {FASTER}: five minutes are ten seconds. "
        f"**{good} of {len(found)} are as they should be**: its own alert in time, and no other page.",
        "",
        "In time is within `for`, two evaluations (a second each) and what an alert needs beside them until its "
        "expression holds; `here` says that this was not divided. `fired` and `paged` are seconds after the fault, as "
        "measured. What is silenced fires, and Alertmanager tells nobody.",
        "",
        *table(found),
    ]
    return "\n".join(lines) + "\n"
