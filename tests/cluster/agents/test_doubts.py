"""What a node is to do where it is not clear who has a card, or whom the kubelet counts on."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator

import msgspec
import pytest

from cluster import api, objects
from cluster.node.node import Node
from cluster.partage_processes.agent_process import Agent
from partage.dialects import nodes
from partage.fence.store import layout, locks, shared_files, tenants
from tests.cluster import making, whole_cards
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MEMORY = "aliyun.com/gpu-mem"
WHOLE = "nvidia.com/gpu"
UNITS = 24 + 12 + 60 + 8  # GiB of the second node


class Big(msgspec.Struct, frozen=True):
    """A pod that leaves no room for a second of its kind on the node."""

    node: int
    units: int
    cards: int
    used_mib: int

    def pod(self, site: Site) -> api.Object:
        """It, to be created."""
        program = ("gpu", "hold", str(self.used_mib))
        made = objects.running_pod(
            "again",
            objects.container(*program, limits={MEMORY: self.units}),
            nodeSelector={"kubernetes.io/hostname": site.nodes[self.node].name},
            terminationGracePeriodSeconds=1,
        )
        made["metadata"]["labels"] = {"aliyun.com/gpu-count": str(self.cards)}
        return made


ON_ONE_CARD = Big(node=1, units=45, cards=1, used_mib=40000)
ON_ALL_CARDS = Big(node=0, units=32, cards=2, used_mib=14000)


class TestForcedDeletion:
    """A pod is deleted by force, and made anew under its name while its process still ends."""

    @pytest.mark.parametrize("big", [ON_ONE_CARD, ON_ALL_CARDS], ids=["other IDs", "the same IDs"])
    def test_the_new_one_starts_when_the_old_process_has_ended(self, site: Site, big: Big) -> None:
        """Not before, or it would find no memory; and at once: the kubelet need not try again."""
        old = _holding(site, big)
        began = time.monotonic()
        _make_anew(site, big)
        _running_anew(site, old)
        assert time.monotonic() - began < 6
        making.eventually(lambda: _used_mib(site, big) >= big.used_mib)
        assert site.pod("again")["status"]["containerStatuses"][0]["restartCount"] == 0

    def test_it_is_told_for_whom_it_waits(self, site: Site) -> None:
        """A process that does not end, as in a driver that hangs, is named; then it goes on."""
        old = _holding(site, ON_ONE_CARD)
        with _one_more_process(site, old):
            _make_anew(site, ON_ONE_CARD)
            messages: list[str] = making.eventually(
                lambda: [text for text in site.events("again") if "waits for" in text]
            )
            _starts(site, site.nodes[1], "meanwhile")  # it has not held up another
            assert not _runs_anew(site.pod("again"), old)
            ended = time.monotonic()
        _running_anew(site, old)
        assert time.monotonic() - ended < 4
        assert f"waits for pod default/again ({old['metadata']['uid']})" in messages[0]
        assert not any("delete the pod" in text for text in site.events("again"))


@contextlib.contextmanager
def _one_more_process(site: Site, pod: api.Object) -> Iterator[None]:
    """Something behind a pod's fence that outlives its container: a lock is all that is known."""
    name = f"{pod['metadata']['uid']}.main"
    region = tenants.read(site.root(pod["spec"]["nodeName"]), name).region_path
    with shared_files.mapped(region, layout.Region) as mapped:
        mapped.slots_used = max(mapped.slots_used, 9)
    with region.open("r+b") as held:
        assert locks.take(held.fileno(), 8)
        yield


def _holding(site: Site, big: Big) -> api.Object:
    """The pod, when it has its memory."""
    site.create(big.pod(site))
    (pod,) = site.running("again")
    making.eventually(lambda: _used_mib(site, big) >= big.used_mib)
    return pod


def _make_anew(site: Site, big: Big) -> None:
    site.client.delete("Pod", "again", grace_seconds=0)
    site.create(big.pod(site))


def _running_anew(site: Site, old: api.Object) -> None:
    making.eventually(
        lambda: _runs_anew(site.pod("again"), old),
        why=lambda: site.describe(["again"]),
    )


def _used_mib(site: Site, big: Big) -> int:
    rows = site.agents[big.node].report()["containers"]
    return max((row["used_bytes"] or 0 for row in rows), default=0) >> 20


