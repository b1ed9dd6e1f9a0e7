"""Alerts on the control layer: the probe against its baseline and its peers, and the serving engine's own token.

The probe's pages need every batch size and fifteen minutes: a host wanders by 40 % from one minute to the next. Its
warning waits for thirty: a virtual host holds 1.45 times its median for up to twenty by itself.
"""

from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING, Alert, Group

ON = "on (job, instance, device, uuid, batch, mode)"
EAGER = 'solpi_probe_token_seconds{mode="eager_sync", basis="measured"}'
# What a GPU needs for a token. On a CPU the host is the device: there all of it is the host's.
OF_GPU = '{phase=~"compute|memory", device!="cpu"}'
HOSTS_PART = (
    f"(\n"
    f"    {EAGER}\n"
    f"      - on (job, instance, device, uuid, batch, basis) group_left () clamp_min(\n"
    f"        sum without (phase) (solpi_probe_phase_seconds{OF_GPU})\n"
    f"          - on (job, instance, device, uuid, batch) group_left ()\n"
    f"            sum without (phase) (solpi_probe_baseline_phase_seconds{OF_GPU}), 0)\n"
    f"    or {EAGER}\n"
    f"  )"
)


def _against_baseline(token: str, limit: str) -> str:
    """Return an eager token against its baseline at the batch size where it grew least."""
    return (
        "min without (batch, mode, basis) (\n"
        f"  {token}\n"
        f'    / {ON} group_left () solpi_probe_baseline_token_seconds{{mode="eager_sync"}}\n'
        f") > {limit}"
    )


PROBE = Group(
    "solpi-control-probe",
    (
        Alert(
            name="SolpiControlRegression",
            severity=CRITICAL,
            expr=_against_baseline(HOSTS_PART, "${token_page_ratio}"),
            wait="15m",
            keep="10m",
            summary="The control layer of this host costs much more of each token than it did.",
            description="A decoded token takes ${value} times as long on ${device} as when its baseline was pinned "
            "(limit ${token_page_ratio}), at every batch size and without what its GPU takes longer. Look first at "
            "what starves the host: off-CPU time, governor, CPU limits, other processes. Run `solpi-exporter probe "
            "--compare FILE` there: it names what changed on the host.",
        ),
        Alert(
            name="SolpiTokenSlower",
            severity=WARNING,
            expr=_against_baseline(EAGER, "${token_ratio}"),
            wait="30m",
            keep="10m",
            summary="The probe's token takes longer than when its baseline was pinned.",
            description="A decoded token takes ${value} times as long on ${device} as when its baseline was pinned "
            "(limit ${token_ratio}), at every batch size. Run `solpi-exporter probe --compare FILE` there: "
            "it names what changed on the host.",
        ),
        Alert(
            name="SolpiSyncSlower",
            severity=WARNING,
            expr='(solpi_probe_phase_seconds{phase="sync", basis="measured"}\n'
            "  - on (job, instance, device, uuid, batch) group_left ()\n"
            '    solpi_probe_baseline_phase_seconds{phase="sync"})\n'
            "  / on (job, instance, device, uuid, batch) group_left ()\n"
            '    solpi_probe_baseline_token_seconds{mode="eager_sync"} > ${sync_share}',
            wait="10m",
            keep="10m",
            summary="The host learns late that the GPU has finished a token.",
            description="At batch {{ $labels.batch }}, waiting for the token on ${device} grew by ${value:percent} of "
            "the whole token (limit ${sync_share:percent}). Another thread holds the reading one back, or "
            "the CPU sleeps too deeply: look at off-CPU time and C-states. Run `solpi-exporter probe "
            "--compare FILE` there: it names what changed on the host.",
        ),
        Alert(
            name="SolpiLaunchSlower",
            severity=WARNING,
            expr="solpi_probe_launch_seconds\n"
            "  / on (job, instance, device, uuid) group_left () solpi_probe_baseline_launch_seconds > ${launch_ratio}",
            wait="10m",
            keep="10m",
            summary="Launching a kernel costs the host more than it did.",
            description="A launch on ${device} takes ${value} times its baseline (limit ${launch_ratio}). It moves with"
            " CPU clocks, driver and torch: compare the governor and the versions. Run `solpi-exporter "
            "probe --compare FILE` there: it names what changed on the host.",
        ),
        Alert(
            name="SolpiWakeupLate",
            severity=WARNING,
            expr='(solpi_probe_wakeup_overshoot_seconds{percentile="50"} > ${wakeup_seconds})\n'
            "  / on (job, instance, device, uuid, percentile) group_left ()\n"
            "    solpi_probe_baseline_wakeup_overshoot_seconds > ${wakeup_ratio}",
            wait="10m",
            keep="10m",
            summary="A thread of this host wakes up later than it did.",
            description="A sleeper on ${host} wakes up ${value} times as late as when its baseline was pinned (limit "
            "${wakeup_ratio}). Deep C-states or a hypervisor are the usual cause: try cpupower idle-set -D "
            "10, or tuned-adm profile latency-performance.",
        ),
        Alert(
            name="SolpiHostStarved",
            severity=WARNING,
            expr="max without (batch, mode) (\n"
            '  solpi_probe_off_cpu_seconds{mode="eager_sync"}\n'
            f'    / {ON} group_left () solpi_probe_token_seconds{{basis="measured"}}\n'
            ") > ${off_cpu_share}",
            wait="10m",
            keep="10m",
            summary="Threads of this host are kept from running while they decode.",
            description="The probe's thread on ${host} was off its CPU for ${value:percent} of a token (limit "
            "${off_cpu_share:percent}), and so will the engine's be. Find who takes the CPUs (top, "
            "systemd-cgtop), and pin the engine to CPUs of its own.",
        ),
        Alert(
            name="SolpiGpuTokenSlower",
            severity=CRITICAL,
            expr="min without (batch, basis) (\n"
            '  sum without (phase) (solpi_probe_phase_seconds{phase=~"compute|memory", device!="cpu"})\n'
            "    / on (job, instance, device, uuid, batch) group_left ()\n"
            '      sum without (phase) (solpi_probe_baseline_phase_seconds{phase=~"compute|memory"})\n'
            ") > ${gpu_token_ratio}",
            wait="10m",
            keep="10m",
            summary="The GPU itself takes longer for the same token.",
            description="Compute and memory of a token on ${device} take ${value} times their baseline (limit "
            "${gpu_token_ratio}), where 1% is usual. Look at clocks, throttling, ECC and the power limit "
            "(nvidia-smi -q -d CLOCK,PERFORMANCE), and at what a driver upgrade changed.",
        ),
        Alert(
            name="SolpiSlowerThanPeers",
            severity=WARNING,
            expr="min without (shape, layers, context, dtype, batch, mode, basis) (\n"
            '  device:solpi_probe_token_seconds:ratio_fleet{mode="eager_sync", basis="measured"}\n'
            "    and on (model, shape, layers, context, dtype, batch, mode, basis)\n"
            "      (model:solpi_probe_token_seconds:count >= ${fleet_hosts})\n"
            ") > ${fleet_ratio}",
            wait="30m",
            keep="10m",
            summary="This host is slower than others of its kind.",
            description="A token on ${device} takes ${value} times the median of hosts with {{ $labels.model }} (limit "
            "${fleet_ratio}). Save a baseline on a good one (solpi-exporter probe --save-baseline FILE), "
            "and compare it here: it names what differs.",
        ),
    ),
)

