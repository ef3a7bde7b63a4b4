"""The messages have the names and numbers of the kubelet's: compared byte by byte."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from partage.kubelet.wire import device_plugin_pb2 as plugin
from partage.kubelet.wire import pod_resources_pb2 as resources


def text(number: int, value: str) -> bytes:
    """A field with a text, as protobuf writes it."""
    return part(number, value.encode())


def part(number: int, content: bytes) -> bytes:
    """A field with a message in it."""
    assert len(content) < 128
    return bytes((number << 3 | 2, len(content))) + content


CASES: list[tuple[str, Message, bytes]] = [
    (
        "v1beta1.RegisterRequest",
        plugin.RegisterRequest(
            version="v",
            endpoint="e",
            resource_name="r",
            options=plugin.DevicePluginOptions(
                pre_start_required=True, get_preferred_allocation_available=True
            ),
        ),
        text(1, "v") + text(2, "e") + text(3, "r") + part(4, b"\x08\x01\x10\x01"),
    ),
    (
        "v1beta1.ListAndWatchResponse",
        plugin.ListAndWatchResponse(
            devices=[
                plugin.Device(
                    ID="i",
                    health="h",
                    topology=plugin.TopologyInfo(nodes=[plugin.NUMANode(ID=1)]),
                )
            ]
        ),
        part(1, text(1, "i") + text(2, "h") + part(3, part(1, b"\x08\x01"))),
    ),
    (
        "v1beta1.AllocateRequest",
        plugin.AllocateRequest(
            container_requests=[plugin.ContainerAllocateRequest(devices_ids=["a", "b"])]
        ),
        part(1, text(1, "a") + text(1, "b")),
    ),
    (
        "v1beta1.AllocateResponse",
        plugin.AllocateResponse(
            container_responses=[
                plugin.ContainerAllocateResponse(
                    envs={"k": "v"},
                    mounts=[plugin.Mount(container_path="c", host_path="h", read_only=True)],
                    devices=[
                        plugin.DeviceSpec(container_path="c", host_path="h", permissions="rw")
                    ],
                    annotations={"k": "v"},
                    cdi_devices=[plugin.CDIDevice(name="n")],
                )
            ]
        ),
        part(
            1,
            part(1, text(1, "k") + text(2, "v"))
            + part(2, text(1, "c") + text(2, "h") + b"\x18\x01")
            + part(3, text(1, "c") + text(2, "h") + text(3, "rw"))
            + part(4, text(1, "k") + text(2, "v"))
            + part(5, text(1, "n")),
        ),
    ),
    (
        "v1beta1.PreStartContainerRequest",
        plugin.PreStartContainerRequest(devices_ids=["a"]),
        text(1, "a"),
    ),
    (
        "v1.ListPodResourcesResponse",
        resources.ListPodResourcesResponse(
            pod_resources=[
                resources.PodResources(
                    name="p",
                    namespace="n",
                    containers=[
                        resources.ContainerResources(
                            name="c",
                            devices=[
                                resources.ContainerDevices(resource_name="r", device_ids=["i"])
                            ],
                        )
                    ],
                )
            ]
        ),
        part(
            1,
            text(1, "p")
            + text(2, "n")
            + part(3, text(1, "c") + part(2, text(1, "r") + text(2, "i"))),
        ),
    ),
]


@pytest.mark.parametrize(("name", "message", "expected"), CASES, ids=[case[0] for case in CASES])
def test_bytes_are_as_the_field_tables_say(name: str, message: Message, expected: bytes) -> None:
    """Both ways: what we write, and what we read."""
    assert message.DESCRIPTOR.full_name == name
    assert message.SerializeToString() == expected
    assert type(message).FromString(expected) == message
