"""Whether the rules stay silent for eight days in which nothing is wrong, by Prometheus' own engine.

    python -m benchmarks.quiet_week [--with-fault storm]
    python -m benchmarks.quiet_week --out docs/quiet-week.md

Seven hosts with nine servers, minute by minute (benchmarks/week): daily load and idle nights, bursts, deploys,
restarts, a reboot, maintenance, an upgrade, noise as it was measured. Every record and alert of `grafana/alerts/` is
worked out each minute, the hourly ones each hour. Exit status 1 says that somebody would have been paged. With
--with-fault, the week has one and ends with its day, and the status is 1 unless that pages, and nothing but what it
silences. --out also lets each fault page, and writes it all down. Forty seconds a day.
"""

import argparse
import os
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.week.expected import reason
from benchmarks.week.faults import FAULTS, Fault
from benchmarks.week.fleet import DAY, FLEET
from benchmarks.week.hosts import fleet
from benchmarks.week.rules import Active, alerts_of
from solpi_exporter.rules.files import ALERTS, RECORDS
from solpi_exporter.rules.rule import CRITICAL

DAYS = 8  # one more than the longest record looks back
PAGES = frozenset(alert.name for alert in ALERTS if alert.severity == CRITICAL)


@dataclass(frozen=True, slots=True)
class Week:
    """What came of a simulated week."""

    days: int
    every: int
    series: int
    seconds: float
    fault: Fault | None
    active: tuple[Active, ...]

    @property
    def evaluations(self) -> int:
        """How often a rule was worked out."""
        return (len(ALERTS) + len(RECORDS)) * self.days * DAY // self.every

    @property
    def fired(self) -> list[Active]:
        """What fired, day by day."""
        return [one for one in self.active if one.is_firing]

    @property
    def paged(self) -> set[tuple[str, str]]:
        """Alerts that paged, and hosts."""
        return {(one.alert, one.instance) for one in self.fired if one.alert in PAGES}

    @property
    def unexpected(self) -> set[tuple[str, str]]:
        """What fired without a reason, and paged nobody."""
        found = {(one.alert, one.instance) for one in self.fired if reason(one.alert, one.instance) is None}
        return found - self.paged

    @property
    def is_right(self) -> bool:
        """Whether nobody was paged; with a fault, whether it paged, on its day, and only what it silences beside."""
        if self.fault is None:
            return not self.paged
        days = {one.day for one in self.fired if one.alert in PAGES}
        allowed = {(name, FLEET[0].name) for name in (self.fault.page, *self.fault.brings)}
        return days == {self.fault.day} and (self.fault.page, FLEET[0].name) in self.paged <= allowed


def simulated(days: int, every: int, fault: Fault | None) -> Week:
    """Simulate a week, or the days up to a fault."""
    begun = time.monotonic()
    days = days if fault is None else fault.day
    series = list(fleet(days * DAY, fault))
    active = tuple(alerts_of(series, days, every))
    return Week(days, every, len(series), time.monotonic() - begun, fault, active)


def table(week: Week) -> Iterator[str]:
    """Yield every alert: where it fired and for how long, for how long it was pending, and why that is right."""
    fired, pending = _minutes(week.active, is_firing=True), _minutes(week.active, is_firing=False)
    yield "| alert | severity | fired, minutes | pending | why that is right |"
    yield "|---|---|---|---|---|"
    for alert in sorted(ALERTS, key=lambda alert: (alert.severity, alert.name)):
        hosts = fired[alert.name]
        where = ", ".join(f"{host} {minutes}".strip() for host, minutes in sorted(hosts.items()))
        why = {reason(alert.name, host) or "**it is not**" for host in hosts}
        waited = sum(pending[alert.name].values()) or ""
        yield f"| {alert.name} | {alert.severity} | {where} | {waited} | {'; '.join(sorted(why))} |"


def _minutes(active: Iterable[Active], *, is_firing: bool) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for one in active:
        if one.is_firing == is_firing:
            found[one.alert][one.instance] += one.minutes
    return found


def verdict(week: Week) -> str:
    """Return one line on a week."""
    pages = ", ".join(sorted(f"{alert} ({host})" for alert, host in week.paged)) or "none"
    fault = "" if week.fault is None else f" with fault `{week.fault.name}`"
    return (
        f"{week.days} days{fault}: pages: {pages}; other alerts without a reason: {len(week.unexpected)}; "
        f"{week.series:,} series, {week.evaluations:,} evaluations, {week.seconds:.0f} s"
    )


def faults_table(weeks: Iterable[Week]) -> Iterator[str]:
    """Yield what each fault paged, and after how many minutes: it begins at noon and stays."""
    yield "| fault | page | after, minutes | what came with it, and is silenced by it |"
    yield "|---|---|---|---|"
    for week in weeks:
        if week.fault is not None:
            after = DAY // 2 - sum(one.minutes for one in week.fired if one.alert == week.fault.page)
            others = ", ".join(sorted(alert for alert, _ in week.paged if alert != week.fault.page))
            yield f"| {week.fault.name}, day {week.fault.day} | {week.fault.page} | {after} | {others} |"


def document(quiet: Week, faulty: Sequence[Week]) -> str:
    """Return the report in Markdown."""
    version = subprocess.run(["promtool", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    servers = sum(len(host.servers) for host in FLEET)
    lines = [
        "# A quiet week",
        "",
        "    python -m benchmarks.quiet_week --out docs/quiet-week.md",
        "",
        f"{len(FLEET)} hosts, {servers} servers, {quiet.series:,} series, {quiet.days} days; {len(ALERTS)} alerts and "
        f"{len(RECORDS)} records, worked out every {quiet.every} min by promtool {version.rstrip(',')}, the hourly "
        f"ones every hour: {quiet.evaluations:,} evaluations in {quiet.seconds:.0f} s, beside those with faults, on "
        f"{os.cpu_count()} CPUs.",
        "`benchmarks/week/fleet.py` says what happens, and `benchmarks/week/probe.py` with which noise. **Pages: "
        f"{len(quiet.paged)}. Other alerts without a reason: {len(quiet.unexpected)}.**",
        "",
        "Pending are the minutes, of all hosts, in which an expression held but not for long enough.",
        "",
        *table(quiet),
        "",
        "## That it can page",
        "",
        "The same week, each with a fault from noon of a day on; it ends with that day. A regression of the host pages "
        "once the load falls: splits that were modelled beside a busy GPU are compared with nothing.",
        "",
        *faults_table(faulty),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Simulate, print or write, and judge."""
    names = {fault.name: fault for fault in FAULTS}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--every", type=int, default=1, help="minutes from one evaluation to the next")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--with-fault", choices=names, help="put one in")
    what.add_argument("--out", type=Path, help="write a document, with each fault as well")
    options = parser.parse_args()
    faults = [names.get(options.with_fault), *(FAULTS if options.out else ())]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # promtool keeps one CPU busy
        weeks = list(pool.map(lambda fault: simulated(options.days, options.every, fault), faults))
    if options.out:
        options.out.write_text(document(weeks[0], weeks[1:]))
    else:
        print("\n".join(table(weeks[0])) + "\n")
    print("\n".join(map(verdict, weeks)))
    return 0 if all(week.is_right for week in weeks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
