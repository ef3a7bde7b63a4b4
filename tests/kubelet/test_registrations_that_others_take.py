"""Another plugin for the same resource is noticed, is not fought, and is followed when it goes."""

from __future__ import annotations

import contextlib
import socket

import pytest

from partage.kubelet import plugin_sockets, plugins, registrations
from partage.kubelet.device_lists import Unit
from partage.kubelet.registrations import Standing
from tests.kubelet.conftest import Node
from tests.kubelet.fake_kubelet import until

GPU = "partage.dev/gpu"
OURS, THEIRS, NONE = frozenset({"p0", "p1"}), frozenset({"GPU-1"}), frozenset[str]()


@pytest.fixture(autouse=True)
def quick_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no time to take a list."""
    monkeypatch.setattr(plugins, "_SETTLING_S", 0.0)


@pytest.mark.parametrize(
    ("counted", "rival", "standing"),
    [
        (OURS, "", Standing.HELD),
        (OURS, "partage-x.sock", Standing.TAKEN),  # by another agent, with the same units
        (THEIRS, "", Standing.TAKEN),
        (OURS | THEIRS, "", Standing.TAKEN),
        (NONE, "", Standing.LOST),
        (NONE, "partage-x.sock", Standing.TAKEN),  # it has yet to tell its units
    ],
)
def test_how_a_registration_stands(counted: frozenset[str], rival: str, standing: Standing) -> None:
    """By what the kubelet counts and by younger sockets."""
    assert registrations.judged(OURS, counted, rival) is standing


def test_a_resource_without_units_is_not_lost() -> None:
    """The kubelet counts none of it, as it should."""
    assert registrations.judged(NONE, NONE, "") is Standing.HELD


def test_news_is_believed_when_it_is_seen_twice() -> None:
    """A list on its way looks like another plugin's; a rival that has just gone looks like us."""
    record = registrations.Record()
    for seen, believed in (
        (Standing.TAKEN, Standing.HELD),
        (Standing.LOST, Standing.HELD),
        (Standing.HELD, Standing.HELD),
        (Standing.LOST, Standing.HELD),
        (Standing.LOST, Standing.LOST),
        (Standing.HELD, Standing.LOST),
        (Standing.HELD, Standing.HELD),
        (Standing.TAKEN, Standing.HELD),
        (Standing.TAKEN, Standing.TAKEN),
        (Standing.HELD, Standing.TAKEN),
        (Standing.LOST, Standing.TAKEN),
        (Standing.LOST, Standing.LOST),
    ):
        record.see(seen)
        assert record.standing is believed


def _look(plugin: plugins.Plugin, node: Node) -> None:
    for _ in range(2):
        plugin.judge(node.kubelet.counts.get(GPU, frozenset()))


async def test_the_first_notices_the_second_and_gives_way(node: Node) -> None:
    """Its list is still listened to, so only the socket tells; it does not register in turn."""
    first, other = node.plugin(GPU, [Unit("p0")]), Node(node.path)
    second = other.plugin(GPU, [Unit("p0")])
    await node.kubelet.start()
    async with node.running(first):
        await node.kubelet.listed(GPU, {"p0": "Healthy"})
        async with other.running(second):
            await until(lambda: second.registered and bool(node.folder.others))
            _look(first, node)
            _look(second, node)
            assert (first.standing, second.standing) == (Standing.TAKEN, Standing.HELD)
            assert not first.registered
            assert "another plugin has registered it since" in first.problem
            assert second.registered
        await until(lambda: not node.folder.others and not node.kubelet.counts[GPU])
        _look(first, node)
        assert first.standing is Standing.LOST
        await until(lambda: first.registered)
        await node.kubelet.listed(GPU, {"p0": "Healthy"})
        assert len(node.kubelet.requests) == 3


async def test_who_is_replaced_keeps_its_list_to_itself(node: Node) -> None:
    """The kubelet listens to both, and would take our units for the other's."""
    mine, other = node.plugin(GPU, [Unit("p0")]), Node(node.path)
    theirs = other.plugin(GPU, [Unit("GPU-1")])
    await node.kubelet.start()
    async with node.running(mine):
        await node.kubelet.listed(GPU, {"p0": "Healthy"})
        async with other.running(theirs):
            await node.kubelet.listed(GPU, {"GPU-1": "Healthy"})
            _look(mine, node)
            mine.update([Unit("p0"), Unit("p1")])
            theirs.update([Unit("GPU-2")])
            await node.kubelet.listed(GPU, {"GPU-2": "Healthy"})
            assert node.kubelet.counts[GPU] == {"GPU-2"}
        await until(lambda: not node.kubelet.counts[GPU])
        _look(mine, node)
        await node.kubelet.listed(GPU, {"p0": "Healthy", "p1": "Healthy"})