def _runs_anew(pod: api.Object, old: api.Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    runs = bool(statuses) and "running" in statuses[0]["state"]
    return runs and pod["metadata"]["uid"] != old["metadata"]["uid"]


class TestAnotherAgent:
    """A second agent on one node: it has registered last, and so it has the resources."""

    @pytest.fixture
    def second(self, site: Site) -> Iterator[Agent]:
        """On the second node, started when the test says so."""
        node = site.nodes[1]
        made = Agent(node, site.plane.kubeconfig, name="second", options=sites.OPTIONS)
        yield made
        made.close()

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_the_survivor_has_the_resources_again(
        self, site: Site, second: Agent, how: str
    ) -> None:
        """It says that it was replaced, is not ready meanwhile, and registers when it is alone."""
        node = site.nodes[1]
        first = site.agent(node.name)
        before = _times_anew(first)
        second.start()
        making.eventually(lambda: not first.is_ready(), why=first.log)
        assert second.is_ready()
        assert "another plugin has registered" in first.log()
        making.eventually(lambda: "RegistrationTaken" in _reasons(node))
        time.sleep(3)  # the first asks the kubelet again after 1 and 3 s, and nothing shows that
        assert second.is_ready()
        assert _times_anew(first) == before

        (second.stop if how == "stop" else second.kill)()
        making.eventually(first.is_ready, why=first.log)
        making.eventually(lambda: _allocatable(node, MEMORY) == UNITS, why=first.log)
        making.eventually(lambda: "RegisteredAnew" in _reasons(node))
        _starts(site, node, "after")
        own = list(node.device_plugins.glob("partage-*.sock"))
        assert len({path.name.split("-")[-2] for path in own}) == len(own)  # one for each resource

    def test_the_newcomer_survives_the_end_of_the_first(self, site: Site, second: Agent) -> None:
        """With the first the kubelet drops whoever has the resource; that one registers anew.

        The first has closed the node before it went, and the second opens it.
        """
        node = site.nodes[1]
        second.start()
        site.agent(node.name).stop()
        making.eventually(lambda: _times_anew(second), why=second.log)
        making.eventually(second.is_ready, why=second.log)
        making.eventually(lambda: nodes.AWAY not in _annotations(node), why=second.log)
        making.eventually(lambda: _allocatable(node, MEMORY) == UNITS, why=second.log)
        _starts(site, node, "after")


def test_the_sockets_of_a_killed_agent_are_removed_by_the_next(site: Site) -> None:
    """A process that is killed cannot clean up."""
    node = site.nodes[1]
    agent = site.agent(node.name)
    agent.kill()
    left = set(node.device_plugins.glob("partage-*.sock"))
    assert left
    agent.start()
    own = set(node.device_plugins.glob("partage-*.sock"))
    assert own
    assert not own & left


def test_another_plugin_that_came_and_went(site: Site) -> None:
    """NVIDIA's, say: installed after the agent and removed again, it leaves the agent in place."""
    node = site.nodes[0]
    agent = site.agent(node.name)
    assert node.cards is not None
    making.eventually(lambda: _allocatable(node, WHOLE) == 2)
    with whole_cards.WholeCards(node, node.cards.uuids):
        making.eventually(lambda: not agent.is_ready(), why=agent.log)
        making.eventually(lambda: "RegistrationTaken" in _reasons(node))
    making.eventually(agent.is_ready, why=agent.log)
    making.eventually(lambda: _allocatable(node, WHOLE) == 2, why=agent.log)
    assert "another plugin replaced this agent" in agent.log(lines=400)


def _times_anew(agent: Agent) -> int:
    return agent.log(lines=1000).count("has to be registered again")


def _starts(site: Site, node: Node, name: str) -> None:
    """A pod starts; until the kubelet has seen the new registration it fails some for good."""
    container = objects.container(limits={MEMORY: 2})
    where = {"kubernetes.io/hostname": node.name}
    for i in range(10):
        site.create(objects.running_pod(f"{name}-{i}", container, nodeSelector=where))
        ended_or_runs = functools.partial(_ended_or_runs, site, f"{name}-{i}")
        if making.eventually(ended_or_runs) == "Running":
            return
        time.sleep(1)  # the kubelet is asked again until it has seen it
    raise AssertionError(site.describe([f"{name}-9"]))


def _ended_or_runs(site: Site, name: str) -> str:
    phase: str = site.pod(name)["status"].get("phase", "")
    return phase if phase in ("Running", "Failed") else ""


def _annotations(node: Node) -> dict[str, str]:
    metadata = node.plane.client.get("Node", node.name)["metadata"]
    return dict(metadata.get("annotations", {}))


def _allocatable(node: Node, resource: str) -> int:
    status = node.plane.client.get("Node", node.name)["status"]
    return int(status["allocatable"].get(resource, 0))


def _reasons(node: Node) -> set[str]:
    events = node.plane.client.list_all("Event")
    return {event["reason"] for event in events if event["involvedObject"].get("name") == node.name}
