"""The kubelet's API tells which container holds what; "too many questions" is asked again."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from partage.kubelet import errors, pod_resources
from partage.kubelet.pod_resources import Listed
from partage.kubelet.wire import pod_resources_pb2 as messages
from tests.kubelet.fake_kubelet import FakeLister

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


def answer(*devices: tuple[str, list[str]]) -> messages.ListPodResourcesResponse:
    """One container with these devices, another without any."""
    held = [messages.ContainerDevices(resource_name=name, device_ids=ids) for name, ids in devices]
    containers = [
        messages.ContainerResources(name="main", devices=held),
        messages.ContainerResources(name="side"),
    ]
    pod = messages.PodResources(name="train", namespace="team", containers=containers)
    return messages.ListPodResourcesResponse(pod_resources=[pod])


async def test_devices_are_told_by_container_and_resource(path: Path) -> None:
    """A resource that comes in parts, one for each NUMA node, is one."""
    lister = FakeLister(answer(("a/mem", ["1", "2"]), ("a/core", ["9"]), ("a/mem", ["3"])))
    async with lister.serving(path / "kubelet.sock"):
        assert await pod_resources.listed(path / "kubelet.sock") == (
            Listed("team", "train", "main", "a/mem", frozenset({"1", "2", "3"})),
            Listed("team", "train", "main", "a/core", frozenset({"9"})),
        )
    assert lister.questions == 1


async def test_a_large_answer_is_taken(path: Path) -> None:
    """Longer than gRPC takes by itself."""
    ids = [f"{number:040d}" for number in range(200_000)]
    lister = FakeLister(answer(("a/mem", ids)))
    assert lister.answer.ByteSize() > 2 * 4 * 1024 * 1024
    async with lister.serving(path / "kubelet.sock"):
        [listed] = await pod_resources.listed(path / "kubelet.sock")
    assert listed.ids == frozenset(ids)


async def test_too_many_questions_are_asked_again(path: Path) -> None:
    """A few times, and not for ever."""
    lister = FakeLister(answer(("a/mem", ["1"])))
    async with lister.serving(path / "kubelet.sock"):
        lister.refusals = [EXHAUSTED] * 3
        assert len(await pod_resources.listed(path / "kubelet.sock", chance=lambda: -1.0)) == 1
        assert lister.questions == 4
        lister.refusals = [EXHAUSTED] * 100
        with pytest.raises(errors.Refused, match="RESOURCE_EXHAUSTED: rejected by rate limit; see"):
            await pod_resources.listed(path / "kubelet.sock", chance=lambda: -1.0)
        assert lister.questions == 4 + 7


async def test_another_refusal_is_told_at_once(path: Path) -> None:
    """In the kubelet's words."""
    lister = FakeLister(answer())
    lister.refusals = [grpc.StatusCode.PERMISSION_DENIED]
    async with lister.serving(path / "kubelet.sock"):
        with pytest.raises(errors.Refused, match=r"cannot find out which pod.*PERMISSION_DENIED"):
            await pod_resources.listed(path / "kubelet.sock")
    assert lister.questions == 1


async def test_a_kubelet_that_is_not_there_is_told_apart(path: Path) -> None:
    """With the socket at which it was expected."""
    with pytest.raises(errors.Absent, match=r"does not answer at .*/kubelet.sock"):
        await pod_resources.listed(path / "kubelet.sock")


async def test_what_the_kubelet_counts_is_told_by_resource(path: Path) -> None:
    """It names every ID by itself; and it may be asked too much, too."""
    lister = FakeLister(answer())
    for resource, unit in (("a/mem", "1"), ("a/core", "9"), ("a/mem", "2")):
        lister.allocatable.devices.add(resource_name=resource, device_ids=[unit])
    lister.refusals = [EXHAUSTED]
    async with lister.serving(path / "kubelet.sock"):
        counted = await pod_resources.counted(path / "kubelet.sock", chance=lambda: -1.0)
    assert counted == {"a/mem": frozenset({"1", "2"}), "a/core": frozenset({"9"})}
    assert lister.questions == 2
    with pytest.raises(errors.Absent, match="cannot find out which devices the kubelet counts"):
        await pod_resources.counted(path / "kubelet.sock")
