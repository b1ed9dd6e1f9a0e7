"""Whether the rules stay silent for a week in which nothing is wrong, by promtool on simulated hosts.

    python -m benchmarks.quiet_week [--days 7] [--fault storm]

Three hosts minute by minute (benchmarks/week.py): daily load and idle nights, restarts, a deploy, an upgrade, an
engine that runs eager, one that is always full, noise as it was measured. Records and alerts are those of
`grafana/alerts/`, worked out by Prometheus' own engine every other minute: the hourly ones too, since promtool knows
one interval, and every minute a week of them would be more samples than it takes. Exit status 1 says that somebody
would have been paged. With --fault, one is put in on the last day but one, and the status is 1 unless that pages, and
nothing but what it silences. Half a minute a day.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.week import FAULTS, MINUTES, series_of_a_week
from solpi_exporter.rules.files import ALERTS, FILES, rule_files
from solpi_exporter.rules.limits import chosen
from solpi_exporter.rules.rule import CRITICAL, INFO

EVERY = 2  # minutes
FIRED = 'max by (alertname, instance) (count_over_time(ALERTS{alertstate="firing", alertname!="SolpiWatchdog"}[30d]))'
# Warnings that are right: what the scenario has on purpose.
DESERVED = {
    ("SolpiEngineControlHigh", "eager"): "it runs eager all week, and loses two thirds of each token",
    ("SolpiGraphsWouldHelp", "eager"): "the same",
    ("SolpiKvCacheFull", "batch"): "an offline batch keeps it full",
    ("SolpiGpuPowerCapped", "batch"): "the same, and it runs at its power limit",
    ("SolpiGpuXidApplication", "graphs"): "a program failed on the third day (XID 31)",
}
_SAMPLE = re.compile(r"\{([^}]*)\} ([0-9.E+]+)")


@dataclass(frozen=True, slots=True)
class Firing:
    """An alert that fired on a host, for so many minutes."""

    alert: str
    instance: str
    minutes: float

    @property
    def severity(self) -> str:
        """Its severity."""
        return next(one.severity for one in ALERTS if one.name == self.alert)


def fired(days: int, fault: str | None) -> list[Firing]:
    """Let promtool work the week out, and return what fired."""
    series = series_of_a_week(days, fault)
    test = {"expr": FIRED, "eval_time": f"{days * MINUTES - 1}m", "exp_samples": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in rule_files(chosen({})).items():
            (Path(folder) / name).write_text(text)
        tree = {
            "rule_files": list(FILES),
            "evaluation_interval": f"{EVERY}m",
            "group_eval_order": [group.name for groups in FILES.values() for group in groups],
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "promql_expr_test": [test],
                }
            ],
        }
        (Path(folder) / "week.yml").write_text(json.dumps(tree))
        command = ["promtool", "test", "rules", "week.yml"]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return list(_read(outcome.stdout + outcome.stderr))


def _read(said: str) -> Iterator[Firing]:
    """Read what promtool says that it got instead of nothing; any other complaint ends the program."""
    if "SUCCESS" in said:
        return
    _, found, got = said.partition("got:")
    if not found or "err:" in said:
        raise SystemExit(said[-2000:])
    for labels, minutes in _SAMPLE.findall(got):
        names = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        yield Firing(names["alertname"], names.get("instance", ""), EVERY * float(minutes))


def report(firings: Iterable[Firing]) -> Iterator[str]:
    """Yield a Markdown table."""
    yield "| alert | severity | host | minutes | why that is right |"
    yield "|---|---|---|---|---|"
    for one in sorted(firings, key=lambda one: (one.severity, one.alert, one.instance)):
        reason = DESERVED.get((one.alert, one.instance), "")
        yield f"| {one.alert} | {one.severity} | {one.instance} | {one.minutes:.0f} | {reason} |"


def main() -> int:
    """Simulate, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7, help="of a week, 3 at least")
    parser.add_argument("--fault", choices=FAULTS, help="put one in on the last day but one")
    options = parser.parse_args()
    begun = time.monotonic()
    firings = fired(options.days, options.fault)
    print("\n".join(report(firings)))
    pages = {one.alert for one in firings if one.severity == CRITICAL}
    unexpected = [
        one for one in firings if one.severity not in (CRITICAL, INFO) and (one.alert, one.instance) not in DESERVED
    ]
    print(f"\n{options.days} days in {time.monotonic() - begun:.0f} s; pages: {', '.join(sorted(pages)) or 'none'}; "
          f"warnings without a reason: {len(unexpected)}")  # fmt: skip
    if options.fault is None:
        return 1 if pages else 0
    own, *silenced = FAULTS[options.fault]
    return 0 if own in pages <= {own, *silenced} else 1


if __name__ == "__main__":
    raise SystemExit(main())
