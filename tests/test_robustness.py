"""What a driver may do to the daemon: the real one, on the real binding, over a library that fails as real ones do."""

import ctypes.util
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from solpi_exporter.daemon import RESTART
from tests.nvml_stub import LIBRARY
from tests.process import GPM, TRAFFIC, DaemonProcess, Host, Launcher, uuid
from tests.serving import eventually

ALL_OK = ("ok", "ok", "ok")
POWER = "solpi_gpu_power_watts"
MEMORY = "solpi_gpu_memory_total_bytes"
UTILIZATION = "solpi_gpu_utilization_ratio"
XIDS = "solpi_gpu_xid_errors_total"
PERMUTED = "order 2 0 1\nbusy 0 0\nbusy 1 10\nbusy 2 20"
HUNG_CALL = "hang-call nvmlDeviceGetPowerUsage 1"
NONE, YET_NONE, OLD = "gpus 3", "generation 0", "a library without GPM and one call"
TROUBLES = (NONE, YET_NONE, "init 9", "hang-init", "gpus 0", PERMUTED, HUNG_CALL)

finding = partial(pytest.mark.parametrize, "daemon", indirect=True)


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Return what starts daemons for the whole module."""
    launcher = Launcher(tmp_path_factory.mktemp("logs"))
    yield launcher
    launcher.close()


@pytest.fixture
def start(launch: Launcher, tmp_path: Path) -> Iterator[Launcher]:
    """Return what starts daemons for one test; how they end, the module looks at."""
    launcher = Launcher(tmp_path)
    yield launcher
    launch.launched += launcher.terminated()


@pytest.fixture
def host(library: Path, tmp_path: Path) -> Host:
    return Host(library, tmp_path)


@pytest.fixture(scope="module")
def troubled(library: Path, tmp_path_factory: pytest.TempPathFactory, launch: Launcher) -> dict[str, DaemonProcess]:
    """Return daemons by what they find when they start: all start at once, since that and some waits take a second."""
    code = library.read_bytes().replace(b"nvmlGpm", b"nvmlNot").replace(b"DeviceGetPowerUsage", b"DeviceNotPowerUsage")
    folder = tmp_path_factory.mktemp("old")
    (folder / LIBRARY).write_bytes(code)
    hosts = {line: Host(library, tmp_path_factory.mktemp("troubled"), line) for line in TROUBLES}
    return {trouble: launch(host) for trouble, host in {OLD: Host(folder / LIBRARY, folder), **hosts}.items()}


@pytest.fixture
def daemon(request: pytest.FixtureRequest, troubled: dict[str, DaemonProcess]) -> Iterator[DaemonProcess]:
    """Return the daemon that has found what the test names."""
    yield troubled[request.param]
    troubled[request.param].process.terminate()


@pytest.fixture
def well(troubled: dict[str, DaemonProcess]) -> DaemonProcess:
    """Return a daemon that lives through one trouble after another, with nothing wrong at present."""
    troubled[YET_NONE].host.say()
    assert troubled[YET_NONE].shows(*ALL_OK, gpu="ok")
    return troubled[YET_NONE]


@finding(["init 9"])
def test_the_driver_comes_later(daemon: DaemonProcess) -> None:
    """A daemon that starts before the kernel module is loaded finds it, and counts XIDs from then on."""
    assert daemon.shows(gpu="absent", gpu_events="absent")
    assert daemon.status("/-/ready") == 200

    daemon.host.say()

    assert daemon.shows(*ALL_OK, gpu="ok")
    assert daemon.counts_xids(2)


@finding(["hang-init"])
def test_an_attach_that_never_returns(daemon: DaemonProcess) -> None:
    """The page answers, is ready after the time-out and says that the source is down; once it returns all is well."""
    assert daemon.status("/-/healthy") == 200
    assert eventually(lambda: daemon.status("/-/ready") == 200)
    assert daemon.page().source("gpu") == "down"
    daemon.host.say()
    assert daemon.shows(*ALL_OK, gpu="ok")


@finding(["gpus 0"])
def test_a_host_without_gpus(daemon: DaemonProcess) -> None:
    """None is a number, and not to be expected; XIDs are waited for, should one appear."""
    assert daemon.shows(gpu="ok", gpu_events="ok")
    assert daemon.page().value("solpi_gpus_present") == 0
    assert daemon.page().value("solpi_gpus_expected") is None
    assert daemon.status("/-/ready") == 200


@finding([PERMUTED])
def test_the_index_is_not_the_identity(daemon: DaemonProcess) -> None:
    """Each GPU is told under NVML's index and its own UUID, and so are its XIDs."""
    assert eventually(lambda: daemon.page().xids(0) == 0)

    daemon.host.report_xid(2, PERMUTED)

    assert eventually(lambda: daemon.page().xids(0) == 1)
    page = daemon.page()
    for index, gpu in enumerate((2, 0, 1)):
        labels = {"gpu": str(index), "uuid": uuid(gpu)}
        assert page.value(UTILIZATION, **labels) == gpu / 10
        assert page.value(XIDS, xid="79", **labels) == (gpu == 2)


