"""What is put into Slurm's files, and taken out again."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from partage.slurm import installation
from tests import leaving_out

SLURM_CONF = "ClusterName=x\nNodeName=n1 Gres=gpu:a:1,shard:16"  # without an end of line
PLUGSTACK = "optional /usr/lib/other.so\n"


@pytest.fixture
def place(tmp_path: pathlib.Path) -> installation.Installation:
    """A folder with a configuration of Slurm."""
    (tmp_path / "slurm.conf").write_text(SLURM_CONF)
    (tmp_path / "plugstack.conf").write_text(PLUGSTACK)
    (tmp_path / "slurm.conf").chmod(0o640)
    return installation.Installation(
        main=tmp_path / "slurm.conf", folder=tmp_path / "lib", command=pathlib.Path("/bin/false")
    )


def install(place: installation.Installation) -> installation.Plan:
    """Do it; what it was."""
    plan = installation.installing(place, b"plugin", "burst")
    installation.apply(plan)
    return plan


def test_what_is_installed(place: installation.Installation) -> None:
    """The plugin, its line after those of others, and two scripts that Slurm is told of."""
    install(place)
    lib = place.folder
    assert (lib / "partage_spank.so").read_bytes() == b"plugin"
    lines = place.plugstack.read_text().splitlines()
    assert lines[0] == PLUGSTACK.strip()
    assert lines[-1] == f"required {lib}/partage_spank.so compute=burst"
    text = place.main.read_text()
    assert text.startswith(SLURM_CONF + "\n")
    assert f"\nProlog={lib}/slurm-prolog\n" in text
    assert f"\nEpilog={lib}/slurm-epilog\n" in text
    for name in ("slurm-prolog", "slurm-epilog"):
        assert os.access(lib / name, os.X_OK)
        subprocess.run(["sh", "-n", str(lib / name)], check=True)


def test_what_was_there_is_kept(place: installation.Installation) -> None:
    """With its mode; a second installation does not replace the copy."""
    install(place)
    place.plugstack.write_text(PLUGSTACK)
    install(place)
    copy = place.main.with_name("slurm.conf.before-partage")
    assert copy.read_text() == SLURM_CONF
    assert place.plugstack.with_name("plugstack.conf.before-partage").read_text() == PLUGSTACK
    assert [path.stat().st_mode & 0o777 for path in (copy, place.main)] == [0o640, 0o640]


def test_twice_is_no_harm(place: installation.Installation) -> None:
    """The second time nothing changes."""
    assert len(install(place).changes) == 5
    assert install(place) == installation.Plan(())


def test_a_newer_plugin_alone_is_written(place: installation.Installation) -> None:
    """An update."""
    install(place)
    plan = installation.installing(place, b"newer", "burst")
    assert [change.path.name for change in plan.changes] == ["partage_spank.so"]


def test_uninstalling_leaves_what_others_wrote(place: installation.Installation) -> None:
    """Also what was added meanwhile."""
    install(place)
    with place.main.open("a") as file:
        file.write("PartitionName=all\n")
    installation.apply(installation.uninstalling(place))
    assert place.main.read_text() == SLURM_CONF + "\nPartitionName=all\n"
    assert place.plugstack.read_text() == PLUGSTACK
    assert list(place.folder.iterdir()) == []
    assert installation.uninstalling(place).changes == ()


def test_a_file_that_is_ours_alone_goes(place: installation.Installation) -> None:
    """There was no plugstack.conf before."""
    place.plugstack.unlink()
    install(place)
    assert place.plugstack.exists()
    installation.apply(installation.uninstalling(place))
    assert not place.plugstack.exists()


def test_a_prolog_of_the_site_is_left(place: installation.Installation) -> None:
    """It is said what to call from it."""
    place.main.write_text(SLURM_CONF + "\nProlog=/etc/slurm/own.sh\n")
    plan = install(place)
    [note] = plan.notes
    assert note.startswith("slurm.conf has Prolog=/etc/slurm/own.sh; call ")
    assert "Prolog=/etc/slurm/own.sh" in place.main.read_text()
    assert place.main.read_text().count("Prolog=") == 1


def test_a_line_of_the_site_for_the_plugin_is_left(place: installation.Installation) -> None:
    """With arguments of its own."""
    line = "required /opt/partage_spank.so compute=none\n"
    place.plugstack.write_text(line)
    install(place)
    assert place.plugstack.read_text() == line


def test_a_dry_run_prints_a_diff(place: installation.Installation) -> None:
    """Every line that would change, and nothing that is no text."""
    text = installation.difference(installation.installing(place, b"\0plugin", "burst"))
    assert f"+required {place.folder}/partage_spank.so compute=burst\n" in text
    assert f"+Epilog={place.folder}/slurm-epilog\n" in text
    assert f"{place.folder}/partage_spank.so would be written\n" in text
    assert "\0" not in text
    assert place.main.read_text() == SLURM_CONF


@leaving_out.needs_root
def test_scripts_never_fail(place: installation.Installation) -> None:
    """A node is not taken out of use because Partage has a problem: /bin/false is the command."""
    install(place)
    for name in ("slurm-prolog", "slurm-epilog"):
        script = place.folder / name
        done = subprocess.run([str(script)], check=False, env={"SLURM_JOB_ID": "1"})
        assert done.returncode == 0
