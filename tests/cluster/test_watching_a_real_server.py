"""The Kubernetes client on a real API server that is stopped, killed and compacted under it."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import pytest

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from partage.dialects import pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import lease
from partage.kube.auth import credentials
from partage.kube.reflection import reflector

Sleep = Callable[[float], Awaitable[None]]


class Sink:
    """The names of all pods, by uid."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def put(self, pod: pods.Pod) -> None:
        """It is there."""
        self.names[pod.metadata.uid] = pod.metadata.name

    def drop(self, key: str) -> None:
        """It is gone."""
        self.names.pop(key, None)

    def keys(self) -> Collection[str]:
        """What is there."""
        return self.names.keys()


@pytest.fixture
async def api(clean_cluster: ControlPlane) -> AsyncIterator[kube.Api]:
    """A client, by the kubeconfig."""
    login = credentials.load(str(clean_cluster.kubeconfig))
    async with kube.Api(login) as connected:
        yield connected


@contextlib.asynccontextmanager
async def _watching(
    api: kube.Api, sink: Sink, *, sleep: Sleep = asyncio.sleep
) -> AsyncIterator[reflector.Reflector[pods.Pod]]:
    watching = reflector.Reflector(
        api, "/api/v1/pods", pods.Pod, sink, key=lambda pod: pod.metadata.uid, sleep=sleep
    )
    async with _going_on(watching):
        yield watching


@contextlib.asynccontextmanager
async def _going_on(watching: reflector.Reflector[pods.Pod]) -> AsyncIterator[None]:
    """While it runs; afterwards it can be run again, and goes on from where it was."""
    running = asyncio.create_task(watching.run())
    await asyncio.wait_for(watching.synced.wait(), 30)
    yield
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _eventually(check: Callable[[], bool]) -> None:
    for _ in range(1200):
        if check():
            return
        await asyncio.sleep(0.05)
    pytest.fail("still not so after a minute")


async def _names(plane: ControlPlane) -> dict[str, str]:
    listed = await asyncio.to_thread(plane.client.list_all, "Pod")
    return {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in listed}


async def _create(plane: ControlPlane, *names: str) -> None:
    made = [objects.pod(name) for name in names]
    await asyncio.to_thread(plane.client.create_all, made)


async def _delete(plane: ControlPlane, name: str) -> None:
    await asyncio.to_thread(plane.client.delete, "Pod", name, grace_seconds=0)


async def test_what_comes_and_goes_is_seen(clean_cluster: ControlPlane, api: kube.Api) -> None:
    """The list first, then every change."""
    await _create(clean_cluster, "a", "b")
    sink = Sink()
    async with _watching(api, sink):
        assert sorted(sink.names.values()) == ["a", "b"]
        await _create(clean_cluster, "c")
        await _delete(clean_cluster, "a")
        await _eventually(lambda: sorted(sink.names.values()) == ["b", "c"])


@pytest.mark.parametrize("how", ["stop_apiserver", "kill_apiserver"])
async def test_a_restart_of_the_server_loses_nothing(
    clean_cluster: ControlPlane, api: kube.Api, how: str
) -> None:
    """The watch goes on where it was, or starts over."""
    await _create(clean_cluster, "a", "b")
    sink, failed = Sink(), asyncio.Event()

    async def pause(seconds: float) -> None:
        failed.set()
        await asyncio.sleep(seconds)

    async with _watching(api, sink, sleep=pause):
        failed.clear()
        await asyncio.to_thread(getattr(clean_cluster, how))
        await asyncio.wait_for(failed.wait(), 30)  # it has seen that the server is away
        await asyncio.to_thread(clean_cluster.start_apiserver)
        await _delete(clean_cluster, "a")
        await _create(clean_cluster, "c")
        names = await _names(clean_cluster)
        await _eventually(lambda: sink.names == names)