def test_the_library_comes_later(start: Launcher, host: Host, library: Path, tmp_path: Path) -> None:
    """A library that is missing, or an empty file as in images of containers, is absent until it is there."""
    has_driver = ctypes.util.find_library("nvidia-ml")  # this machine, where the daemon would find it instead
    places = [tmp_path / name / LIBRARY for name in (("empty",) if has_driver else ("empty", "missing"))]
    for host.library in places:
        host.library.parent.mkdir()
        if host.library == places[0]:
            host.library.touch()
        start(host)
    assert all(daemon.shows(gpu="absent") for daemon in start.launched)

    for place in places:
        shutil.copy(library, tmp_path / "new")
        (tmp_path / "new").replace(place)

    assert all(daemon.shows(*ALL_OK, gpu="ok") for daemon in start.launched)


def test_a_gpu_that_is_missing_after_a_restart(start: Launcher, host: Host, tmp_path: Path) -> None:
    """The state directory knows that it was there; the settings know better how many there should be."""
    state, copy, config = tmp_path / "state", tmp_path / "copy", tmp_path / "a.toml"
    config.write_text("gpu.expected = 4\n")
    host.say("gpus 2")
    before = start(host, "--state-dir", str(state))
    assert before.shows("ok", "ok", gpu="ok")
    assert before.stops()
    shutil.copytree(state, copy)
    host.say("gpus 1")

    after = start(host, "--state-dir", str(state))
    configured = start(host, "--state-dir", str(copy), "--config", str(config))

    for daemon, expected in ((after, 2), (configured, 4)):
        assert daemon.shows("ok", "lost", gpu="ok")
        page = daemon.page()
        assert (page.value("solpi_gpus_expected"), page.value("solpi_gpus_present")) == (expected, 1)
        assert page.state("solpi_gpu_state", uuid=uuid(1)) == "lost"


def test_an_xid_is_counted_once_and_told_once(well: DaemonProcess) -> None:
    """Its zero was there before; the log says class and action."""
    labels = {"gpu": "0", "uuid": uuid(0), "xid": "79"}
    assert eventually(lambda: well.page().value(XIDS, **labels) == 0)
    assert well.page().value("solpi_gpu_xid_last_timestamp_seconds", **labels) is None

    well.host.report_xid(0)

    assert eventually(lambda: well.page().value(XIDS, **labels) == 1)
    page = well.page()
    assert page.value("solpi_gpu_xid_last_timestamp_seconds", **labels) == pytest.approx(time.time(), abs=60)
    assert (page.xids(1), page.xids(2)) == (0, 0)
    [line] = well.events("gpu_xid")
    assert (line["gpu"], line["uuid"], line["xid"], line["count"]) == (0, uuid(0), 79, 1)
    assert (line["class"], line["action"]) == ("hardware", "reboot_host")


def test_a_lost_gpu_comes_back_after_a_reset(well: DaemonProcess) -> None:
    """Meanwhile it has a state, totals and no readings; afterwards its XIDs are counted on."""
    assert well.counts_xids(1)
    before = well.page()

    well.host.say("error 1 15")

    assert well.shows("ok", "lost", "ok", gpu="ok")
    for page in well.pages(5):
        assert page.value(POWER, gpu="1") is None
        assert page.gpu_series(0, 2) >= before.gpu_series(0, 2)
        assert page.xids(1) >= before.xids(1)

    well.host.reset()

    assert well.shows(*ALL_OK)
    assert well.page().gpu_series(1) >= before.gpu_series(1)
    assert well.counts_xids(1)


