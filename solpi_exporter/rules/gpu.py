"""Alerts on the GPUs: lost or hung ones, XIDs, throttling, memory that fails, and modes that cost latency."""

from solpi_exporter.rules.rule import CRITICAL, INFO, WARNING, Alert, Group

# By what has to be done, and so by how urgent it is; tests/rules/ holds that every documented code is in one of these.
URGENT_ACTIONS = "reset_gpu|reboot_host|restart_vm|check_mechanicals|check_power|contact_support|follow_recovery_action"
OTHER_ACTIONS = "restart_app|check_link|update_software|look_up"


def _xid(selector: str) -> str:
    """Return the XIDs of late; one that comes for the first time has a time and no increase."""
    return (
        "(time() - solpi_gpu_xid_last_timestamp_seconds < ${xid_seconds})\n"
        f"  * on (job, instance, xid) group_left (class, action) solpi_xid_info{{{selector}}}"
    )


STATES = Group(
    "solpi-gpu-states",
    (
        Alert(
            name="SolpiGpuLost",
            severity=CRITICAL,
            expr='solpi_gpu_state{state="lost"} == 1',
            wait="1m",
            keep="2m",
            summary="A GPU is gone.",
            description="${gpu} is gone from the bus or from NVML's list. Look at its XIDs (dmesg, grep NVRM), drain "
            "the host, then reset the GPU or reboot; in a container, make the container anew.",
        ),
        Alert(
            name="SolpiGpuHung",
            severity=CRITICAL,
            expr='solpi_gpu_state{state="hung"} == 1',
            wait="2m",
            keep="2m",
            summary="The driver does not answer for a GPU.",
            description="A call for ${gpu} has not returned. Look at dmesg (grep NVRM) and at its processes in state D;"
            " drain the host and reboot it, since a process in such a call cannot be killed.",
        ),
        Alert(
            name="SolpiGpuUnusable",
            severity=WARNING,
            expr='solpi_gpu_state{state=~"reset_required|no_permission|driver_mismatch|driver_absent"} == 1',
            wait="5m",
            keep="5m",
            summary="A GPU is there, and cannot be read.",
            description="${gpu} is in state {{ $labels.state }}. docs/gpu.md says for each what to do.",
        ),
        Alert(
            name="SolpiGpusMissing",
            severity=CRITICAL,
            expr="solpi_gpus_expected > on (job, instance) group_left ()\n"
            "  (\n"
            '    sum by (job, instance) (solpi_gpu_state{state=~"ok|quiesced"})\n'
            "    or on (job, instance) 0 * solpi_gpus_expected\n"
            "  )",
            wait="5m",
            keep="5m",
            summary="A host has fewer working GPUs than it should.",
            description="${host} should have ${value} working GPUs, and has fewer. See solpi_gpu_state for the ones "
            "that are known, lspci for the rest; set gpu.expected if it is meant to.",
        ),
        Alert(
            name="SolpiGpuRecoveryNeeded",
            severity=CRITICAL,
            expr="solpi_gpu_recovery_action > 0",
            wait="1m",
            keep="5m",
            summary="The driver asks for a GPU to be recovered.",
            description="For ${gpu} the driver asks for action {{ $value }}: 1 reset, 2 reboot, 3 drain its peers, 4 "
            "drain and reset; docs/metrics.md has the rest. Drain the host, then do so; the runbook says "
            "how to make the exporter let go of a GPU for a reset.",
        ),
    ),
)

XIDS = Group(
    "solpi-gpu-xids",
    (
        Alert(
            name="SolpiGpuXidCritical",
            severity=CRITICAL,
            expr=_xid(f'class!="application", action=~"{URGENT_ACTIONS}"'),
            keep="5m",
            summary="A GPU reported an error that it does not get over by itself.",
            description="${gpu} reported XID {{ $labels.xid }} ({{ $labels.class }}) within ${xid_seconds} s. NVIDIA's "
            "first step is {{ $labels.action }}. Drain the host, then do that.",
        ),
        Alert(
            name="SolpiGpuXid",
            severity=WARNING,
            expr=_xid(f'class!="application", action=~"{OTHER_ACTIONS}"'),
            keep="5m",
            summary="A GPU reported an error.",
            description="${gpu} reported XID {{ $labels.xid }} ({{ $labels.class }}) within ${xid_seconds} s. NVIDIA's "
            "first step is {{ $labels.action }}.",
        ),
        Alert(
            name="SolpiGpuXidUnknown",
            severity=WARNING,
            expr="(time() - solpi_gpu_xid_last_timestamp_seconds < ${xid_seconds})\n"
            "  unless on (job, instance, xid) solpi_xid_info",
            keep="5m",
            summary="A GPU reported an error that NVIDIA's catalogue did not name.",
            description="${gpu} reported XID {{ $labels.xid }} within ${xid_seconds} s. Look it up at "
            "docs.nvidia.com/deploy/xid-errors.",
        ),
        Alert(
            name="SolpiGpuXidApplication",
            severity=INFO,
            expr=_xid('class="application"'),
            keep="5m",
            summary="A program's work on a GPU failed; the GPU goes on.",
            description="${gpu} reported XID {{ $labels.xid }} ({{ $labels.class }}) within ${xid_seconds} s. Look at "
            "the log of the program that used it; often it is its own fault.",
        ),
    ),
)