async def test_what_vanished_in_a_compacted_past_is_dropped(
    clean_cluster: ControlPlane, api: kube.Api
) -> None:
    """The server cannot tell any more what happened, so the lists are compared."""
    await _create(clean_cluster, *(f"p{i}" for i in range(20)))
    sink = Sink()
    async with _watching(api, sink) as watching:
        assert len(sink.names) == 20
    for i in range(5):
        await _delete(clean_cluster, f"p{i}")
    await _create(clean_cluster, "p0")
    await asyncio.to_thread(clean_cluster.compact_etcd)
    names = await _names(clean_cluster)
    assert len(names) == 16
    async with _going_on(watching):
        await _eventually(lambda: sink.names == names)
        await _create(clean_cluster, "late")
        await _eventually(lambda: "late" in sink.names.values())
        assert watching.gaps >= 1


async def test_asking_for_a_fresh_list_gives_one(
    clean_cluster: ControlPlane, api: kube.Api
) -> None:
    """As a new leader does."""
    await _create(clean_cluster, "a")
    sink = Sink()
    async with _watching(api, sink) as watching:
        sink.names["ghost"] = "ghost"
        watching.relist()
        assert not watching.synced.is_set()
        await asyncio.wait_for(watching.synced.wait(), 30)
        assert list(sink.names.values()) == ["a"]
        assert watching.gaps == 1


async def test_lists_come_in_pages_too(clean_cluster: ControlPlane, api: kube.Api) -> None:
    """As older servers give them."""
    await _create(clean_cluster, *(f"p{i:02}" for i in range(25)))
    sizes, names = [], []
    async for page in api.pages("/api/v1/pods", pods.Pod, limit=10):
        sizes.append(len(page.items))
        names += [pod.metadata.name for pod in page.items]
    assert sizes == [10, 10, 5]
    assert sorted(names) == [f"p{i:02}" for i in range(25)]


async def test_refusals_carry_the_servers_reason_and_words(
    clean_cluster: ControlPlane, api: kube.Api
) -> None:
    """Not found, in conflict, invalid, forbidden to strangers, out of reach."""
    with pytest.raises(kube_errors.NotFound, match='pods "x" not found'):
        await api.get("/api/v1/namespaces/default/pods/x", pods.Pod)
    node = objects.node("n1")
    await api.create("/api/v1/nodes", node)
    with pytest.raises(kube_errors.Conflict, match="already exists"):
        await api.create("/api/v1/nodes", node)
    wrong: dict[str, Any] = {"metadata": {"labels": {"not a key": "x"}}}
    with pytest.raises(kube_errors.Invalid, match="not a key"):
        await api.patch("/api/v1/nodes/n1", wrong)
    await asyncio.to_thread(clean_cluster.kill_apiserver)
    with pytest.raises(kube_errors.Unreachable) as caught:
        await api.get("/api/v1/nodes/n1", pods.Pod)
    assert caught.value.sent is False


async def test_of_two_candidates_one_leads_and_the_other_follows(
    clean_cluster: ControlPlane, api: kube.Api
) -> None:
    """A lease that is given back is taken at once."""
    await asyncio.to_thread(_forget_lease, clean_cluster)
    rounds: collections.Counter[str] = collections.Counter()

    def counting(name: str) -> Sleep:
        async def sleep(seconds: float) -> None:
            rounds[name] += 1
            await asyncio.sleep(seconds)

        return sleep

    both = [
        lease.Lease(
            api,
            namespace="default",
            name="test",
            identity=name,
            duration_s=10.0,
            renew_s=0.2,
            sleep=counting(name),
        )
        for name in ("one", "two")
    ]
    running = [asyncio.create_task(candidate.run()) for candidate in both]
    await _eventually(lambda: any(candidate.leading for candidate in both))
    before = rounds.copy()  # the round that each is in may have begun before
    await _eventually(lambda: all(rounds[name] >= before[name] + 2 for name in ("one", "two")))
    (leader,) = [candidate for candidate in both if candidate.leading]
    place = both.index(leader)
    running[place].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running[place]
    await leader.release()
    await asyncio.wait_for(both[1 - place].acquired.wait(), 30)
    running[1 - place].cancel()


def _forget_lease(plane: ControlPlane) -> None:
    with contextlib.suppress(Exception):
        plane.client.delete("Lease", "test")
