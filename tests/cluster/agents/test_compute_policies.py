"""Compute policies on real nodes: what containers get of a card's time, under every policy.

The containers keep their card full with kernels of a millisecond, so that the number of launches
tells what each got of it. A share is never exceeded by more than two points in any window that is
measured; that it is also reached within two points takes a window in which the machine was not
busy with something else.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from cluster import api, objects
from cluster.node.node import Node
from partage.fence import usage
from partage.fence.store.limits import Mode
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

log = logging.getLogger(__name__)

POLICY, SLOTS = "partage.dev/compute-policy", "partage.dev/compute-slots"
PRIORITY, WEIGHT = "partage.dev/compute-priority", "partage.dev/compute-weight"
QGPU = "tke.cloud.tencent.com/qgpu-schedule-policy"
CORE, QGPU_MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
CGPU_WEIGHT, CGPU_HIGH = "ALIYUN_COM_GPU_SCHD_WEIGHT", "ALIYUN_COM_GPU_HIGH_PRIO"
VCUDA, VMEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
SOFT = "tencent.com/vcuda-core-limit"
MEMORY = {"aliyun.com/gpu-mem": 1}
BUSY = ("gpu", "busy", "3600")
KERNEL_S = 0.001
POINTS = 2.0
WINDOW_S = 2.0
WINDOWS = 8


class Card:
    """The one card of a node that is left to share, and what its containers get of it."""

    def __init__(self, site: Site, node: Node) -> None:
        self.site = site
        self.node = node
        self.labels: dict[str, str | None] = {}

    def label(self, **labels: str | None) -> None:
        """Set labels of the node; None removes one."""
        names = {"policy": POLICY, "slots": SLOTS, "priority": PRIORITY, "qgpu": QGPU}
        changes = {names[word]: value for word, value in labels.items()}
        self.labels |= changes
        self.site.client.patch("Node", self.node.name, {"metadata": {"labels": changes}})

    def run(
        self,
        name: str,
        limits: dict[str, int],
        *command: str,
        env: dict[str, str] | None = None,
        **annotations: str,
    ) -> None:
        """Run a pod on the card until the test ends; without a command it sleeps."""
        container = objects.container(*command, limits=limits)
        container["env"] = [{"name": key, "value": text} for key, text in (env or {}).items()]
        written = {f"partage.dev/{word.replace('_', '-')}": v for word, v in annotations.items()}
        self.site.create(self.pod(name, container, written))
        self.site.running(name)

    def pod(self, name: str, container: api.Object, annotations: dict[str, str]) -> api.Object:
        """A pod for the node."""
        selector = {"kubernetes.io/hostname": self.node.name}
        return objects.running_pod(
            name,
            container,
            annotations=annotations,
            nodeSelector=selector,
            terminationGracePeriodSeconds=0,
        )

    def used(self, name: str) -> usage.CardUsage:
        """What a pod's fence counts now."""
        uid = self.site.pod(name)["metadata"]["uid"]
        [card] = usage.snapshot(self.site.root(self.node.name), f"{uid}.main").cards
        return card

    def eventually(self, name: str, check: Callable[[usage.CardUsage], bool]) -> None:
        """Wait until the limits of a pod are so."""
        making.eventually(lambda: check(self.used(name)), why=lambda: str(self.used(name)))

    def got(self, *names: str) -> dict[str, float]:
        """What each got of the card in a window, in percent, by the kernels that it launched."""
        before = [(self.used(name).launches, time.monotonic()) for name in names]
        time.sleep(WINDOW_S)
        after = [(self.used(name).launches, time.monotonic()) for name in names]
        return {
            name: 100 * KERNEL_S * (end[0] - start[0]) / (end[1] - start[1])
            for name, start, end in zip(names, before, after, strict=True)
        }

    def gets(self, **expected: float) -> None:
        """Never more than this, and no less in a quiet window; after a moment to settle."""
        time.sleep(1)
        windows: list[dict[str, float]] = []
        while len(windows) < WINDOWS:
            got = self.got(*expected)
            windows.append(got)
            log.info("expected %s, got %s", expected, got)
            assert all(got[name] <= percent + POINTS for name, percent in expected.items()), windows
            if all(got[name] >= percent - POINTS for name, percent in expected.items()):
                return
        pytest.fail(f"expected {expected}, got {windows}")

    def becomes(self, check: Callable[[dict[str, float]], bool], *names: str) -> None:
        """Wait for a window that is so."""
        windows: list[dict[str, float]] = []

        def seen() -> bool:
            windows.append(self.got(*names))
            log.info("got %s", windows[-1])
            return check(windows[-1])

        making.eventually(seen, patience_s=WINDOWS * WINDOW_S, why=lambda: str(windows))


