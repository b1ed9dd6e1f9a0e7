"""Sections of the GPUs' dashboard: memory by kind of process, faults, and links."""

from solpi_exporter.dashboards import looks
from solpi_exporter.dashboards.frame import Section, line
from solpi_exporter.dashboards.panels import series, states
from solpi_exporter.dashboards.queries import Json, query
from solpi_exporter.dashboards.tables import Label, Value, table

NO_GPU = "No GPU known"
NOT_TOLD = "No GPU tells it"
NAME = "{{instance}} GPU {{gpu}} {{gpu_instance}}"


def memory() -> Section:
    """Return the section on memory, by kind of process."""
    kinds = series(
        "Memory by kind of process",
        "The serving engines', this exporter's own (its probe), others' (`solpi_gpu_process_memory_bytes`), all "
        "chosen GPUs. Others beside an engine take what its KV cache could have.",
        [query("sum by (kind) (solpi_gpu_process_memory_bytes{GPU})", "{{kind}}")],
        unit="bytes",
        empty="No process's memory is told",
        stack=True,
        colors=looks.KINDS,
    )
    used = series(
        "Memory used",
        "Share of the GPU's memory (`solpi_gpu_memory_used_bytes` / `solpi_gpu_memory_total_bytes`). Engines take "
        "theirs at the start: their KV cache's usage is on the engine's dashboard.",
        [query("solpi_gpu_memory_used_bytes{GPU} / (solpi_gpu_memory_total_bytes{GPU} > 0)", NAME)],
        unit="percentunit",
        empty=NOT_TOLD,
        top=1,
        steps=looks.FULL_MEMORY,
    )
    processes = series(
        "Processes",
        "That compute on the GPU (`solpi_gpu_processes`).",
        [query("solpi_gpu_processes{GPU}", NAME)],
        unit="short",
        empty=NOT_TOLD,
    )
    return Section("Memory", (line(kinds, used, processes),))


def _classified(expr: str) -> str:
    """Return what is told of an XID, with the part that failed and what to do first."""
    return f"{expr} * on (EACH_HOST, xid) group_left (class, action) solpi_xid_info{{HOST}}"


def _uncorrected(scope: str) -> str:
    return f'max by (EACH_GPU) (solpi_gpu_ecc_errors_total{{GPU, severity="uncorrected", scope="{scope}"}})'


