"""What is put into Slurm's files, and taken out again."""

from __future__ import annotations

import os
import pathlib
import subprocess

import msgspec
import pytest

from native import libraries, parts
from partage.core import errors
from partage.slurm import installation, slurm_programs
from partage.slurm.configuration import submit_rule
from tests import leaving_out
from tests.slurm import held_slurm

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


def uninstall(place: installation.Installation) -> installation.Plan:
    """Both runs of it; what the second was."""
    installation.apply(installation.uninstalling(place))
    plan = installation.uninstalling(place)
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
    assert text.endswith("\nJobSubmitPlugins=lua\n")
    assert f'dofile("{place.rule}")' in place.script.read_text()
    assert "shard = 16" in place.rule.read_text()
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


def test_what_was_there_later_is_kept_as_well(place: installation.Installation) -> None:
    """A copy of each state that others made; none of what we made ourselves."""
    install(place)
    installation.apply(installation.uninstalling(place))
    copies = sorted(path.name for path in place.main.parent.glob("*.before-partage*"))
    assert copies == ["plugstack.conf.before-partage", "slurm.conf.before-partage"]

    place.main.write_text("ClusterName=newer\n")
    install(place)

    first, second = (
        place.main.with_name(f"slurm.conf.before-partage{end}").read_text() for end in ("", ".1")
    )
    assert (first, second) == (SLURM_CONF, "ClusterName=newer\n")


def test_a_link_stays_a_link(place: installation.Installation) -> None:
    """Where slurm.conf is elsewhere, as on a disk that all nodes have."""
    shared = place.main.parent / "shared"
    shared.mkdir()
    target = place.main.rename(shared / "slurm.conf")
    place.main.symlink_to(target)
    install(place)
    assert place.main.is_symlink()
    assert "Prolog=" in target.read_text()
    assert [path.name for path in shared.iterdir()] == ["slurm.conf"]


@leaving_out.needs_root
def test_a_full_disk_changes_nothing(place: installation.Installation) -> None:
    """Neither the file nor its folder has half of anything."""
    folder = place.main.parent / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder)], check=True)
    try:
        main = folder / "slurm.conf"
        main.write_text(SLURM_CONF)
        (folder / "filler").write_bytes(b"x" * 4096)
        full = msgspec.structs.replace(place, main=main, is_controller=False)
        with pytest.raises(errors.InputError, match=r"cannot be written \(No space left on device"):
            install(full)
        assert main.read_text() == SLURM_CONF
        assert sorted(path.name for path in folder.iterdir()) == ["filler", "slurm.conf"]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_plugin_of_another_slurm_is_not_installed(place: installation.Installation) -> None:
    """No job would start with it; nothing is changed."""
    held_slurm.need_plugin()
    plugin = (parts.LIB / "spank" / libraries.SPANK).read_bytes()
    other = msgspec.structs.replace(place, version=slurm_programs.Version(19, 5))
    with pytest.raises(errors.FenceError, match=r"built for Slurm \d.*, and this is Slurm 19\.05"):
        installation.installing(other, plugin, "burst")
    own = msgspec.structs.replace(place, version=slurm_programs.version())
    assert installation.installing(own, plugin, "burst").changes


def test_twice_is_no_harm(place: installation.Installation) -> None:
    """The second time nothing changes."""
    assert len(install(place).changes) == 7
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
    assert uninstall(place).notes == ()
    assert place.main.read_text() == SLURM_CONF + "\nPartitionName=all\n"
    assert place.plugstack.read_text() == PLUGSTACK
    assert list(place.folder.iterdir()) == []
    assert not place.rule.exists()
    assert not place.script.exists()
    assert installation.uninstalling(place).changes == ()


def test_a_file_that_is_ours_alone_goes(place: installation.Installation) -> None:
    """There was no plugstack.conf before."""
    place.plugstack.unlink()
    install(place)
    assert place.plugstack.exists()
    installation.apply(installation.uninstalling(place))
    assert not place.plugstack.exists()


def test_the_scripts_stay_until_slurmd_was_restarted(place: installation.Installation) -> None:
    """It knows them by the slurm.conf that it read."""
    install(place)

    plan = installation.uninstalling(place)
    installation.apply(plan)

    assert [change.path for change in plan.changes] == [place.main, place.plugstack]
    [note] = plan.notes
    assert note.startswith("restart slurmd, and slurmctld if it is here; then run this again")
    assert len(list(place.folder.iterdir())) == 3
    assert (place.rule.exists(), place.script.exists()) == (True, True)


def test_what_lines_of_the_site_name_stays(place: installation.Installation) -> None:
    """Without the file that a required line names, no job starts."""
    plugin, epilog = (place.folder / name for name in ("partage_spank.so", "slurm-epilog"))
    place.plugstack.write_text(f"required {plugin} compute=share\n")
    place.main.write_text(f"{SLURM_CONF}\nEpilog={epilog}\n")
    install(place)

    plan = uninstall(place)

    assert sorted(place.folder.iterdir()) == [plugin, epilog]
    assert plan.notes == (
        f"{epilog} stays, as {place.main} names it; remove both together",
        f"{plugin} stays, as {place.plugstack} names it; remove both together",
    )