ENGINE = Group(
    "solpi-control-engine",
    (
        Alert(
            name="SolpiEngineControlHigh",
            severity=WARNING,
            expr="server:solpi_engine_control_ratio:avg5m > ${control_ratio}\n"
            "  unless on (job, instance, server) server:solpi_engine_preemptions:rate5m > ${preemptions}",
            wait="15m",
            keep="10m",
            summary="Much of each token of this server is spent without its GPU.",
            description="${value:percent} of the time between two tokens of ${server} the GPU was not busy for them "
            "(limit ${control_ratio:percent}). If it runs eager, try CUDA graphs; then async scheduling; "
            "then look at the CPU that its engine runs on.",
        ),
        Alert(
            name="SolpiEngineControlRisen",
            severity=WARNING,
            expr="(server:solpi_engine_control_ratio:avg5m - server:solpi_engine_control_ratio:p50_7d\n"
            "    > ${control_rise})\n"
            "  and on (job, instance, server)\n"
            "    present_over_time(server:solpi_engine_control_ratio:avg1h[6d] offset 1d)\n"
            "  unless on (job, instance, server) server:solpi_engine_preemptions:rate5m > ${preemptions}",
            wait="15m",
            keep="10m",
            summary="A server loses more of each token to the control layer than in the week before.",
            description="The lost share of a token of ${server} is ${value:percent} above the median of its week (limit"
            " ${control_rise:percent}). What was changed: engine version and flags, driver, load of the "
            "host? `solpi-exporter probe --compare FILE` tells whether it is the host.",
        ),
        Alert(
            name="SolpiGraphsWouldHelp",
            severity=INFO,
            expr="(\n"
            "  max without (setting, value) (\n"
            '    solpi_engine_setting_info{setting="enforce_eager", value="True"}\n'
            "  )\n"
            "  or on (job, instance, server) clamp_min(server:solpi_engine_control_ratio:avg5m > ${control_ratio}, 1)\n"
            ") * on (job, instance) group_left ()\n"
            '  max by (job, instance) (solpi_probe_reclaimable_ratio{mode="graph_async", device!="cpu"})\n'
            "  > ${reclaimable_ratio}",
            wait="1h",
            keep="1h",
            summary="CUDA graphs would give this server much back.",
            description="${server} was started with --enforce-eager, or spends much of its tokens without its GPU; of "
            "the probe's token on that host graphs with late read-back give back ${value:percent} (limit "
            "${reclaimable_ratio:percent}). Start it without that flag, if nothing else forbids it.",
        ),
        Alert(
            name="SolpiEngineCpuThrottled",
            severity=WARNING,
            expr="rate(solpi_engine_cpu_throttled_seconds_total[5m]) > ${cpu_throttled_ratio}",
            wait="10m",
            keep="10m",
            summary="A CPU limit holds the serving engine back.",
            description="The cgroup of ${server} was throttled for ${value} s a second (limit ${cpu_throttled_ratio}). "
            "An engine launches kernels from one busy thread: raise its CPU limit, or take it away "
            "(resources.limits.cpu, CPUQuota=).",
        ),
        Alert(
            name="SolpiEngineCpuStarved",
            severity=WARNING,
            expr="rate(solpi_engine_run_delay_seconds_total[5m])\n"
            "  / (rate(solpi_engine_cpu_seconds_total[5m]) > 0.1) > ${run_delay_ratio}",
            wait="10m",
            keep="10m",
            summary="Threads of the serving engine wait for a CPU.",
            description="Threads of ${server} waited ${value:percent} as long for a CPU as they ran (limit "
            "${run_delay_ratio:percent}). Find who takes the CPUs (top, systemd-cgtop), pin the engine "
            "(AllowedCPUs=), and move other work away.",
        ),
    ),
)

GROUPS = (PROBE, ENGINE)