@pytest.fixture
def card(site: Site) -> Iterator[Card]:
    """On the node with two cards, one of which somebody has for themselves."""
    shared = Card(site, site.nodes[0])
    shared.run("alone", {"nvidia.com/gpu": 1})
    try:
        yield shared
    finally:
        shared.label(policy=None, slots=None, priority=None, qgpu=None)


def fixed(percent: float) -> Callable[[usage.CardUsage], bool]:
    """Held to a share."""
    return lambda now: now.mode is Mode.FIXED and now.share_millionths == int(percent * 10_000)


def test_qgpus_policies_are_switched_while_pods_run(card: Card) -> None:
    """Never above, then bursting and back when a neighbour works, then no limit at all."""
    card.label(qgpu="fs")
    card.run("one", {CORE: 30, QGPU_MEMORY: 2}, *BUSY)
    card.gets(one=30)
    card.label(qgpu="bs")
    card.eventually("one", lambda now: now.mode is Mode.BURST)
    card.becomes(lambda got: got["one"] > 85, "one")
    card.run("two", {CORE: 50, QGPU_MEMORY: 2}, *BUSY)
    card.becomes(lambda got: got["one"] < 55 and got["two"] > 45, "one", "two")
    card.label(qgpu="best-effort")
    for name in ("one", "two"):
        card.eventually(name, lambda now: now.mode is Mode.BEST_EFFORT)
    card.becomes(_halves, "one", "two")
    card.label(qgpu="fixed-share")
    card.gets(one=30, two=50)


def _halves(got: dict[str, float]) -> bool:
    """Nobody is held to a share; how the driver divides the card is its own affair."""
    return sum(got.values()) > 85 and all(35 < percent < 65 for percent in got.values())


def test_one_of_as_many_as_there_are(card: Card) -> None:
    """As tenants come and go; each has what the others were promised not to have."""
    card.label(policy="equal")
    for name in ("one", "two", "three"):
        card.run(name, MEMORY, *BUSY)
    card.eventually("one", fixed(33.3333))
    card.gets(one=33.3, two=33.3, three=33.3)
    card.site.gone("three")
    card.eventually("one", fixed(50))
    card.gets(one=50, two=50)
    card.site.gone("two")
    card.eventually("one", fixed(100))


def test_a_slot_is_as_large_for_a_tenant_that_is_alone(card: Card) -> None:
    """And the number of slots can change under it."""
    card.label(policy="slots", slots="8")
    card.run("one", MEMORY, *BUSY)
    card.gets(one=12.5)
    card.label(slots="4")
    card.eventually("one", fixed(25))
    card.gets(one=25)
    card.label(slots="none")
    card.eventually("one", fixed(4))


def test_weights(card: Card) -> None:
    """By cGPU's variable and by an annotation, which can change; one of no sense is 1, and told."""
    card.label(policy="weighted")
    card.run("one", MEMORY, *BUSY, env={CGPU_WEIGHT: "1"})
    card.run("two", MEMORY, *BUSY, env={CGPU_WEIGHT: "2"})
    card.gets(one=33.3, two=66.7)
    _annotate(card, "one", {WEIGHT: "6"})
    card.eventually("one", fixed(75))
    card.gets(one=75, two=25)
    _annotate(card, "one", {WEIGHT: "1000"})
    card.eventually("one", fixed(33.3333))
    making.told(card.site.plane, "one", "1000 is not between 1 and 25")


def _annotate(card: Card, pod: str, annotations: dict[str, str | None]) -> None:
    card.site.client.patch("Pod", pod, {"metadata": {"annotations": annotations}})