def test_what_a_script_of_the_site_calls_stays(
    place: installation.Installation, tmp_path: pathlib.Path
) -> None:
    """As install said it: the site's own Epilog calls ours."""
    own, epilog = tmp_path / "own.sh", place.folder / "slurm-epilog"
    own.write_text(f"#!/bin/sh\n{epilog}\n")
    place.main.write_text(f"{SLURM_CONF}\nEpilog={own}\n")
    install(place)

    plan = uninstall(place)

    assert list(place.folder.iterdir()) == [epilog]
    assert plan.notes == (f"{epilog} stays, as {own} names it; remove both together",)


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


OWN_SCRIPT = "function slurm_job_submit(job_desc) return slurm.SUCCESS end\n"


@pytest.mark.parametrize(
    ("setting", "script", "to_write"),
    [
        ("JobSubmitPlugins=all_partitions\n", "", "JobSubmitPlugins=all_partitions,lua "),
        ("JobSubmitPlugins=lua\n", "", "JobSubmitPlugins=lua "),
        ("JobSubmitPlugins=lua\n", OWN_SCRIPT, "JobSubmitPlugins=lua "),
        ("", OWN_SCRIPT, "JobSubmitPlugins=lua "),  # Slurm does not run it today
    ],
)
def test_rules_of_the_site_are_left(
    place: installation.Installation, setting: str, script: str, to_write: str
) -> None:
    """Only our own file is written, and it is said how to call it."""
    place.main.write_text(f"{SLURM_CONF}\n{setting}")
    if script:
        place.script.write_text(script)

    [note] = install(place).notes

    assert to_write in note
    assert f'{place.script}: local answer = dofile("{place.rule}")(job_desc); ' in note
    assert place.script.exists() is bool(script)
    assert not script or place.script.read_text() == script
    assert place.main.read_text().count("JobSubmitPlugins") == bool(setting)
    assert place.rule.exists()


def test_a_site_calls_the_rule(place: installation.Installation) -> None:
    """There is nothing more to say; and the rule stays as long as it is called."""
    place.main.write_text(f"{SLURM_CONF}\nJobSubmitPlugins=lua\n")
    place.script.write_text(f"{submit_rule.call(place.main)}\n{OWN_SCRIPT}")
    assert install(place).notes == ()

    plan = uninstall(place)

    assert (place.rule.exists(), place.script.exists()) == (True, True)
    assert plan.notes == (
        f"{place.script} calls {place.rule}, which stays; remove the call, then the file",
    )


def test_a_script_that_slurmctld_needs_stays(place: installation.Installation) -> None:
    """The site wrote the setting into a line of its own meanwhile."""
    install(place)
    with place.main.open("a") as file:
        file.write("JobSubmitPlugins=all_partitions,lua\n")

    plan = uninstall(place)

    [note] = plan.notes
    assert note.endswith(f"{place.script} stays; remove both together")
    assert (place.rule.exists(), place.script.exists()) == (True, True)


def test_a_machine_that_is_not_the_controller(place: installation.Installation) -> None:
    """It gets no rule, as slurmctld would not start with the line alone; and is told so once."""
    node = msgspec.structs.replace(place, is_controller=False)

    assert install(node).notes == (
        "run this where slurmctld runs, too: there it adds the rule for submissions",
    )

    assert "JobSubmitPlugins" not in place.main.read_text()
    assert not place.rule.exists()
    place.main.write_text(f"{place.main.read_text()}JobSubmitPlugins=lua\n")  # of the controller
    assert install(node) == installation.Plan(())


def test_a_slurm_without_lua(place: installation.Installation) -> None:
    """slurmctld would not start."""
    [note] = install(msgspec.structs.replace(place, has_lua=False)).notes

    assert "has no plugin job_submit/lua" in note
    assert "JobSubmitPlugins" not in place.main.read_text()
    assert not place.script.exists()


def test_a_newer_configuration_makes_a_newer_rule(place: installation.Installation) -> None:
    """Nothing else changes."""
    install(place)
    place.main.write_text(place.main.read_text().replace("shard:16", "shard:24"))

    plan = install(place)

    assert [change.path for change in plan.changes] == [place.rule]
    assert "shard = 24" in place.rule.read_text()


def test_a_configuration_that_cannot_be_read_has_no_rule(
    place: installation.Installation,
) -> None:
    """The rest is installed, and it is said why."""
    (place.main.parent / "gres.conf").write_text("Name=shard Count=many\n")

    [note] = install(place).notes

    assert note.startswith("there is no rule for submissions: Count=many is not a number; ")
    assert not place.rule.exists()


@leaving_out.needs_root
def test_scripts_never_fail(place: installation.Installation) -> None:
    """A node is not taken out of use because Partage has a problem: /bin/false is the command."""
    install(place)
    for name in ("slurm-prolog", "slurm-epilog"):
        script = place.folder / name
        done = subprocess.run([str(script)], check=False, env={"SLURM_JOB_ID": "1"})
        assert done.returncode == 0