async def test_a_list_that_was_just_told_is_given_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet that is slow to take it looks as if it did not count on us."""
    monkeypatch.setattr(plugins, "_SETTLING_S", 3.0)
    now_s = 100.0
    plugin = plugins.Plugin(GPU, [Unit("p0")], node.handler, node.folder, clock=lambda: now_s)
    await node.kubelet.start()
    async with node.running(plugin):
        await until(lambda: plugin.registered)
        now_s += 2.9
        for _ in range(3):
            plugin.judge(frozenset())
        assert plugin.registered
        plugin.update([Unit("p0"), Unit("p1")])
        now_s += 2.9
        for _ in range(3):
            plugin.judge(frozenset({"p0"}))
        assert plugin.registered
        now_s += 0.2
        for _ in range(3):
            plugin.judge(frozenset({"p0"}))
        assert plugin.standing is Standing.TAKEN


async def test_who_is_counted_on_again_tells_what_was_kept_back(node: Node) -> None:
    """From 1.37 on the kubelet returns to the first plugin by itself."""
    plugin = node.plugin(GPU, [Unit("p0")])
    await node.kubelet.start()
    async with node.running(plugin):
        await node.kubelet.listed(GPU, {"p0": "Healthy"})
        for _ in range(2):
            plugin.judge(frozenset({"GPU-1"}))
        plugin.update([Unit("p1")])
        for _ in range(2):
            plugin.judge(frozenset({"p1"}))
        await node.kubelet.listed(GPU, {"p1": "Healthy"})
        assert plugin.registered
        assert len(node.kubelet.requests) == 1


async def test_the_second_survives_the_end_of_the_first(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet drops it with the first: it hangs up, and is asked again a moment later."""
    monkeypatch.setattr(plugins, "_PATIENCE_S", 3600.0)
    monkeypatch.setattr(plugins, "_HUNG_UP_S", 0.2)
    first, other = node.plugin(GPU, [Unit("p0")]), Node(node.path)
    second = other.plugin(GPU, [Unit("p0")])
    await node.kubelet.start()
    async with contextlib.AsyncExitStack() as longer:
        async with node.running(first):
            await until(lambda: first.registered)
            await longer.enter_async_context(other.running(second))
            await until(lambda: second.registered)
        await until(lambda: not second.registered)
        await until(lambda: second.registered)
        assert len(node.kubelet.requests) == 3


async def test_a_resource_that_is_lost_again_and_again_is_met_ever_more_slowly(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two plugins that both insist must not keep the kubelet busy."""
    pauses_s: list[float] = []

    async def at_once(_kubelet: plugin_sockets.Identity, *, within_s: float) -> None:
        pauses_s.append(within_s)

    monkeypatch.setattr(node.folder, "departure", at_once)
    plugin = node.plugin(GPU, [Unit("p0")])
    await node.kubelet.start()
    async with node.running(plugin):
        for times in range(1, 11):
            await until(lambda: plugin.registered)
            for _ in range(2):
                plugin.judge(frozenset())
            await until(lambda times=times: len(pauses_s) == times)  # type: ignore[misc]
    assert pauses_s == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


async def test_a_killed_rival_is_swept_away(node: Node) -> None:
    """Its socket stays behind, and would look alive for ever."""
    plugin = node.plugin(GPU, [Unit("p0")])
    await node.kubelet.start()
    async with node.running(plugin):
        await until(lambda: plugin.registered)
        path = plugin_sockets.new(node.path, GPU)
        with socket.socket(socket.AF_UNIX) as rival:
            rival.bind(str(path))
            rival.listen(1)
            await until(lambda: path.name in node.folder.others)
            _look(plugin, node)
            assert plugin.standing is Standing.TAKEN
        await until(lambda: not path.exists() and not node.folder.others)
        _look(plugin, node)
        assert plugin.registered


def test_a_socket_is_known_by_its_resource_and_age(node: Node) -> None:
    """Those of other resources, of other plugins, and those that are older are no rivals."""
    own = (1, 1, 100)
    mine, same, another = (
        plugin_sockets.new(node.path, resource).name for resource in (GPU, GPU, "partage.dev/other")
    )
    assert plugin_sockets.rival(GPU, own, {}) == ""
    assert plugin_sockets.rival(GPU, own, {another: (1, 2, 200), "nvidia.sock": (1, 3, 300)}) == ""
    assert plugin_sockets.rival(GPU, own, {same: (1, 4, 99)}) == ""
    assert plugin_sockets.rival(GPU, own, {same: (1, 4, 101), another: (1, 2, 200)}) == same
    assert plugin_sockets.rival(GPU, own, {mine: (1, 5, 102), same: (1, 4, 101)}) == mine