def test_gaias_soft_limit_with_its_ceiling(card: Card) -> None:
    """Alone up to the ceiling; beside a neighbour that works, that one has its share."""
    container = objects.container(*BUSY, limits={VCUDA: 20, VMEMORY: 8})
    card.site.create(card.pod("soft", container, {SOFT: "60"}))
    card.site.running("soft")
    card.gets(soft=60)
    card.run("hard", {VCUDA: 50, VMEMORY: 8}, *BUSY)
    card.becomes(lambda got: 18 <= got["soft"] <= 52 and abs(got["hard"] - 50) <= 2, "soft", "hard")


def test_online_before_offline(card: Card) -> None:
    """Offline work makes room for a program that comes and goes; its memory stays."""
    card.run("batch", _own(1000), *BUSY, qos="offline")
    card.run("serving", _own(1000), qos="online")
    card.eventually("batch", lambda now: now.launches > 100)
    before = card.used("batch")
    kernels = int(card.site.said("serving", "gpu", "busy", "2"))
    assert card.used("serving").launches == kernels > 1000
    card.becomes(lambda got: got["batch"] > 80, "batch")
    after = card.used("batch")
    assert after.throttled > before.throttled
    assert after.used_bytes == before.used_bytes


def test_offline_has_nothing_while_online_works(card: Card) -> None:
    """Both work all the time: the card is the online pod's."""
    card.label(policy="best-effort")  # so that launches are counted also when one is alone
    card.run("batch", _own(1000), *BUSY, qos="offline")
    card.run("serving", _own(1000), *BUSY, qos="online")
    card.eventually("serving", lambda now: now.launches > 100)
    card.becomes(lambda got: got["batch"] == 0 and got["serving"] > 85, "batch", "serving")
    card.site.gone("serving")
    card.becomes(lambda got: got["batch"] > 85, "batch")


def test_the_class_of_a_pod(card: Card) -> None:
    """Pods of a PriorityClass are offline because the administrator says so."""
    card.site.client.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": sites.OFFLINE_CLASS},
            "value": 0,
        }
    )
    try:
        container = objects.container(*BUSY, limits=MEMORY)
        pod = card.pod("batch", container, {})
        pod["spec"]["priorityClassName"] = sites.OFFLINE_CLASS
        card.site.create(pod)
        card.site.running("batch")
        card.run("serving", _own(1000), qos="online")
        card.eventually("batch", lambda now: now.yields)
        card.site.gone("serving")
        card.eventually("batch", lambda now: not now.yields)
    finally:
        card.site.client.delete("PriorityClass", sites.OFFLINE_CLASS)


def _own(memory_mib: int, **more: int) -> dict[str, int]:
    named = {f"partage.dev/{name.replace('_', '-')}": amount for name, amount in more.items()}
    return {"partage.dev/cards": 1, "partage.dev/memory-mib": memory_mib, **named}


def test_high_priority_up_to_its_part(card: Card) -> None:
    """cGPU's; where the node's label sets no part aside the variable has no effect."""
    card.label(policy="equal")
    card.run("high", MEMORY, env={CGPU_HIGH: "1"})
    card.run("low", MEMORY, *BUSY)
    card.eventually("high", fixed(50))
    card.label(priority="70")
    card.eventually("high", fixed(70))
    card.becomes(lambda got: got["low"] > 85, "low")  # the other one is idle
    with _working(card, "high"):
        card.becomes(lambda got: abs(got["high"] - 70) <= 2 and got["low"] >= 28, "high", "low")


@contextlib.contextmanager
def _working(card: Card, pod: str) -> Iterator[None]:
    """A pod works in the background, and is gone afterwards."""
    card.site.said(pod, "sh", "-c", "gpu busy 60 >/dev/null 2>&1 &")
    try:
        yield
    finally:
        card.site.gone(pod)


def test_a_policy_that_changes_while_no_agent_runs(card: Card) -> None:
    """What runs is held as before; the next agent computes the limits again from what is there."""
    card.label(policy="equal")
    card.run("one", MEMORY, *BUSY)
    card.run("two", MEMORY, *BUSY)
    card.eventually("one", fixed(50))
    agent = card.site.agent(card.node.name)
    agent.kill()
    card.label(policy="slots", slots="10")
    card.gets(one=50, two=50)
    agent.start()
    card.eventually("one", fixed(10))
    card.gets(one=10, two=10)
    agent.kill()
    agent.start()
    time.sleep(1)
    assert fixed(10)(card.used("one"))
    card.label(policy=None)
    card.eventually("one", lambda now: now.mode is Mode.NONE)
