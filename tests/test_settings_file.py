"""Where settings come from, and what is said of those that do not fit."""

from pathlib import Path

import msgspec
import pytest

from solpi_exporter.config import ServerSettings, Settings, listen_address
from solpi_exporter.settings_file import ConfigError, load, setting_keys

BAD = Path(__file__).parent / "bad_configs"

# Each broken file is named after its fault; its one line says which key and what was expected.
MESSAGES = {
    "batch_of_zero": "probe.batches[0]: expected int >= 1",
    "batch_twice": "probe.batches: expected each size once, got [8, 8]",
    "listen_without_port": ("http.listen: expected HOST:PORT, such as 127.0.0.1:10048 or :10048, got '127.0.0.1'"),
    "metrics_url_without_scheme": (
        "engine.server[0].metrics_url: expected http://HOST:PORT/metrics, got '127.0.0.1:8000/metrics'"
    ),
    "log_and_journal": "engine.server[0].journal: expected log or journal, got both",
    "journal_of_a_path": "engine.server[0].journal: expected a unit such as vllm.service, got '/var/log/x'",
    "no_batch": "probe.batches: expected list of length >= 1",
    "not_toml": "not TOML: Expected ']' at the end of a table declaration (at line 1, column 5)",
    "port_too_large": "http.listen: expected HOST:PORT, such as 127.0.0.1:10048 or :10048, got ':70000'",
    "probe_enabled_sometimes": "probe.enabled: expected one of true, false, auto, got 'sometimes'",
    "read_from_the_middle": "engine.read_from: expected one of beginning, end, got 'middle'",
    "server_name_with_blank": "engine.server[0].name: expected up to 64 letters, digits or _.:- , got 'my server'",
    "server_named_twice": "engine.server: expected a name of its own for each, got a twice",
    "server_without_name": "engine.server[0].name: expected a value, got none",
    "server_without_source": "engine.server[0].log: expected a path or pattern here, or a journal or metrics_url",
    "unknown_device": "probe.device: expected auto, cpu, cuda, cuda:N or a UUID as nvidia-smi -L prints it, got 'tpu'",
    "uuid_cut_short": (
        "probe.device: expected auto, cpu, cuda, cuda:N or a UUID as nvidia-smi -L prints it, got 'GPU-01234567'"
    ),
    "python_of_a_thread": "probe.python: expected with isolation = \"worker\" only, got '/opt/vllm/bin/python'",
    "unknown_isolation": "probe.isolation: expected one of thread, worker, got 'container'",
    "unknown_dialect": "engine.server[0].dialect: expected one of auto, vllm, sglang, tensorrt-llm, got 'tgi'",
    "unknown_envelope": "engine.server[0].envelope: expected one of auto, none, docker, cri, journald, got 'paper'",
    "unknown_format": "log.format: expected one of auto, console, logfmt, json, got 'xml'",
    "unknown_key": "gpu.intervall: unknown setting (did you mean gpu.interval?)",
    "unknown_level": "log.level: expected one of debug, info, warning, error, got 'loud'",
    "unknown_section": "gpux: unknown setting",
    "unknown_shape": "probe.shape: expected one of auto, 8b, 1b, small, got '70b'",
    "wrong_type": "gpu.interval: expected float, got str",
    "zero_interval": "probe.interval: expected float >= 0.1",
    "endless_interval": "gpu.interval: expected float <= 86400.0",
    "unknown_server_key": "engine.server[0].logs: unknown setting (did you mean engine.server[0].log?)",
    "server_as_table": "engine.server: expected list, got table (write [[engine.server]])",
    "empty_log": "engine.server[0].log: expected a path or pattern, got an empty text",
    "negative_gpu": "engine.server[0].gpus[0]: expected int >= 0",
}


@pytest.mark.parametrize("path", sorted(BAD.glob("*.toml")), ids=lambda path: path.stem)
def test_a_broken_file_dies_with_one_line(path: Path) -> None:
    """File, dotted key, what was expected, what was there."""
    with pytest.raises(ConfigError) as raised:
        load(path, {}, {})

    assert str(raised.value) == f"{path}: {MESSAGES[path.stem]}"


def test_every_message_has_its_file() -> None:
    """The table and the folder do not drift apart."""
    assert MESSAGES.keys() == {path.stem for path in BAD.glob("*.toml")}


def test_everything_has_a_default() -> None:
    """Without a file, a variable or a flag there are settings."""
    assert load(None, {}, {}) == Settings()


