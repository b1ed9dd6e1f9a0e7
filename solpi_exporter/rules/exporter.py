"""Alerts on the exporter itself: what must be noticed before the other alerts can be trusted."""

from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING, Alert, Group

# A target is ours if it ever was, within a day: so no name of a job has to be known.
OURS = "group without (version, python) (last_over_time(solpi_build_info[1d]))"
# Beside a GPU that is always busy there are modelled splits only: the probe works, though it measures none.
MODELLED = '(sum without (outcome) (increase(solpi_probe_runs_total{outcome="contended"}[1h])) > 0)'

ALIVE = Group(
    "solpi-exporter-alive",
    (
        Alert(
            name="SolpiWatchdog",
            severity=INFO,
            expr="vector(1)",
            summary="Always fires: where it does not arrive, no other alert does.",
            description="Route it to a dead man's switch, which pages when it stops.",
        ),
        Alert(
            name="SolpiExporterDown",
            severity=CRITICAL,
            expr=f"(up == 0) and on (job, instance) {OURS}",
            wait="5m",
            keep="2m",
            summary="An exporter cannot be scraped: nothing is known of its host.",
            description="${host} has not answered for 5 minutes. Is the host up (ping)? Is the exporter (systemctl "
            "status solpi-exporter; journalctl -u solpi-exporter)?",
        ),
        Alert(
            name="SolpiExporterVanished",
            severity=WARNING,
            expr=f"{OURS} unless on (job, instance) up",
            wait="15m",
            keep="15m",
            summary="An exporter is no longer among Prometheus' targets.",
            description="${host} was scraped within a day, and is no target any more. If its host was not taken out on "
            "purpose, look at the service discovery of job {{ $labels.job }}.",
        ),
    ),
)

SOURCES = Group(
    "solpi-exporter-sources",
    (
        Alert(
            name="SolpiSourceDown",
            severity=WARNING,
            expr='solpi_source_state{state="down"} == 1',
            wait="15m",
            keep="5m",
            summary="The exporter cannot read something that it should.",
            description="On ${host} source {{ $labels.source }} has failed for 15 minutes, longer than an engine's "
            "start takes. The exporter's log says why, and what to do (journalctl -u solpi-exporter).",
        ),
        Alert(
            name="SolpiProbeStale",
            severity=WARNING,
            expr="(time() - solpi_probe_last_success_timestamp_seconds > ${probe_seconds})\n"
            '  and on (job, instance) (solpi_source_state{source="probe", state=~"ok|down"} == 1)\n'
            f"  unless on (job, instance) {MODELLED}",
            wait="5m",
            keep="5m",
            summary="The probe has measured nothing for long.",
            description="On ${host} the last split was measured ${value:duration} ago (limit ${probe_seconds} s). "
            "solpi_probe_skipped_total names the reason where it is left out on purpose, "
            "solpi_probe_runs_total whether all were noisy.",
        ),
        Alert(
            name="SolpiProbeSkipped",
            severity=WARNING,
            expr='(sum without (reason) (increase(solpi_probe_skipped_total{reason!="starting"}[1h])) > 0)\n'
            "  unless on (job, instance)\n"
            "    (time() - solpi_probe_last_success_timestamp_seconds < ${probe_seconds})\n"
            f"  unless on (job, instance) {MODELLED}",
            wait="1h",
            keep="10m",
            summary="The probe is left out all the time.",
            description="On ${host} no cycle of the probe ran for ${probe_seconds} s: each would have done harm or "
            "meant nothing. "
            "The reason is in solpi_probe_skipped_total and in the exporter's log, docs/probe.md says what "
            "helps.",
        ),
        Alert(
            name="SolpiLogLost",
            severity=WARNING,
            expr="increase(solpi_log_lost_bytes_total[15m]) > 0",
            keep="15m",
            summary="Lines of an engine's log were gone before they were read.",
            description="Of the log of ${server} ${value} bytes were lost: rotation deleted them while the exporter did"
            " not run or could not read. Counters from the log are too low by what they held. Let rotation "
            "keep one more file (delaycompress, rotate).",
        ),
        Alert(
            name="SolpiStateNotSaved",
            severity=WARNING,
            expr="increase(solpi_state_write_failures_total[15m]) > 0",
            keep="15m",
            summary="The exporter cannot save its state.",
            description="On ${host} state {{ $labels.state }} could not be written ${value} times: after a restart "
            "lines may count twice. Is the disk full (df), or the state directory not writable?",
        ),
        Alert(
            name="SolpiClockSkew",
            severity=WARNING,
            expr="abs(time() - max without (source) (solpi_source_last_success_timestamp_seconds))\n"
            "  > ${clock_seconds} and on (job, instance)\n"
            '  (sum by (job, instance) (rate(solpi_source_polls_total{outcome="success"}[2m])) > 0)',
            wait="2m",
            keep="5m",
            summary="A host's clock differs from Prometheus'.",
            description="The clock of ${host} is ${value:duration} off (limit ${clock_seconds} s): whatever compares "
            "times is wrong. Look at chronyc tracking or timedatectl there, and on Prometheus' host.",
        ),
    ),
)

GROUPS = (ALIVE, SOURCES)