def test_a_hot_reset_costs_a_poll_at_most(well: DaemonProcess) -> None:
    """Handles of before are replaced at once, as are those that wait for XIDs, and what was refused is asked again."""
    own = well.page().gpu_series(0, 1, 2)
    well.host.reset("call-error nvmlDeviceGetEccMode * 3")
    assert eventually(lambda: "solpi_gpu_ecc_enabled" not in well.page().names(2))

    well.host.reset()

    pages = list(well.pages(10))
    missed = {page.polls() for page in pages if None in [page.value(POWER, gpu=gpu) for gpu in "012"]}
    assert len(missed) <= 1
    assert pages[-1].gpu_series(0, 1, 2) >= own
    assert well.counts_xids(1)


def test_a_wait_for_xids_that_fails_at_once_is_no_busy_loop(well: DaemonProcess) -> None:
    """It is tried ever more rarely, and what was counted stays."""
    assert well.counts_xids(2)
    well.host.say("events-error 999")
    assert well.shows(gpu="ok", gpu_events="down")
    before = well.page()

    for page in well.pages(10):
        assert page.polls("gpu_events") <= before.polls("gpu_events") + 2
        assert page.xids(2) == before.xids(2)


@pytest.mark.parametrize("line", ["hang 1", HUNG_CALL])
def test_a_call_that_never_returns_costs_its_gpu_alone(well: DaemonProcess, line: str) -> None:
    """All others are complete in every scrape, and the one is ok again when its call returns."""
    own, others = well.page().gpu_series(1), well.page().gpu_series(0, 2)

    well.host.say(line)

    assert well.shows("ok", "hung", "ok", gpu="ok")
    for page in well.pages(5):
        assert page.gpus(0, 1, 2) == ["ok", "hung", "ok"]
        assert page.gpu_series(0, 2) >= others
        assert page.value(POWER, gpu="1") is None
    assert (well.status("/-/healthy"), well.status("/-/ready")) == (200, 200)

    well.host.say()

    assert well.shows(*ALL_OK)
    assert well.page().gpu_series(1) >= own


def test_a_gpu_that_hangs_and_one_that_is_lost_cost_no_xids_of_a_third(well: DaemonProcess) -> None:
    """The loss makes the events be registered anew, around the GPU that hangs."""
    well.host.say("hang 2")
    assert well.shows("ok", "ok", "hung")
    well.host.say("hang 2", "error 1 15")
    assert well.shows("ok", "lost", "hung")
    before = well.page().xids(0)

    def reported() -> bool:
        well.host.report_xid(0, "hang 2", "error 1 15")
        return well.page().xids(0) > before

    assert eventually(reported)


def test_gpm_that_hangs_on_one_gpu_costs_the_others_gpm_alone(start: Launcher, host: Host) -> None:
    """GPM bears one call at a time, of whichever GPU; no other GPU ever looks hung for that."""
    host.say("hang-call nvmlGpmSampleGet 1")
    daemon = start(host)

    assert daemon.shows("ok", "hung", "ok")
    assert all(page.names(2) >= page.names(0) - GPM for page in daemon.pages(3))
    host.say()

    assert daemon.shows(*ALL_OK)
    assert {line["gpu"] for line in daemon.events("gpu_state")} == {1}


def test_a_driver_that_never_returns(well: DaemonProcess) -> None:
    """All its GPUs hang, none has readings, and the page goes on."""
    well.host.say("hang-call nvmlDeviceGetCount_v2 *")

    assert well.shows("hung", "hung", "hung", gpu="down")
    assert well.page().value(POWER, gpu="0") is None
    assert well.status("/-/ready") == 200


def test_states_of_gpus_that_refuse(well: DaemonProcess) -> None:
    """A GPU that needs a reset, and one that may not be opened, leave the third alone."""
    others = well.page().gpu_series(0)

    well.host.say("error 1 16", "error 2 4")

    assert well.shows("ok", "reset_required", "no_permission", gpu="ok")
    for page in well.pages(5):
        assert page.gpus(0, 1, 2) == ["ok", "reset_required", "no_permission"]
        assert page.gpu_series(0) >= others