HEALTH = Group(
    "solpi-gpu-health",
    (
        Alert(
            name="SolpiGpuHardwareThrottled",
            severity=CRITICAL,
            expr="max without (reason) (avg_over_time(solpi_gpu_clocks_event_active{\n"
            '  reason=~"hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown"\n'
            "}[5m])) > ${throttled_ratio}",
            wait="5m",
            keep="10m",
            summary="Hardware holds a GPU's clocks down.",
            description="${gpu} was slowed down for ${value:percent} of 5 minutes (limit ${throttled_ratio:percent}), "
            "by heat or by its power supply. nvidia-smi -q -d PERFORMANCE names which; look at fans, inlet "
            "temperature, power cables and the chassis' power cap.",
        ),
        Alert(
            name="SolpiGpuThermalThrottled",
            severity=WARNING,
            expr='avg_over_time(solpi_gpu_clocks_event_active{reason="sw_thermal_slowdown"}[5m]) > ${throttled_ratio}',
            wait="15m",
            keep="10m",
            summary="The driver holds a GPU's clocks down for heat.",
            description="${gpu} was slowed down for heat ${value:percent} of 5 minutes (limit "
            "${throttled_ratio:percent}). Look at fans and inlet temperature, before the hardware does the "
            "same.",
        ),
        Alert(
            name="SolpiGpuPowerCapped",
            severity=INFO,
            expr='avg_over_time(solpi_gpu_clocks_event_active{reason="sw_power_cap"}[15m]) > ${capped_ratio}',
            wait="30m",
            keep="15m",
            summary="A GPU runs at its power limit, as a busy one does.",
            description="${gpu} was at its power limit for ${value:percent} of 15 minutes (limit "
            "${capped_ratio:percent}). If the limit was lowered by mistake, nvidia-smi -q -d POWER shows "
            "it.",
        ),
        Alert(
            name="SolpiGpuRowRemapFailed",
            severity=CRITICAL,
            expr="solpi_gpu_row_remap_failure == 1",
            keep="5m",
            summary="A GPU's memory fails, and cannot be mended.",
            description="${gpu} has no spare row left for one that failed. Drain it, and have it exchanged.",
        ),
        Alert(
            name="SolpiGpuRowRemapPending",
            severity=WARNING,
            expr="solpi_gpu_row_remap_pending == 1",
            wait="5m",
            keep="5m",
            summary="A row of a GPU's memory waits to be replaced.",
            description="${gpu} replaces a row of its memory at its next reset. Drain it when convenient, then "
            "reset it; the runbook says how the exporter lets go of it for that.",
        ),
        Alert(
            name="SolpiGpuUncorrectedEcc",
            severity=WARNING,
            expr="sum without (severity, scope) (\n"
            '  solpi_gpu_ecc_errors_total{severity="uncorrected", scope="volatile"}\n'
            ") > 0",
            wait="5m",
            keep="5m",
            summary="A GPU's memory had errors that ECC could not correct.",
            description="${gpu} had ${value} uncorrectable errors since its driver was loaded. What used that memory "
            "has failed; reset the GPU when convenient, and have it exchanged if they come back.",
        ),
        Alert(
            name="SolpiPersistenceModeOff",
            severity=WARNING,
            expr="(solpi_gpu_persistence_mode_enabled == 0) and on (job, instance, uuid) solpi_engine_gpu_info",
            wait="30m",
            keep="30m",
            summary="A GPU that serves has persistence mode off.",
            description="The driver lets go of ${gpu} with its last client, and the next one waits seconds for it. "
            "Enable nvidia-persistenced, or nvidia-smi -pm 1.",
        ),
        Alert(
            name="SolpiEccAndPersistenceOff",
            severity=WARNING,
            expr="(solpi_gpu_persistence_mode_enabled == 0)\n"
            '  and on (job, instance, uuid) (solpi_gpu_ecc_enabled{when="current"} == 0)\n'
            "  and on (job, instance, uuid) solpi_engine_gpu_info",
            wait="30m",
            keep="30m",
            summary="A GPU that serves has both ECC and persistence mode off, the worst for wake-ups.",
            description="${gpu} has ECC and persistence mode off. Change both or neither: nvidia-smi -pm 1, then "
            "nvidia-smi -e 1 and a reboot; ECC costs some of the bandwidth where the memory has none of its"
            " own.",
        ),
        Alert(
            name="SolpiCudaMismatch",
            severity=WARNING,
            expr="solpi_cuda_toolkit_version > on (job, instance) group_left () solpi_cuda_driver_version",
            wait="10m",
            keep="10m",
            summary="A torch was built for a newer CUDA than the driver knows.",
            description="On ${host} the torch of {{ $labels.user }} {{ $labels.server }} was built for CUDA {{ $value "
            "}}, which is newer than the driver's: it falls back to slower ways without an error, or fails."
            " Upgrade the driver, or install a torch built for it.",
        ),
    ),
)

GROUPS = (STATES, XIDS, HEALTH)