def faults() -> Section:
    """Return the section on what is wrong: XIDs, ECC, remaps, recovery."""
    xids = table(
        "XIDs since the exporter started",
        "Each code that was seen: how often (`solpi_gpu_xid_errors_total`), when last "
        "(`solpi_gpu_xid_last_timestamp_seconds`), the part that failed and what NVIDIA says to do first "
        "(`solpi_xid_info`). Class application is a program's own doing.",
        [
            Label("instance", "Host"),
            Label("gpu", "GPU"),
            Label("xid", "XID"),
            Label("class", "Class"),
            Label("action", "Do first"),
        ],
        [
            Value("Last", _classified("solpi_gpu_xid_last_timestamp_seconds{GPU} * 1000"), "dateTimeFromNow"),
            Value("Times", _classified("(solpi_gpu_xid_errors_total{GPU} > 0)"), "short"),
        ],
        empty="No XID of NVIDIA's catalogue was seen",
        sort=["Last"],
    )
    over_time = series(
        "XIDs",
        "By code (`solpi_gpu_xid_errors_total`). The purple marks on the graphs are the last of each.",
        [query("sum by (xid) (increase(solpi_gpu_xid_errors_total{GPU}[$__rate_interval])) > 0", "XID {{xid}}")],
        unit="short",
        empty="No count rose",
        bars=True,
    )
    health = table(
        "Health of memory",
        "Errors that ECC did not correct, since the driver was loaded and ever (`solpi_gpu_ecc_errors_total`); rows "
        "replaced by spare ones, replacement waiting for a reset, and out of spares (`solpi_gpu_row_remaps_total`, "
        "`solpi_gpu_row_remap_pending`, `solpi_gpu_row_remap_failure`): a GPU due for exchange; what the driver asks "
        "for (`solpi_gpu_recovery_action`).",
        [Label("instance", "Host"), Label("gpu", "GPU")],
        [
            Value("State not ok", "max by (EACH_GPU) (solpi_gpu_state{GPU, NOT_OK})", "none", looks.ANY),
            Value("Uncorrected, now", _uncorrected("volatile"), "short", looks.ANY),
            Value("Uncorrected, ever", _uncorrected("aggregate"), "short", looks.SOME),
            Value("Rows replaced", "sum by (EACH_GPU) (solpi_gpu_row_remaps_total{GPU})", "short", looks.SOME),
            Value("Reset pending", "max by (EACH_GPU) (solpi_gpu_row_remap_pending{GPU})", states=looks.NO_YES),
            Value("Out of spares", "max by (EACH_GPU) (solpi_gpu_row_remap_failure{GPU})", states=looks.NO_YES_BAD),
            Value("Driver asks for", "max by (EACH_GPU) (solpi_gpu_recovery_action{GPU})", states=looks.RECOVERY),
        ],
        empty=NO_GPU,
        sort=["State not ok", "Uncorrected, now"],
    )
    corrected = series(
        "ECC errors",
        "Since the driver was loaded, in each window (`solpi_gpu_ecc_errors_total`): many corrected ones go before an "
        "uncorrected one.",
        [
            query(
                'increase(solpi_gpu_ecc_errors_total{GPU, scope="volatile"}[$__rate_interval])',
                f"{NAME} {{{{severity}}}}",
            )
        ],
        unit="short",
        empty=NOT_TOLD,
        bars=True,
    )
    state = states(
        "State",
        "`solpi_gpu_state`: only a GPU that is ok has readings.",
        [query("solpi_gpu_state{GPU} == 1", f"{NAME} {{{{state}}}}")],
        {"1": ("in this state", "blue")},
        empty=NO_GPU,
    )
    return Section("Faults", (line(xids, over_time, widths=(14, 10)), line(health, height=6), line(state, corrected)))


def _traffic(title: str, description: str, link: str, empty: str) -> Json:
    return series(
        title,
        f"{description} Sent (`solpi_gpu_{link}_transmit_bytes_total`) and received "
        f"(`solpi_gpu_{link}_receive_bytes_total`).",
        [
            query(f"rate(solpi_gpu_{link}_{way}_bytes_total{{GPU}}[$__rate_interval])", f"{NAME} {name}")
            for way, name in (("transmit", "sent"), ("receive", "received"))
        ],
        unit="Bps",
        empty=empty,
    )


def _with_model(expr: str) -> str:
    return f"{expr} * on (EACH_HOST, uuid) group_left (model, pci_bus_id) solpi_gpu_info{{GPU}}"


def links() -> Section:
    """Return the section on PCIe and NVLink."""
    width = table(
        "PCIe link",
        "Generation and lanes now against the most of GPU and slot (`solpi_gpu_pcie_link_generation`, `_width`, "
        "`_max_generation`, `_max_width`), and packets sent again (`solpi_gpu_pcie_replays_total`). An idle GPU may "
        "lower the generation; fewer lanes are a bad seat or riser.",
        [Label("instance", "Host"), Label("gpu", "GPU"), Label("model", "Model"), Label("pci_bus_id", "Bus")],
        [
            Value("Generation", _with_model("solpi_gpu_pcie_link_generation{GPU}")),
            Value("of", _with_model("solpi_gpu_pcie_link_max_generation{GPU}")),
            Value("Lanes", _with_model("solpi_gpu_pcie_link_width{GPU}")),
            Value("of ", _with_model("solpi_gpu_pcie_link_max_width{GPU}")),
            Value("Replays", _with_model("increase(solpi_gpu_pcie_replays_total{GPU}[$__range])"), "short", looks.SOME),
        ],
        empty=NOT_TOLD,
    )
    return Section(
        "Links",
        (
            line(
                _traffic(
                    "PCIe",
                    "Bytes a second over PCIe, protocol included. Swapped or offloaded KV shows here.",
                    "pcie",
                    NOT_TOLD,
                ),
                _traffic(
                    "NVLink", "Bytes a second over all NVLinks: tensor parallelism.", "nvlink", "No NVLink is told"
                ),
            ),
            line(width, height=6),
        ),
    )