@pytest.mark.parametrize("takes_a_reset", [True, False])
def test_mig_is_switched_on_and_off(well: DaemonProcess, takes_a_reset: bool) -> None:
    """Instances come with the reset, at once, and go with or without one; then the whole GPU is as before."""
    own, others = well.page().gpu_series(0), well.page().gpu_series(1, 2)

    well.host.reset("mig 0 2")

    assert eventually(lambda: well.page().value(MEMORY, gpu_instance="2") is not None)
    for page in well.pages(5):
        assert page.gpus(0, 1, 2) == [*ALL_OK]
        assert page.value(UTILIZATION, gpu="0") is None
        assert None not in [page.value(MEMORY, gpu="0", gpu_instance=instance) for instance in "12"]

    (well.host.reset if takes_a_reset else well.host.say)()

    assert eventually(lambda: well.page().gpu_series(0) >= own)
    assert well.page().value(MEMORY, gpu_instance="1") is None
    assert well.page().gpu_series(1, 2) >= others


def test_an_upgrade_of_the_driver_is_told_while_it_lasts(well: DaemonProcess) -> None:
    """Library and kernel module of two versions: each GPU has that state, and the daemon stays."""
    well.host.say("init 18", "call-error nvmlDeviceGetCount_v2 * 18")

    assert well.shows("driver_mismatch", "driver_mismatch", "driver_mismatch", gpu="down")
    for page in well.pages(5):
        assert page.gpus(0) == ["driver_mismatch"]
        assert page.value(POWER, gpu="0") is None


@finding([OLD])
def test_a_driver_that_is_older_than_the_binding(daemon: DaemonProcess, troubled: dict[str, DaemonProcess]) -> None:
    """What a library does not export is absent, all else is there: traffic is counted without GPM as well."""
    new = troubled[NONE]

    assert eventually(lambda: new.page().names(0) - daemon.page().names(0) == {POWER} | GPM)
    assert daemon.page().names(0) >= TRAFFIC


def test_an_upgrade_that_is_over_needs_a_new_process(start: Launcher, library: Path, tmp_path: Path) -> None:
    """The daemon ends with the status that asks for one, as soon as a new one could attach.

    The library that is put in place of the one it has mapped is told by another file that nothing is wrong.
    """
    folder = tmp_path / "libraries"
    folder.mkdir()
    (folder / LIBRARY).write_bytes(library.read_bytes())
    host = Host(folder / LIBRARY, tmp_path / "host")
    daemon = start(host, NVML_STU2=str(tmp_path / "well"))
    assert daemon.shows(*ALL_OK)

    (tmp_path / "well").write_text("gpus 3\n")
    (folder / "new").write_bytes(library.read_bytes().replace(b"NVML_STUB", b"NVML_STU2"))
    (folder / "new").replace(folder / LIBRARY)
    host.say("call-error nvmlDeviceGetCount_v2 * 18")

    assert daemon.process.wait(20.0) == RESTART
    assert [line["source"] for line in daemon.events("restarting")] == ["gpu"]
    assert {line["state"] for line in daemon.events("gpu_state")} == {"driver_mismatch"}


@finding([HUNG_CALL])
def test_it_stops_while_a_call_hangs(daemon: DaemonProcess) -> None:
    """Within two seconds, with status 0."""
    assert daemon.shows("ok", "hung", "ok")

    assert daemon.stops()


def test_it_stops_during_a_slow_call(start: Launcher, library: Path, tmp_path: Path) -> None:
    """One that is still waited for, whether it returns meanwhile or not."""
    hosts = [Host(library, tmp_path / name, HUNG_CALL) for name in ("stays", "returns")]
    daemons = [start(host, SOLPI_GPU_TIMEOUT="30") for host in hosts]
    for daemon in daemons:
        assert [page.polls() for page in daemon.pages(2)] == [0, 0]

    for daemon in daemons:
        daemon.process.terminate()
    hosts[1].say()

    assert [daemon.process.wait(2.0) for daemon in daemons] == [0, 0]
