"""A real systemd over a throw-away copy of this root, in namespaces of its own, and a host's files in it.

    python -m tests.booted COMMAND...     # boot, run a command inside, end

Nothing that is done inside reaches the real root: it is the lower part of an overlay whose upper part is in memory. Its
cgroups lie below one that is made for it and taken away; it ends with whoever booted it, however that ends.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import find_tool
from tests.serving import eventually

ROOT = Path(__file__).parent.parent
# Where the interpreter, what it imports and this project are seen inside: a service's user may read them there.
PYTHON, LIBRARIES, PROJECT = "/opt/python", "/opt/libraries", "/opt/project"
BOOT_SECONDS = 60.0

# Runs in new namespaces; mounts are gone with them, whatever becomes of this process.
BOOT = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs {work}
mkdir {work}/upper {work}/scratch {work}/root
mount -t overlay overlay -o lowerdir=/,upperdir={work}/upper,workdir={work}/scratch {work}/root
cd {work}/root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs run
mkdir -p run/systemd/system run/lock {binds}
# Services need sysinit.target. What it brings along would set up the kernel, and its devices, which are everybody's.
rm -rf lib/systemd/system/sysinit.target.wants etc/systemd/system/sysinit.target.wants
printf '[Unit]\nDefaultDependencies=no\n' >run/systemd/system/sysinit.target
ln -s /dev/null run/systemd/system/modprobe@.service
{mounts}
printf '[Unit]\\nWants=systemd-journald.service\\nAfter=systemd-journald.service\\nAllowIsolate=yes\\n' \\
  >run/systemd/system/bare.target
export container=booted
exec chroot . /lib/systemd/systemd --system --unit=bare.target --log-target=journal --show-status=0
"""


@dataclass(frozen=True, slots=True)
class Booted:
    """`init` is the pid of its systemd, as it is seen from here."""

    init: int

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root."""
        enter = ("nsenter", "-t", str(self.init), "-m", "-p", "-C", "-i", "-u", "--root", "--wd=/", "--")
        return subprocess.run([*enter, *command], capture_output=True, text=True, check=check, timeout=60.0)

    def out(self, *command: str) -> str:
        """Return what a command says, whether it succeeds or not."""
        return self.run(*command, check=False).stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file inside, in one step."""
        self.run("sh", "-c", f"mkdir -p $(dirname {path}); cat >{path}.new <<'END'\n{text}\nEND\nmv {path}.new {path}")

    def solpi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the exporter's command line inside, by the interpreter that its service will have."""
        program = (f"{PYTHON}/bin/{Path(sys.executable).resolve().name}", "-m", "solpi_exporter", *arguments)
        return self.run("env", f"PYTHONPATH={LIBRARIES}:{PROJECT}", *program, check=check)


@contextmanager
def booted(binds: Mapping[Path, str] = {}) -> Iterator[Booted]:
    """Boot, with folders of this root bound to places inside; end everything with the block."""
    for tool in ("unshare", "nsenter", "setpriv", "systemctl"):
        find_tool(tool)
    every = {
        Path(sys.base_prefix): PYTHON,
        Path(sysconfig.get_path("purelib")): LIBRARIES,
        ROOT: PROJECT,
        **binds,
    }
    with tempfile.TemporaryDirectory(prefix="booted-", dir="/var/tmp") as work:
        mounts = "\n".join(f"mount --bind {shlex.quote(str(one))} .{place}" for one, place in every.items())
        inside = " ".join(place.lstrip("/") for place in every.values())
        script = BOOT.format(work=work, binds=inside, mounts=mounts)
        namespaces = ("--mount", "--pid", "--fork", "--kill-child", "--cgroup", "--uts", "--ipc")
        own = ("setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "bash", "-c", script)
        with _cgroup() as cgroup:
            join = ("sh", "-c", f'echo $$ >{cgroup}/cgroup.procs && exec "$0" "$@"')
            with subprocess.Popen([*join, *own], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as guard:
                try:
                    yield _awaited(guard)
                finally:
                    _end(guard)


@contextmanager
def _cgroup() -> Iterator[Path]:
    """Make a cgroup of version 2 below that of this process, and take it and those below it away."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    root = next(Path(words[4]) for words in mounts if words[words.index("-") + 1] == "cgroup2")
    own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    cgroup = root / own.lstrip("/") / f"solpi-booted-{os.getpid()}"
    cgroup.mkdir()
    try:
        yield cgroup
    finally:
        assert eventually(lambda: _removed(cgroup)), f"{cgroup} is still in use"


def _removed(cgroup: Path) -> bool:
    """Take a cgroup away; return whether that went, as it does once its processes have ended."""
    try:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True


def _awaited(guard: subprocess.Popen[str]) -> Booted:
    def is_up() -> bool:
        init = _child(guard.pid)
        return init is not None and Booted(init).out("systemctl", "is-active", "bare.target") == "active"

    if not eventually(is_up, BOOT_SECONDS):
        guard.kill()
        raise AssertionError(f"systemd did not boot: {guard.stderr.read() if guard.stderr else ''}")
    init = _child(guard.pid)
    assert init is not None
    host = Booted(init)
    host.run("systemd-tmpfiles", "--create", "--prefix=/run/log/journal")  # who may read it, as after any boot
    return host


def _end(guard: subprocess.Popen[str]) -> None:
    init = _child(guard.pid)
    if init is not None:
        os.kill(init, 9)  # the first of a pid namespace takes all others along
    guard.kill()


def _child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


if __name__ == "__main__":
    with booted() as host:
        done = host.run(*sys.argv[1:], check=False)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    raise SystemExit(done.returncode)
