"""Where a container has the driver's libraries it finds ours, and the driver's own behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.agent.containers import cdi, container_fence, driver_place
from partage.core import grants
from tests.agent import agent_node

FOLDER = "/etc/partage/fence"
OURS = {
    "libcuda.so.1": Path("/var/lib/partage/lib/libcuda-0.so.1"),
    "libnvidia-ml.so.1": Path("/var/lib/partage/lib/libnvidia-ml-0.so.1"),
}
READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")


def mount(host: str, inside: str = "") -> cdi.Mount:
    """As NVIDIA's specification has it."""
    return cdi.Mount(host_path=host, container_path=inside or host, options=READ_ONLY)


@pytest.mark.parametrize(
    ("file", "name", "behind"),
    [
        ("libcuda.so.615.71", "libcuda.so.1", "libpartage-cuda.so.1"),
        ("libcuda.so.1", "libcuda.so.1", "libpartage-cuda.so.1"),
        ("libcuda.so", "libcuda.so.1", "libpartage-cuda.so.1"),
        ("libnvidia-ml.so.615.71", "libnvidia-ml.so.1", "libpartage-nvidia-ml.so.1"),
    ],
)
def test_ours_are_where_the_drivers_would_be(file: str, name: str, behind: str) -> None:
    """By any version; the driver's own comes from where it was, with the same options."""
    theirs = mount(f"/run/nvidia/driver/usr/lib64/{file}", f"/usr/lib64/{file}")
    edits = driver_place.taken(cdi.Edits(env=("A=b",), mounts=(theirs,)), OURS, FOLDER)
    assert edits == cdi.Edits(
        env=("A=b",),
        mounts=(
            mount(str(OURS[name]), theirs.container_path),
            mount(theirs.host_path, f"{FOLDER}/{behind}"),
        ),
    )


@pytest.mark.parametrize(
    "file",
    [
        "libcudadebugger.so.615.71",
        "libnvidia-ptxjitcompiler.so.615.71",
        "nvidia-smi",
        "libcuda.so.d",
    ],
)
def test_all_else_of_the_driver_stays(file: str) -> None:
    """Programs need it as it is."""
    edits = cdi.Edits(mounts=(mount(f"/usr/lib64/{file}"),))
    assert driver_place.taken(edits, OURS, FOLDER) == edits


def test_several_names_of_one_library_have_one_driver_behind_them() -> None:
    """The first; there is one place for it."""
    mounts = tuple(mount(f"/usr/lib64/libcuda.so.{version}") for version in ("615.71", "1"))
    edits = driver_place.taken(cdi.Edits(mounts=mounts), OURS, FOLDER)
    assert [mount.host_path for mount in edits.mounts] == [
        *[str(OURS["libcuda.so.1"])] * 2,
        "/usr/lib64/libcuda.so.615.71",
    ]


def test_what_was_not_built_takes_no_place() -> None:
    """Then the driver's files are what they were, and the preload is all."""
    edits = cdi.Edits(mounts=(mount("/usr/lib64/libcuda.so.1"),))
    assert driver_place.taken(edits, {}, FOLDER) == edits


def put(fences: container_fence.Fences, share: grants.Share) -> container_fence.Put:
    """A fence around a container with one share."""
    container = grants.ContainerGrant(name="main", shares=(share,))
    return fences.put("uid-1.main", container, minimum="", context_bytes={})


def test_behind_comes_after_the_folder_that_it_lies_in(fences: container_fence.Fences) -> None:
    """And that has a place for it: the folder is read-only."""
    theirs = cdi.Edits(mounts=(mount("/usr/lib64/libcuda.so.1"), mount("/usr/bin/nvidia-smi")))
    mounts_in_order = fences.around(theirs, put(fences, agent_node.share(0, 1024))).mounts
    paths = [mount.container_path for mount in mounts_in_order]
    behind = f"{FOLDER}/libpartage-cuda.so.1"
    assert paths.index("/etc/partage") < paths.index(behind)
    around = Path(mounts_in_order[paths.index("/etc/partage")].host_path)
    assert (around / "fence" / "libpartage-cuda.so.1").is_file()
    ours = Path(mounts_in_order[paths.index("/usr/lib64/libcuda.so.1")].host_path)
    assert ours.name.startswith("libcuda-")
    assert ours.is_file()
    assert mounts_in_order[paths.index("/usr/bin/nvidia-smi")] == theirs.mounts[1]


def test_who_has_a_card_alone_has_the_driver_itself(fences: container_fence.Fences) -> None:
    """There is nobody to hold."""
    theirs = cdi.Edits(mounts=(mount("/usr/lib64/libcuda.so.1"),))
    alone = put(fences, agent_node.share(0, 16384, exclusive=True))
    assert fences.around(theirs, alone) == theirs
