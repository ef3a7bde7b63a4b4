"""Whatever the kubelet does, its plugins are registered with it in the end, once each."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from partage.kubelet import errors, plugin_sockets, plugins
from partage.kubelet.device_lists import Unit
from tests.kubelet.conftest import Node
from tests.kubelet.fake_kubelet import until

GPU = "partage.dev/gpu"
ROOT = Path(__file__).parents[2]


async def test_a_kubelet_that_restarts_knows_all_plugins_again(node: Node) -> None:
    """Twenty of them, with the units of that moment, each on a socket never used before."""
    names = [f"partage.dev/gpu-{number}" for number in range(20)]
    mine = [node.plugin(name, [Unit("a")]) for name in names]
    await node.kubelet.start()
    async with node.running(*mine):
        for name in names:
            await node.kubelet.listed(name, {"a": "Healthy"})
        await node.kubelet.stop()
        mine[7].update([Unit("b")])
        await until(lambda: not any(plugin.registered for plugin in mine))
        await node.kubelet.start()
        for name in names:
            unit = "b" if name == names[7] else "a"
            await node.kubelet.listed(name, {unit: "Healthy"})
        await until(lambda: all(plugin.registered for plugin in mine))

        used = [request.endpoint for request in node.kubelet.requests]
        assert len(used) == len(set(used)) == 40
        assert node.sockets() == sorted(used[20:])  # the old ones are gone


async def test_a_new_kubelet_is_known_by_its_socket_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it left ours in place, and if we had all the time to wait for it to listen."""
    monkeypatch.setattr(plugins, "_PATIENCE_S", 3600.0)
    monkeypatch.setattr(plugins, "_HUNG_UP_S", 3600.0)
    node.kubelet.tidy = False
    plugin = node.plugin(GPU, [Unit("a")])
    await node.kubelet.start()
    async with node.running(plugin):
        first = await node.kubelet.endpoint(GPU)
        await node.kubelet.restart()
        await node.kubelet.listed(GPU, {"a": "Healthy"})
        assert node.sockets() == [node.kubelet.endpoints[GPU].path.name]
        assert first.path.name not in node.sockets()


