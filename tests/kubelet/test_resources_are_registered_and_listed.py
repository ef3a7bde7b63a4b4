"""A plugin registers its resource and tells the kubelet its units, all of them, at each change."""

from __future__ import annotations

import asyncio
import stat

import pytest

from partage.kubelet import device_lists, errors
from partage.kubelet.device_lists import Unit
from tests.kubelet.conftest import Node
from tests.kubelet.fake_kubelet import until

GPU = "partage.dev/gpu"


async def test_the_kubelet_is_told_everything(node: Node) -> None:
    """Name, version, socket, options, and the units with their health."""
    plugin = node.plugin(GPU, [Unit("a"), Unit("b", healthy=False)])
    assert not plugin.registered
    await node.kubelet.start()
    async with node.running(plugin):
        await node.kubelet.listed(GPU, {"a": "Healthy", "b": "Unhealthy"})
        await until(lambda: plugin.registered)
        assert plugin.problem == ""

        [request] = node.kubelet.requests
        assert (request.version, request.resource_name) == ("v1beta1", GPU)
        assert [request.endpoint] == node.sockets()
        for options in (request.options, node.kubelet.endpoints[GPU].options):
            assert options.pre_start_required
            assert not options.get_preferred_allocation_available
        assert stat.S_IMODE((node.path / request.endpoint).stat().st_mode) == 0o600
    assert not plugin.registered
    assert node.sockets() == []


async def test_changes_are_told_and_repetitions_are_not(node: Node) -> None:
    """A new list replaces the old; the same list again is no news."""
    plugin = node.plugin(GPU, [Unit("a"), Unit("b")])
    await node.kubelet.start()
    async with node.running(plugin):
        endpoint = await node.kubelet.endpoint(GPU)
        plugin.update([Unit("a"), Unit("b")])
        plugin.update([Unit("a"), Unit("b", healthy=False)])
        await node.kubelet.listed(GPU, {"a": "Healthy", "b": "Unhealthy"})
        plugin.update([Unit("c")])
        await node.kubelet.listed(GPU, {"c": "Healthy"})
        plugin.update([])
        await node.kubelet.listed(GPU, {})
        assert len(endpoint.lists) == 4
        assert len(node.kubelet.requests) == 1


async def test_the_last_of_many_changes_arrives(node: Node) -> None:
    """However they fall between the messages that are on their way."""
    plugin = node.plugin(GPU, [Unit("0")])
    await node.kubelet.start()
    async with node.running(plugin):
        await node.kubelet.endpoint(GPU)
        for number in range(1, 1001):
            plugin.update([Unit(str(number))])
            if number % 7 == 0:
                await asyncio.sleep(0)
        await node.kubelet.listed(GPU, {"1000": "Healthy"})


async def test_200_000_short_ids_arrive(node: Node) -> None:
    """As many as a node with 200 GB on its cards has, in MiB; also when all are unhealthy."""
    ids = [f"{number:05x}" for number in range(200_000)]
    plugin = node.plugin(GPU, [Unit(unit_id) for unit_id in ids])
    await node.kubelet.start()
    async with node.running(plugin):
        await node.kubelet.listed(GPU, dict.fromkeys(ids, "Healthy"))
        plugin.update([Unit(unit_id, healthy=False) for unit_id in ids])
        await node.kubelet.listed(GPU, dict.fromkeys(ids, "Unhealthy"))


async def test_what_would_not_go_through_is_refused_at_once(node: Node) -> None:
    """With all units healthy it still would, but not on the day when they are not."""
    units = [Unit(f"{number:07d}") for number in range(200_000)]
    assert device_lists.listing_bytes(units) < device_lists.LARGEST_BYTES
    with pytest.raises(errors.BadListing, match=r"needs up to 4400000 bytes.*count in a larger"):
        node.plugin(GPU, units)

    plugin = node.plugin(GPU, [Unit("a")])
    with pytest.raises(errors.BadListing, match="'a' is listed twice"):
        plugin.update([Unit("a"), Unit("b"), Unit("a")])
    for bad in ("", "x" * 64, "ü"):
        with pytest.raises(errors.BadListing, match="is not a valid device ID"):
            plugin.update([Unit(bad)])


@pytest.mark.parametrize("healthy", [True, False])
def test_the_largest_list_is_counted_to_the_byte(healthy: bool) -> None:
    """The limit is what it is said to be: the size that is told is the size of the message."""
    units = [Unit(f"{number:04x}", healthy=healthy) for number in range(1000)]
    unit_bytes = 2 + (2 + 4) + (2 + len("Healthy" if healthy else "Unhealthy"))
    assert (
        device_lists.listing_bytes(units) == len(device_lists.encoded(units)) == 1000 * unit_bytes
    )
