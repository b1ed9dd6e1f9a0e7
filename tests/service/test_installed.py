"""Files that are laid down on a host, and taken away again."""

from pathlib import Path

import pytest

from solpi_exporter.service.installed import (
    NOTES,
    Deed,
    install,
    to_install,
    to_uninstall,
    told,
    uninstall,
    unreadable,
)

UNIT, CONFIG = "etc/systemd/system/x.service", "etc/solpi-exporter/config.toml"
TEXTS = {UNIT: "[Unit]\n", CONFIG: "# settings\n"}


def deeds(root: Path, texts: dict[str, str] = TEXTS) -> list[Deed]:
    return [step.deed for step in to_install(root, texts)]


def installed(root: Path, texts: dict[str, str] = TEXTS) -> None:
    install(root, to_install(root, texts))


def test_what_was_installed_is_there_and_installing_again_changes_nothing(tmp_path: Path) -> None:
    """Each file with its text."""
    assert deeds(tmp_path) == [Deed.WRITE, Deed.WRITE]

    installed(tmp_path)

    assert {place: (tmp_path / place).read_text() for place in TEXTS} == TEXTS
    assert deeds(tmp_path) == [Deed.SAME, Deed.SAME]


def test_an_upgrade_replaces_what_nobody_has_changed(tmp_path: Path) -> None:
    """A file that somebody has changed is kept, and named."""
    installed(tmp_path)
    (tmp_path / CONFIG).write_text("# mine\n")
    newer = {UNIT: "[Unit] # newer\n", CONFIG: "# newer settings\n"}

    steps = to_install(tmp_path, newer)
    install(tmp_path, steps)

    assert list(told(steps, Path("/r"))) == [f"/r/{UNIT}: write", f"/r/{CONFIG}: keep, since it was changed"]
    assert (tmp_path / UNIT).read_text() == newer[UNIT]
    assert (tmp_path / CONFIG).read_text() == "# mine\n"


def test_a_file_that_was_there_before_is_somebodys(tmp_path: Path) -> None:
    """It is neither replaced nor taken away."""
    (tmp_path / CONFIG).parent.mkdir(parents=True)
    (tmp_path / CONFIG).write_text("# mine\n")

    installed(tmp_path)
    uninstall(tmp_path, to_uninstall(tmp_path))

    assert (tmp_path / CONFIG).read_text() == "# mine\n"


def test_exactly_what_was_installed_is_taken_away(tmp_path: Path) -> None:
    """With our empty folder, and nothing else."""
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "etc/systemd/system/other.service").write_text("")
    before = sorted(tmp_path.rglob("*"))

    installed(tmp_path)
    uninstall(tmp_path, to_uninstall(tmp_path))

    assert sorted(tmp_path.rglob("*")) == before


def test_what_was_changed_since_is_left(tmp_path: Path) -> None:
    """It may be the only copy of somebody's settings."""
    installed(tmp_path)
    (tmp_path / CONFIG).write_text("# mine\n")

    steps = to_uninstall(tmp_path)
    uninstall(tmp_path, steps)

    assert [step.deed for step in steps] == [Deed.REMOVE, Deed.KEEP]
    assert (tmp_path / CONFIG).exists()
    assert not (tmp_path / UNIT).exists()
    assert not (tmp_path / NOTES).exists()


@pytest.mark.parametrize("place", ["/root/x", "/home/me/venv/bin/python", "/tmp/x"])
def test_a_place_that_the_service_does_not_see_is_refused(place: str) -> None:
    """Whatever its mode is."""
    assert "which the service does not see" in (unreadable(Path(place)) or "")


def test_a_file_or_folder_that_is_closed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a link, too, as a venv's interpreter is one."""
    monkeypatch.setattr("solpi_exporter.service.installed.HIDDEN", ())
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:  # pytest's own folders
        parent.chmod(0o755)
    folder = tmp_path / "closed"
    folder.mkdir(0o700)
    (folder / "python").write_text("")
    (tmp_path / "link").symlink_to(folder / "python")

    assert unreadable(tmp_path) is None
    assert unreadable(tmp_path / "link") == f"{folder} is closed to other users"