async def test_a_kubelet_that_comes_late_is_waited_for(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, not once for each plugin or look."""
    mine = [node.plugin(f"{GPU}-{number}", [Unit("a")]) for number in range(3)]
    async with node.running(*mine):
        await until(lambda: node.folder._looks >= 5)
        assert caplog.messages == [f"no kubelet at {node.path}/kubelet.sock: waiting for it"]
        assert node.sockets() == []
        assert "not registered yet" in mine[0].problem
        await node.kubelet.start()
        await node.kubelet.listed(f"{GPU}-2", {"a": "Healthy"})


async def test_a_refusal_is_told_and_tried_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Each time with another socket, in the kubelet's own words, until it is accepted."""
    node.kubelet.refusal = "requested API version is not supported"
    plugin = node.plugin(GPU, [Unit("a")])
    await node.kubelet.start()
    async with node.running(plugin):
        await until(lambda: len(node.kubelet.requests) >= 3)
        assert not plugin.registered
        assert plugin.problem == (
            "partage.dev/gpu is not registered: the kubelet answers UNKNOWN: requested API "
            "version is not supported; see the kubelet's log (journalctl -u kubelet)"
        )
        node.kubelet.refusal = ""
        await node.kubelet.listed(GPU, {"a": "Healthy"})
        used = [request.endpoint for request in node.kubelet.requests]
        assert len(set(used)) == len(used)
        assert node.sockets() == [used[-1]]
    assert sum("UNKNOWN" in message for message in caplog.messages) == 1


async def test_a_new_kubelet_is_not_made_to_wait_for_a_pause(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause after a failure is for the kubelet that failed."""
    monkeypatch.setattr(plugins, "_FIRST_PAUSE_S", 3600.0)
    node.kubelet.refusal = "not now"
    plugin = node.plugin(GPU, [Unit("a")])
    await node.kubelet.start()
    async with node.running(plugin):
        await until(lambda: "not now" in plugin.problem)
        node.kubelet.refusal = ""
        await node.kubelet.restart()
        await node.kubelet.listed(GPU, {"a": "Healthy"})


async def test_a_kubelet_that_does_not_answer_is_asked_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been stopped in the midst of things."""
    monkeypatch.setattr(plugins, "_REGISTER_S", 0.3)
    node.kubelet.silent = True
    plugin = node.plugin(GPU, [Unit("a")])
    await node.kubelet.start()
    async with node.running(plugin):
        await until(lambda: "does not answer" in plugin.problem)
        node.kubelet.silent = False
        await node.kubelet.listed(GPU, {"a": "Healthy"})


async def test_a_socket_that_vanished_is_made_anew(node: Node) -> None:
    """Somebody tidied up, or a kubelet did while it started."""
    plugin = node.plugin(GPU, [Unit("a")])
    await node.kubelet.start()
    async with node.running(plugin):
        first = await node.kubelet.endpoint(GPU)
        first.path.unlink()
        await until(lambda: len(node.kubelet.requests) == 2)
        assert (await node.kubelet.endpoint(GPU)).path != first.path


@pytest.mark.parametrize("how", ["hangs up", "never listens"])
async def test_a_kubelet_that_does_not_listen_is_asked_to(
    node: Node, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Without its stream it does not count on us, though its socket is the same."""
    monkeypatch.setattr(plugins, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(plugins, "_HUNG_UP_S", 0.2)
    plugin = node.plugin(GPU, [Unit("a")])
    node.kubelet.deaf = how == "never listens"
    await node.kubelet.start()
    async with node.running(plugin):
        if how == "hangs up":
            await (await node.kubelet.endpoint(GPU)).close()
        else:
            await until(lambda: "does not listen yet" in plugin.problem)
        await until(lambda: not plugin.registered)
        await until(lambda: len(node.kubelet.requests) >= 2)
        node.kubelet.deaf = False
        await node.kubelet.listed(GPU, {"a": "Healthy"})
        await until(lambda: plugin.registered)


async def test_a_kubelet_killed_while_it_takes_the_list_is_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket's file stays, and nobody is behind it, until the next kubelet comes."""
    monkeypatch.setattr(plugins, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(plugins, "_HUNG_UP_S", 0.2)
    ids = [f"{number:05x}" for number in range(200_000)]
    plugin = node.plugin(GPU, [Unit(unit_id) for unit_id in ids])
    async with node.running(plugin):
        for taken in (True, False):
            with program(node.path) as kubelet:
                await until(lambda: plugin.registered)  # the list is on its way
                if taken:
                    line = await asyncio.to_thread(stdout_line, kubelet)
                    assert json.loads(line) == [GPU, node.sockets()[0], 200_000]
                kubelet.send_signal(signal.SIGKILL)
                await asyncio.to_thread(kubelet.wait)
            await until(lambda: "does not answer" in plugin.problem)
        await node.kubelet.start()
        await node.kubelet.listed(GPU, dict.fromkeys(ids, "Healthy"))


@pytest.mark.slow  # forty kubelets at real moments: what they meet is the order of real events
async def test_a_storm_of_restarts_ends_well(node: Node) -> None:
    """Kubelets come and go at any moment of a registration, and lists change meanwhile."""
    chance = random.Random(20261115)
    names = [f"partage.dev/gpu-{number}" for number in range(5)]
    mine = [node.plugin(name, [Unit("start")]) for name in names]
    async with node.running(*mine):
        for round_ in range(40):
            await node.kubelet.restart()
            chance.choice(mine).update([Unit(str(round_))])
            await asyncio.sleep(chance.uniform(0, 0.3))
        for plugin in mine:
            plugin.update([Unit("end")])
        for name in names:
            await node.kubelet.listed(name, {"end": "Healthy"})
        await until(lambda: all(plugin.registered for plugin in mine))
        live = sorted(endpoint.path.name for endpoint in node.kubelet.endpoints.values())
        assert node.sockets() == live
        used = [request.endpoint for request in node.kubelet.requests]
        assert len(used) == len(set(used))


async def test_only_sockets_without_an_owner_are_swept(node: Node) -> None:
    """Another agent may be ending; and what is no socket of ours is none of our business."""
    alive, dead, other = (socket.socket(socket.AF_UNIX) for _ in range(3))
    with alive, dead, other:
        alive.bind(str(node.path / "partage-alive-1-0.sock"))
        alive.listen(1)
        dead.bind(str(node.path / "partage-dead-1-0.sock"))
        other.bind(str(node.path / "other.sock"))
        (node.path / "partage-file-1-0.sock").touch()
        async with node.running():
            await until(lambda: "partage-dead-1-0.sock" not in node.sockets())
        assert node.sockets() == ["partage-alive-1-0.sock", "partage-file-1-0.sock"]
        assert (node.path / "other.sock").exists()


def test_names_of_sockets_fit_into_the_kernel() -> None:
    """Long resources are cut; a folder that leaves no room is refused with the number of bytes."""
    resource = "nvidia.com/" + "x" * 200
    for length in (32, 60, 75):
        path = plugin_sockets.new(Path("/" + "f" * (length - 1)), resource)
        assert len(str(path)) <= 107
        assert path != plugin_sockets.new(path.parent, resource)
    with pytest.raises(errors.BadSocket, match=r"choose a folder that is \d+ bytes shorter"):
        plugin_sockets.new(Path("/" + "f" * 99), resource)


async def test_the_kubelet_is_addressed_as_localhost(node: Node) -> None:
    """Strict servers refuse the path of a socket as authority: seen in the bytes that we send."""
    sent = bytearray()
    open_connections = 0

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_connections
        open_connections += 1
        writer.write(b"\0\0\0\x04\0\0\0\0\0")  # an empty SETTINGS frame
        while block := await reader.read(4096):
            sent.extend(block)
        writer.close()
        await writer.wait_closed()
        open_connections -= 1

    async with await asyncio.start_unix_server(listen, node.path / "kubelet.sock"):
        async with node.running(node.plugin(GPU, [Unit("a")])):
            await until(lambda: b"/v1beta1.Registration/Register" in sent)
            assert b"localhost" in sent
            assert b"kubelet.sock" not in sent
        await until(lambda: open_connections == 0)


def program(folder: Path) -> subprocess.Popen[str]:
    """A fake kubelet as a process of its own."""
    command = [sys.executable, "-m", "tests.kubelet.fake_kubelet", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def stdout_line(process: subprocess.Popen[str]) -> str:
    """The next line it prints."""
    assert process.stdout is not None
    return process.stdout.readline()
