"""A program that gets around its fence is seen by all who look, and ended if that is asked for."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys

import pytest

from partage.fence import usage
from partage.fence.store import layout, roots, tenants
from tests import simulated_machines
from tests.local import foreign_programs, sites

CONTEXT_MIB = 256
SLOT_PID = layout.Region.slot.offset + layout.RegionSlot.pid.offset  # of the first slot
OUT = ("env", "-u", "LD_PRELOAD", f"LD_LIBRARY_PATH={simulated_machines.LIBRARIES}")


@pytest.fixture
def escaped(site: sites.Site) -> subprocess.Popen[str]:
    """A program with a share of 2 GiB that holds 3,000 MiB without its fence."""
    command = [*OUT, sys.executable, str(sites.PROGRAM), "hold", "3000"]
    process = site.run("--memory", "2GiB", "--name", "greedy", command=command)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("holds")
    return process


def test_ps_shows_it_with_what_it_really_holds(
    site: sites.Site, escaped: subprocess.Popen[str]
) -> None:
    """The process, how much it holds, and how much of that is too much; its neighbour is well."""
    site.using(500, "--memory", "1GiB", "--name", "honest")
    view = site.view()
    rows = {row["name"]: row for row in view["tenants"]}
    assert rows["greedy"]["fence"] == "outside"
    assert rows["greedy"]["used_bytes"] == (3000 + CONTEXT_MIB) << 20
    assert rows["greedy"]["outside_bytes"] == (3000 + CONTEXT_MIB - 2048) << 20
    assert rows["greedy"]["outside_pid"] == escaped.pid
    assert (rows["honest"]["fence"], rows["honest"]["outside_bytes"]) == ("hook", None)
    (problem,) = view["problems"]
    assert problem["object"] == "program greedy"
    table = site.partage("ps").stdout
    assert "outside" in table
    assert f"process {escaped.pid} is outside its fence: it holds 3256 MiB" in table


def test_it_is_only_told(site: sites.Site, escaped: subprocess.Popen[str]) -> None:
    """Unless somebody asks for more."""
    site.view()
    assert escaped.poll() is None


def test_the_next_who_comes_is_told(site: sites.Site, escaped: subprocess.Popen[str]) -> None:
    """On standard error; the program runs all the same."""
    done = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert f"program greedy: process {escaped.pid} is outside its fence" in done.stderr


def test_honest_programs_are_nothing_to_tell(site: sites.Site) -> None:
    """Neither to ps nor to the next command."""
    site.using(700, "--memory", "1GiB")
    assert site.view()["problems"] == []
    assert "fence" not in site.partage("run", "--memory", "1GiB", "--", "true").stderr


def test_watch_ends_it_where_that_is_asked_for(
    site: sites.Site, escaped: subprocess.Popen[str]
) -> None:
    """The process, and not the one that stays inside."""
    honest = site.using(500, "--memory", "1GiB")
    watch = site.start("watch", "--then", "end")
    assert watch.stdout is not None
    line = watch.stdout.readline()
    assert escaped.wait(sites.PATIENCE_S) == -signal.SIGKILL
    assert f"program greedy: process {escaped.pid} is outside its fence" in line
    assert line.endswith("it was ended\n")
    assert honest.poll() is None


def test_nobody_can_point_the_watch_at_another(site: sites.Site) -> None:
    """A slot that names the process of somebody else does not make it the program's."""
    with foreign_programs.on(site) as strangers:
        stranger = strangers.using(3000)
        site.using(300, "--memory", "1GiB", "--card", "0")
        root = roots.find(site.state().fence)
        (name,) = tenants.names(root)
        with (root.tenants / name / "region").open("r+b") as file:
            os.pwrite(file.fileno(), struct.pack("<i", stranger.pid), SLOT_PID)
        assert [process.pid for process in usage.snapshot(root, name).processes] == [stranger.pid]
        assert [row["fence"] for row in site.view()["tenants"]] == ["hook"]


def test_watch_pauses_the_program_where_that_is_asked_for(
    site: sites.Site, escaped: subprocess.Popen[str]
) -> None:
    """With the way to let it go on."""
    watch = site.start("watch", "--then", "pause")
    assert watch.stdout is not None
    line = watch.stdout.readline()
    assert "its tenant is paused" in line
    resume = line.partition("`partage ")[2].partition("`")[0].split()
    assert escaped.poll() is None
    assert site.partage(*resume).returncode == 0


def test_watch_tells_once_and_ends_with_ctrl_c(
    site: sites.Site, escaped: subprocess.Popen[str]
) -> None:
    """A line for the process, however long it stays; no traceback."""
    watch = site.start("watch")
    assert watch.stdout is not None
    assert "nothing was done about it" in watch.stdout.readline()
    watch.send_signal(signal.SIGINT)
    out, err = watch.communicate(timeout=sites.PATIENCE_S)
    assert (out, "Traceback" in err) == ("", False)
    assert escaped.poll() is None


def test_watch_says_that_it_has_begun(site: sites.Site) -> None:
    """On standard error: programs that read standard output see nothing."""
    watch = site.start("watch")
    assert watch.stderr is not None
    assert watch.stderr.readline() == "Watching 2 cards every 0.5 s; press Ctrl-C to stop.\n"
    watch.send_signal(signal.SIGINT)
    assert watch.communicate(timeout=sites.PATIENCE_S)[0] == ""
