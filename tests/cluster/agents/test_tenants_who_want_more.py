"""What a tenant may do to its own container does not get it more than its share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster import api, objects
from cluster.node import container_image
from tests.cluster import making
from tests.cluster.agents.site import Site

SHARE = {"aliyun.com/gpu-mem": 2}
TOO_MUCH = "3000"  # MiB
# Where the simulated cards are; those of a real driver are not in the environment.
HARDWARE = (
    "SIMCUDA_STATE=/run/simcuda/state",
    "SIMCUDA_CONFIG=/run/simcuda/config",
    "SIMCUDA_NODES=/dev",
)
REFUSED = (1, "CUDA_ERROR_OUT_OF_MEMORY\n")


def _try(site: Site, pod: str, *before: str) -> tuple[int, str]:
    done = site.exec(pod, *before, "gpu", "try", TOO_MUCH)
    return done.returncode, done.stdout


def _run(site: Site, name: str, container: api.Object, **spec: Any) -> None:
    site.create(objects.running_pod(name, container, **spec))
    site.running(name)


@pytest.mark.parametrize(
    "before",
    [
        ("env", "-i", "PATH=/usr/local/bin:/bin", *HARDWARE),
        ("env", "LD_PRELOAD=", "PARTAGE_LIMITS=/tmp/limits"),
        ("env", "LD_PRELOAD=/none.so", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_VISIBLE_DEVICES=0"),
        ("sh", "-c", 'exec "$@"', "sh", "env"),
        ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"),
    ],
    ids=["emptied", "unset", "overridden", "child", "another-user"],
)
def test_the_environment_and_children(site: Site, before: tuple[str, ...]) -> None:
    """Nothing depends on variables, nor on which process or user it is."""
    _run(site, "tenant", objects.container(limits=SHARE))
    assert _try(site, "tenant", *before) == REFUSED
    assert site.said("tenant", *before, "gpu", "try", "1000") == "held\n"


@pytest.mark.parametrize("file", ["libcuda.so.1", "libcuda.so", "by its path"])
def test_a_lookup_past_what_is_preloaded(site: Site, file: str) -> None:
    """The libc's own dlsym is in nobody's way, and ours is in the driver's place."""
    _run(site, "tenant", objects.container(limits=SHARE))
    name = f"{container_image.libraries_folder()}/libcuda.so.1" if file == "by its path" else file
    done = site.exec("tenant", "gpu", "apart", TOO_MUCH, name)
    assert (done.returncode, done.stdout) == REFUSED
    assert site.said("tenant", "gpu", "apart", "1000", name) == "held\n"


def test_who_has_a_card_alone_has_the_driver_itself(site: Site) -> None:
    """Nothing of ours is in its place."""
    _run(site, "alone", objects.container(limits={"nvidia.com/gpu": 1}))
    assert site.said("alone", "gpu", "apart", "15000", "libcuda.so.1") == "held\n"
    assert site.exec("alone", "ls", "/etc/partage").returncode != 0


def test_variables_in_the_pods_own_manifest(site: Site) -> None:
    """The author of the pod sets what he likes; the limits are files."""
    container = objects.container(limits=SHARE)
    container["env"] = [
        {"name": "LD_PRELOAD", "value": ""},
        {"name": "PARTAGE_LIMITS", "value": "/dev/null"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"},
    ]
    _run(site, "author", container)
    assert _try(site, "author") == REFUSED
    assert len(site.cards("author")) == 1


@pytest.mark.parametrize("path", ["/etc/ld.so.preload", "/etc/partage"])
def test_a_volume_in_the_place_of_the_fence(site: Site, path: str) -> None:
    """What the node mounts lies on top."""
    container = objects.container(limits=SHARE)
    container["volumeMounts"] = [{"name": "own", "mountPath": path}]
    _run(site, "mounting", container, volumes=[{"name": "own", "emptyDir": {}}])
    assert _try(site, "mounting") == REFUSED


@pytest.mark.parametrize("path", ["/etc", "/etc/partage/fence"])
def test_a_volume_that_the_fence_would_lie_on(site: Site, path: str) -> None:
    """A second container with the volume could remove a file, and with it what is mounted there."""
    container = objects.container(limits=SHARE)
    container["volumeMounts"] = [{"name": "own", "mountPath": path}]
    volumes = [{"name": "own", "emptyDir": {}}]
    site.create(objects.running_pod("below", container, volumes=volumes))
    making.eventually(lambda: any("where its fence has to be" in e for e in site.events("below")))
    assert site.pod("below")["status"]["phase"] == "Pending"


def test_an_edited_record(site: Site) -> None:
    """Whoever owns the pod may edit its grant and end its container; the limits stay."""
    waits = "while [ ! -e /tmp/stop ]; do sleep 0.1; done"
    _run(site, "editor", objects.container("sh", "-c", waits, limits=SHARE))
    record = making.grant(site.pod("editor"))
    record["containers"][0]["memory_enforced"] = False
    change = {"metadata": {"annotations": {"partage.dev/grant": json.dumps(record)}}}
    site.client.patch("Pod", "editor", change)
    site.exec("editor", "touch", "/tmp/stop")
    making.eventually(lambda: _restarts(site, "editor") > 0)
    site.running("editor")
    assert _try(site, "editor") == REFUSED


def _restarts(site: Site, pod: str) -> int:
    return int(site.pod(pod)["status"]["containerStatuses"][0]["restartCount"])


def test_root_in_the_container_cannot_take_the_fence_away(site: Site) -> None:
    """Without the right to mount: not write, not remove, not replace, not unmount."""
    _run(site, "root", objects.container(limits=SHARE))
    for attempt in (
        "echo > /etc/ld.so.preload",
        "rm -f /etc/ld.so.preload",
        "mv /etc/ld.so.preload /tmp/",
        "mv /etc/partage /etc/elsewhere",
        "mv /etc/partage/fence /tmp/elsewhere",
        "umount /etc/ld.so.preload",
        "echo > /etc/partage/fence/limits",
        "rm -f /etc/partage/fence/limits",
        "cp /bin/true /etc/partage/fence/libpartage.so",
        "mount --bind /dev/null /etc/ld.so.preload",
        "unshare --user --map-root-user --mount umount /etc/ld.so.preload",
    ):
        assert site.exec("root", "sh", "-c", attempt).returncode != 0, attempt
    assert _try(site, "root") == REFUSED


def test_a_damaged_region_gives_nothing(site: Site) -> None:
    """The tenant may write there, since its processes keep account in it: what for is its loss."""
    _run(site, "damaging", objects.container(limits=SHARE))
    site.exec("damaging", "sh", "-c", "echo nonsense > /etc/partage/fence/region")
    code, said = _try(site, "damaging")
    assert (code, said) == (1, "CUDA_ERROR_NOT_PERMITTED\n")


def test_a_neighbours_files_are_out_of_reach(site: Site) -> None:
    """A container has its own region; of its neighbours only what they tell, and that read-only."""
    _run(site, "one", objects.container(limits=SHARE))
    _run(site, "two", objects.container(limits=SHARE))
    seats = site.said("one", "ls", "/etc/partage/fence/seats-0").split()
    assert len(seats) >= 2
    written = [
        site.exec("one", "sh", "-c", f"echo > /etc/partage/fence/seats-0/{seat}").returncode
        for seat in seats
    ]
    assert written.count(0) == 1
