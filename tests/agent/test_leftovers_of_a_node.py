"""What agents left on a node goes, but nothing that holds a container which runs."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import msgspec
import pytest

from partage.agent import leftovers
from partage.agent.containers import cdi, container_fence
from partage.core import grants
from partage.fence.store import roots, tenants
from tests.agent import agent_node

RUNS, ENDED = "uid-runs.main", "uid-ended.main"


class Machine:
    """A node with two fences, their specifications, and a table of mounts for each process."""

    def __init__(self, folder: Path, root: roots.Root, fences: container_fence.Fences) -> None:
        self.proc = folder / "proc"
        self.folder = folder
        self.folders = leftovers.Folders(
            root=root.path,
            library=folder / "lib",
            cdi=folder / "cdi",
            device_plugins=folder / "device-plugins",
        )
        self.folders.device_plugins.mkdir()
        self.mounted("self")
        for name in (RUNS, ENDED):
            container = grants.ContainerGrant(name="main", shares=(agent_node.share(0, 1024),))
            put = fences.put(name, container, minimum="", context_bytes={})
            uid = name.partition(".")[0]
            started = cdi.Started(uid=uid, container="main", tenant=name, device=uid)
            cdi.write(self.folders.cdi, started, put.edits)
        (self.folders.cdi / "nvidia.yaml").touch()

    def mounted(self, process: str, *paths: Path) -> None:
        """A process that has these mounted, besides the folder itself, as an agent's pod has it."""
        (self.proc / process).mkdir(parents=True, exist_ok=True)
        rows = [f"1 0 8:1 {self.folder} {self.folder} rw - ext4 /dev/x rw"]
        rows += [
            f"2 1 8:1 {path} /etc/partage/fence/{path.name} ro - ext4 /dev/x rw" for path in paths
        ]
        (self.proc / process / "mountinfo").write_text("".join(f"{row}\n" for row in rows))

    def left(self) -> set[str]:
        """What is there, below the folder."""
        return {
            os.path.relpath(one.path, self.folder)
            for one in leftovers.find(self.folders, self.proc)
        }

    def remove(self) -> None:
        """As the command does."""
        leftovers.remove(self.folders, leftovers.find(self.folders, self.proc))


@pytest.fixture
def machine(tmp_path: Path, root: roots.Root, fences: container_fence.Fences) -> Machine:
    """A node whose agent has gone."""
    return Machine(tmp_path, root, fences)


def test_everything_goes_when_no_container_runs(machine: Machine) -> None:
    """And nothing of others."""
    machine.remove()
    assert machine.left() == set()
    assert not machine.folders.root.exists()
    assert not machine.folders.library.exists()
    assert [path.name for path in machine.folders.cdi.iterdir()] == ["nvidia.yaml"]


def test_what_a_container_has_mounted_stays(machine: Machine, root: roots.Root) -> None:
    """All that a new process in it needs, until the container has ended."""
    limits = tenants.read(root, RUNS).limits_path
    machine.mounted("17", limits, machine.folders.library / "around")
    machine.remove()
    assert tenants.names(root) == [RUNS]
    assert [started.tenant for started in cdi.everything(machine.folders.cdi)] == [RUNS]
    assert (machine.folders.library / "around").is_dir()
    for one in leftovers.find(machine.folders, machine.proc):
        assert one.used_by == (RUNS,)
    machine.mounted("17")
    machine.remove()
    assert machine.left() == set()


def test_a_library_stays_while_a_container_has_it(machine: Machine) -> None:
    """Also where its fence is not known any more: a loader without its library goes on."""
    machine.mounted("17", machine.folders.library / "libpartage-0123.so")
    machine.remove()
    assert machine.left() >= {"lib"}
    assert machine.folders.library.exists()


def test_a_node_that_is_served_is_left_alone(machine: Machine) -> None:
    """What an agent that died left behind is not taken for one that serves."""
    with tempfile.TemporaryDirectory() as short:  # a socket's path may have 107 bytes
        plugins = Path(short)
        machine.folders = msgspec.structs.replace(machine.folders, device_plugins=plugins)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.fspath(plugins / "partage-x-012345-01234567.sock"))
            listening.listen()
            with pytest.raises(leftovers.StillServes, match="an agent serves this node: it lis"):
                machine.remove()
            assert machine.left() >= {"lib", "fences/tenants"}
        machine.remove()
        assert machine.left() == set()
        assert not any(plugins.iterdir())


def test_what_programs_and_jobs_have_on_the_machine_stays(tmp_path: Path, machine: Machine) -> None:
    """Roots of `partage run` look alike, and Slurm's jobs have a folder beside the fences."""
    (machine.folders.root / "slurm").mkdir()
    other = roots.prepare(tmp_path / "other").path
    folders = leftovers.Folders(
        root=other, library=tmp_path / "none", cdi=tmp_path / "none", device_plugins=tmp_path
    )
    leftovers.remove(folders, leftovers.find(folders, machine.proc))
    assert roots.find(other).reach is roots.Reach.OWNER
    machine.remove()
    assert [path.name for path in machine.folders.root.iterdir()] == ["slurm"]