def test_flag_beats_environment_beats_file_beats_base(tmp_path: Path) -> None:
    """Each layer shows where the ones above say nothing."""
    file = tmp_path / "a.toml"
    file.write_text("[gpu]\ninterval = 2.0\ntimeout = 2.0\n[probe]\ninterval = 2.0\n")
    environment = {"SOLPI_GPU_INTERVAL": "3", "SOLPI_GPU_TIMEOUT": "3.5"}
    base = {"gpu": {"interval": 1.0}, "engine": {"endpoint_interval": 1.0}}

    settings = load(file, environment, {"gpu": {"interval": 4.0}}, base)

    assert settings.gpu.interval == 4.0
    assert settings.gpu.timeout == 3.5
    assert settings.probe.interval == 2.0
    assert settings.engine.endpoint_interval == 1.0


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("SOLPI_HTTP_LISTEN", "127.0.0.1:9", "127.0.0.1:9"),
        ("SOLPI_GPU_ENABLED", "false", False),
        ("SOLPI_PROBE_ENABLED", "auto", "auto"),
        ("SOLPI_PROBE_BATCHES", "[1, 2]", (1, 2)),
        ("SOLPI_STATE_DIR", "/var/lib/solpi", "/var/lib/solpi"),
        ("SOLPI_LOG_LEVEL", '"debug"', "debug"),
    ],
)
def test_a_variable_is_toml_or_text(name: str, text: str, value: object) -> None:
    """What TOML cannot read is taken as it is, so that text needs no quotes."""
    settings = load(None, {name: text}, {})

    found: object = settings
    for key in {
        ".".join(path): path for path, _ in setting_keys() if "SOLPI_" + "_".join(path).upper() == name
    }.popitem()[1]:
        found = getattr(found, key)
    assert found == value


def test_a_misspelt_variable_dies_too() -> None:
    """It would otherwise be silently without effect."""
    with pytest.raises(
        ConfigError, match=r"SOLPI_GPU_INTERVAl.*: unknown setting \(did you mean SOLPI_GPU_INTERVAL\?\)"
    ):
        load(None, {"SOLPI_GPU_INTERVAl": "1"}, {})


def test_variables_of_others_are_left_alone() -> None:
    """Kubernetes' service variables, those of the flags, and everything without our prefix."""
    environment = {
        "SOLPI_EXPORTER_SERVICE_HOST": "192.0.2.2",
        "SOLPI_EXPORTER_PORT": "tcp://192.0.2.2:10048",
        "SOLPI_SERVICE_PORT_HTTP": "10048",
        "SOLPI_PORT_10048_TCP_ADDR": "192.0.2.2",
        "SOLPI_CONFIG": "/etc/x",
        "SOLPI_LOG_FILE": "/var/log/x",
        "PATH": "/bin",
    }

    assert load(None, environment, {}) == Settings()


def test_a_wrong_variable_is_named_by_its_key() -> None:
    """Not by its place in a tree that nobody wrote."""
    with pytest.raises(ConfigError, match=r"^settings: gpu.interval: expected float, got str$"):
        load(None, {"SOLPI_GPU_INTERVAL": "often"}, {})


def test_a_file_is_blamed_for_its_own_faults_only(tmp_path: Path) -> None:
    """A good file beside a wrong variable is not named."""
    file = tmp_path / "good.toml"
    file.write_text("[gpu]\ninterval = 2.0\n")

    with pytest.raises(ConfigError, match=r"^settings: gpu\.interval: "):
        load(file, {"SOLPI_GPU_INTERVAL": "often"}, {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read: .*No such file"):
        load(tmp_path / "none.toml", {}, {})


def test_servers_of_a_file(tmp_path: Path) -> None:
    """A log may be one path or several; a number names a GPU by index."""
    file = tmp_path / "a.toml"
    file.write_text(
        '[[engine.server]]\nname = "a"\nlog = "/var/log/a.log"\ngpus = [0, "GPU-1"]\n'
        '[[engine.server]]\nname = "b"\nlog = ["/x", "/y"]\nmetrics_url = "http://127.0.0.1:8000/metrics"\n'
    )

    first, second = load(file, {}, {}).engine.server

    assert first == ServerSettings(name="a", log="/var/log/a.log", gpus=(0, "GPU-1"))
    assert second.logs == ("/x", "/y")


def test_settings_are_frozen() -> None:
    """Nobody changes them under somebody else."""
    with pytest.raises(AttributeError):
        Settings().gpu.interval = 1.0  # type: ignore[misc]
    assert msgspec.structs.replace(Settings(), state_dir="x").state_dir == "x"


@pytest.mark.parametrize(
    ("listen", "address"),
    [(":10048", ("", 10048)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80)), ("host:1", ("host", 1))],
)
def test_listen_addresses(listen: str, address: tuple[str, int]) -> None:
    """Every address, one of IPv4, one of IPv6, a name."""
    assert listen_address(listen) == address


@pytest.mark.parametrize("listen", ["", "10048", "host:", "::1:80", "host:http", "host:-1"])
def test_what_is_no_address(listen: str) -> None:
    """An IPv6 address without brackets is ambiguous."""
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        listen_address(listen)
