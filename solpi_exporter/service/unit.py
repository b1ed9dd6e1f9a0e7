"""What is laid down for systemd: the unit, a drop-in for hosts without the probe, and settings to begin with.

`systemd/` of the project shows these texts for an exporter in /opt/solpi-exporter; `solpi-exporter install` writes them
for the Python that runs it.
"""

from collections.abc import Mapping

UNIT_NAME = "solpi-exporter.service"
PYTHON = "/opt/solpi-exporter/bin/python"  # where the docs put it

UNITS = "etc/systemd/system"
UNIT = f"{UNITS}/{UNIT_NAME}"
NO_PROBE = f"{UNITS}/{UNIT_NAME}.d/no-probe.conf"
CONFIG = "etc/solpi-exporter/config.toml"
FLAGS = "etc/default/solpi-exporter"

_UNIT = """\
[Unit]
Description=Prometheus exporter for LLM inference hosts
After=network.target nvidia-persistenced.service
# DeviceAllow= names devices that are there when the service starts, and CUDA's is not before somebody has asked for it.
Wants=modprobe@nvidia.service modprobe@nvidia_uvm.service
After=modprobe@nvidia.service modprobe@nvidia_uvm.service
# Whoever monitors must come back, however long it takes.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
EnvironmentFile=-/etc/default/solpi-exporter
Environment=SOLPI_CONFIG=/etc/solpi-exporter/config.toml
Environment=SOLPI_STATE_DIR=/var/lib/solpi-exporter
Environment=CUDA_CACHE_PATH=/var/cache/solpi-exporter
ExecStartPre={python} -m solpi_exporter check $ARGS
ExecStart={python} -m solpi_exporter run $ARGS
# What is wrong with the settings makes the reload fail, and is told by the daemon's metrics; those in force stay.
ExecReload=/bin/kill -HUP $MAINPID
ExecReload={python} -m solpi_exporter check $ARGS
Restart=on-failure
RestartSec=5
TimeoutStartSec=90
TimeoutStopSec=10
# The daemon ends what it has started by itself.
KillMode=mixed
# Fed by the main loop. One that hangs is killed, with the stack of each thread in the journal.
WatchdogSec=30
Environment=PYTHONFAULTHANDLER=1

# The probe holds up to 1 GiB of the host's memory. No CPUQuota=: to be throttled would void what it measures.
MemoryMax=2G
TasksMax=256
# Where memory runs out, it goes before the engine does.
OOMScoreAdjust=500
# Threads of a library count the host's CPUs; one is enough here, and the engine has the others.
Environment=OMP_NUM_THREADS=1

DynamicUser=yes
User=solpi-exporter
StateDirectory=solpi-exporter
StateDirectoryMode=0700
CacheDirectory=solpi-exporter
ConfigurationDirectory=solpi-exporter
UMask=0077
# The journals of other units. For logs in files name their group in a drop-in: SupplementaryGroups=adm
SupplementaryGroups=systemd-journal

# The GPUs, and nothing else. Not PrivateDevices=, which would take them away.
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
DeviceAllow=char-nvidia-uvm rw

CapabilityBoundingSet=
AmbientCapabilities=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
# torch asks for its CPUs by a call of @resources: it gets an error, where it would else be killed.
SystemCallErrorNumber=EPERM
# What is left out, and why:
# MemoryDenyWriteExecute=  CUDA and torch compile code. The drop-in no-probe.conf has it.
# ProtectProc=, ProcSubset=, PrivateUsers=  which process is whose is read in /proc, of other users' processes.
# PrivateNetwork=, IPAddressDeny=  Prometheus asks over the network, from wherever it is.

[Install]
WantedBy=multi-user.target
"""

_NO_PROBE = """\
# For hosts on which the decode probe does not run: less memory, and nothing that is compiled.
[Service]
Environment=SOLPI_PROBE_ENABLED=false
MemoryMax=256M
MemoryDenyWriteExecute=yes
PrivateMounts=yes
# Prometheus asks from a private network; allow where yours is, if it is elsewhere.
IPAddressDeny=any
IPAddressAllow=localhost link-local 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7
"""

_CONFIG = """\
# Settings of solpi-exporter; every one has a default. `solpi-exporter check --config FILE` says whether a file fits,
# and `systemctl reload solpi-exporter` takes it.

# [[engine.server]]
# name = "vllm"
# journal = "vllm.service"                        # or log = "/var/log/vllm.log"
# metrics_url = "http://127.0.0.1:8000/metrics"
"""

_FLAGS = """\
# Flags of `solpi-exporter run`, as a shell would split them: ARGS="--no-probe --log-level debug"
ARGS=""
"""


def files(python: str = PYTHON, *, probe: bool = True) -> Mapping[str, str]:
    """Return the text of each file by its place under the root, for an interpreter that has the package."""
    texts = {UNIT: _UNIT.replace("{python}", python), CONFIG: _CONFIG, FLAGS: _FLAGS}
    return texts if probe else {**texts, NO_PROBE: _NO_PROBE}
