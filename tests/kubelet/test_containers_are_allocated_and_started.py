"""Allocate never fails; the start of a container may, with a text for its owner."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from grpc import aio

from partage.core import errors
from partage.kubelet import servicer
from partage.kubelet.device_lists import Unit
from partage.kubelet.wire import device_plugin_pb2 as messages
from tests.kubelet import fake_kubelet
from tests.kubelet.conftest import Node, device

GPU = "partage.dev/gpu"


async def running_endpoint(node: Node) -> fake_kubelet.Endpoint:
    """The kubelet's view of a plugin that runs."""
    await node.kubelet.start()
    return await node.kubelet.endpoint(GPU)


async def test_each_container_gets_the_device_of_its_ids(node: Node) -> None:
    """A hundred at once, none mixed up."""
    async with node.running(node.plugin(GPU, [Unit(str(n)) for n in range(200)])):
        endpoint = await running_endpoint(node)
        sets = [frozenset({str(2 * n), str(2 * n + 1)}) for n in range(100)]
        answers = await asyncio.gather(*(endpoint.allocate(sorted(ids)) for ids in sets))
        for ids, answer in zip(sets, answers, strict=True):
            only = messages.CDIDevice(name=device(ids))
            assert answer == messages.ContainerAllocateResponse(cdi_devices=[only])
        assert set(node.handler.allocations) == {(GPU, ids) for ids in sets}


async def test_allocate_does_not_fail_with_its_handler(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """The container gets a device that never exists, so it cannot start; the log says why."""
    node.handler.error = OSError("no space left")
    async with node.running(node.plugin(GPU, [Unit("a")])):
        endpoint = await running_endpoint(node)
        answer = await endpoint.allocate(["a"])
    assert [cdi.name for cdi in answer.cdi_devices] == [servicer.FAILED_DEVICE]
    assert "no space left" in caplog.text


async def test_a_container_that_may_not_start_shows_why(node: Node) -> None:
    """What happened and what to do, word for word; after the cure it starts."""
    node.handler.error = errors.FenceError("card GPU-1 → lost", instead="move the pod\nelsewhere")
    async with node.running(node.plugin(GPU, [Unit("a")])):
        endpoint = await running_endpoint(node)
        with pytest.raises(aio.AioRpcError) as caught:
            await endpoint.start_container(["a"])
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "card GPU-1 → lost; move the pod\nelsewhere"
        node.handler.error = None
        await endpoint.start_container(["a"])


async def test_a_mistake_of_ours_stops_a_container_too(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails closed, says whose mistake it is, and the log has the traceback."""
    node.handler.error = ZeroDivisionError("x" * 5000)
    async with node.running(node.plugin(GPU, [Unit("a")])):
        endpoint = await running_endpoint(node)
        with pytest.raises(aio.AioRpcError) as caught:
            await endpoint.start_container(["a"])
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    details = caught.value.details() or ""
    assert details.startswith("internal error of Partage (ZeroDivisionError('xxx")
    assert len(details) == 1000
    assert "Traceback" in caplog.text


async def test_the_same_ids_are_made_ready_once_at_a_time(node: Node) -> None:
    """The kubelet asks again after its limit; the first call is not cut short, others wait."""
    node.handler.gate = asyncio.Event()
    async with node.running(node.plugin(GPU, [Unit("a"), Unit("b")])):
        endpoint = await running_endpoint(node)
        for _ in range(3):
            with pytest.raises(aio.AioRpcError) as caught:
                await endpoint.start_container(["a", "b"], timeout_s=0.2)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (len(node.handler.starts), node.handler.running) == (1, 1)

        last = asyncio.create_task(endpoint.start_container(["b", "a"]))
        await asyncio.sleep(0)
        await endpoint.allocate(["a"])  # it was sent after the start, and is answered
        assert len(node.handler.starts) == 1
        node.handler.gate.set()
        await last
        # It was a call of its own: the IDs may have gone to another pod since the first. Those
        # that nobody waits for any more were never made.
        assert len(node.handler.starts) == 2
        assert node.handler.most_running == 1


async def test_a_call_outlives_the_kubelet_that_made_it(node: Node) -> None:
    """The next kubelet's call for the same IDs waits for it, though it comes by another socket."""
    node.handler.gate = asyncio.Event()
    async with node.running(node.plugin(GPU, [Unit("a")])):
        endpoint = await running_endpoint(node)
        first = asyncio.create_task(endpoint.start_container(["a"]))
        await fake_kubelet.until(lambda: node.handler.starts != [])
        await node.kubelet.restart()
        with pytest.raises((aio.AioRpcError, asyncio.CancelledError)):
            await first
        endpoint = await node.kubelet.endpoint(GPU)
        second = asyncio.create_task(endpoint.start_container(["a"]))
        await asyncio.sleep(0)
        await endpoint.allocate(["a"])  # it was sent after the start, and is answered
        assert (len(node.handler.starts), node.handler.running) == (1, 1)
        node.handler.gate.set()
        await second
        assert node.handler.most_running == 1


async def test_different_ids_do_not_wait_for_each_other(node: Node) -> None:
    """One slow container holds up no other."""
    node.handler.gate = asyncio.Event()
    async with node.running(node.plugin(GPU, [Unit(str(n)) for n in range(20)])):
        endpoint = await running_endpoint(node)
        starts = [asyncio.create_task(endpoint.start_container([str(n)])) for n in range(20)]
        await fake_kubelet.until(lambda: node.handler.running == 20)
        node.handler.gate.set()
        await asyncio.gather(*starts)
