"""What cGPU, qGPU, GaiaGPU and Elastic GPU promise of placement, on a real control plane.

There are no kubelets: what containers get is seen in ``agents/test_what_vendors_promise.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from partage.core import cards
from partage.dialects import nodes
from tests.cluster import admitting, making

GIB = 1024
CGPU_MODE, CGPU_PLACEMENT = "ack.node.gpu.schedule", "ack.node.gpu.placement"
MEMORY, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
QGPU = "tke.cloud.tencent.com/qgpu-"
CLASS = "tke.cloud.tencent.com/app-class"
VCUDA = "tencent.com/vcuda-"
ELASTIC = "elasticgpu.io/gpu-"
NOT_SERVED = "does not serve such GPU requests"


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender, tmp_path: Path
) -> Iterator[ControlPlane]:
    """With an extender, admission and kube-scheduler, which leaves all counting to the extender."""
    extender.start()
    making.schedule(clean_cluster, extender.port, advertised=())
    with admitting.admission(clean_cluster, tmp_path):
        yield clean_cluster


def _node(
    name: str,
    *sizes_gib: int,
    labels: Mapping[str, str] | None = None,
    links: Mapping[frozenset[int], cards.Link] | None = None,
) -> api.Object:
    """A node as its agent describes it."""
    made = [
        cards.Card(
            uuid=f"GPU-{name}-{i}",
            index=i,
            memory_mib=size * GIB,
            links=tuple(
                (f"GPU-{name}-{j}", int(links[frozenset((i, j))]))
                for j in range(len(sizes_gib))
                if j != i
            )
            if links
            else (),
        )
        for i, size in enumerate(sizes_gib)
    ]
    return objects.node(name, cards=0, labels=labels, annotations={nodes.CARDS: nodes.encode(made)})


def _placed(plane: ControlPlane, *made: api.Object) -> list[api.Object]:
    """Create pods one after the other, each when the one before is bound."""
    bound = []
    for pod in made:
        plane.client.create(pod)
        bound.append(making.bound(plane, pod["metadata"]["name"]))
    return bound


def _where(pod: api.Object) -> str:
    return str(pod["spec"]["nodeName"])


def _shares(pod: api.Object) -> dict[int, tuple[int, int]]:
    """Memory in MiB and percent of compute, by the index of the card."""
    (container,) = making.grant(pod)["containers"]
    return {s["index"]: (s["memory_mib"], s["compute_percent"]) for s in container["shares"]}


def _refusal(plane: ControlPlane, pod: api.Object) -> str:
    with pytest.raises(api.ApiError) as caught:
        plane.client.create(pod)
    return str(caught.value)


class TestCgpu:
    """Aliyun's modes of nodes."""

    def test_memory_and_compute_go_to_nodes_that_isolate_both(self, plane: ControlPlane) -> None:
        """Of nodes with a mode; where those are full, the pod waits."""
        modes = ("cgpu", "share", "mps", "default", "core_mem")
        plane.client.create_all(
            _node(mode.replace("_", "-"), 16, labels={CGPU_MODE: mode}) for mode in modes
        )
        (pod,) = _placed(plane, objects.pod("p", {MEMORY: 2, CORE: 30}))
        assert _where(pod) == "core-mem"
        assert _shares(pod) == {0: (2048, 30)}
        plane.client.create(objects.pod("second", {MEMORY: 2, CORE: 80}))
        making.told(plane, "second", NOT_SERVED)

    def test_a_label_divides_memory_among_cards_of_one_node(self, plane: ControlPlane) -> None:
        """8 GiB on two cards are 4 on each; what does not divide is refused, and so is compute."""
        plane.client.create_all([_node("one", 16), _node("two", 16, 16)])
        count = {"aliyun.com/gpu-count": "2"}
        (pod,) = _placed(plane, objects.pod("p", {MEMORY: 8}, labels=count))
        assert _where(pod) == "two"
        assert _shares(pod) == {0: (4096, 0), 1: (4096, 0)}
        odd = _refusal(plane, objects.pod("odd", {MEMORY: 9}, labels=count))
        assert "9" in odd
        assert "aliyun.com/gpu-mem" in odd
        assert CORE in _refusal(plane, objects.pod("core", {MEMORY: 8, CORE: 30}, labels=count))

    def test_each_node_has_its_own_policy_for_cards(self, plane: ControlPlane) -> None:
        """By its label: two pods share a card, or have one each."""
        for policy, used in (("binpack", 1), ("spread", 2)):
            plane.client.create(_node(policy, 16, 16, labels={CGPU_PLACEMENT: policy}))
            made = [objects.pod(f"{policy}-{i}", {MEMORY: 2}) for i in range(2)]
            for pod in made:
                pod["spec"]["nodeSelector"] = {CGPU_PLACEMENT: policy}
            assert len({card for pod in _placed(plane, *made) for card in _shares(pod)}) == used

    @pytest.mark.parametrize("first", ["memory", "both"])
    def test_memory_alone_and_memory_with_compute_never_share_a_node(
        self, plane: ControlPlane, first: str
    ) -> None:
        """Whoever comes first, not even on another card; the second comes when the first goes."""
        plane.client.create(_node("n1", 16, 16, labels={CGPU_MODE: "core_mem"}))
        limits = {"memory": {MEMORY: 2}, "both": {MEMORY: 2, CORE: 30}}
        (second,) = limits.keys() - {first}
        _placed(plane, objects.pod(first, limits[first]))
        plane.client.create(objects.pod(second, limits[second]))
        making.told(plane, second, "pods that may not run beside this one")
        plane.client.delete("Pod", first, grace_seconds=0)
        making.bound(plane, second)


class TestQgpu:
    """Tencent's shares, whole cards and classes."""

    def test_a_share_is_percent_and_gib(self, plane: ControlPlane) -> None:
        """In steps of five."""
        plane.client.create(_node("n1", 16))
        (pod,) = _placed(plane, objects.pod("p", {f"{QGPU}core": 30, f"{QGPU}memory": 5}))
        assert _shares(pod) == {0: (5 * GIB, 30)}
        refused = _refusal(plane, objects.pod("odd", {f"{QGPU}core": 33, f"{QGPU}memory": 5}))
        assert "33 is not a multiple of 5; write 30 or 35" in refused

    def test_a_hundred_is_a_whole_card_beside_no_share(self, plane: ControlPlane) -> None:
        """It waits for a card that nobody uses."""
        plane.client.create(_node("n1", 16))
        _placed(plane, objects.pod("share", {f"{QGPU}core": 30, f"{QGPU}memory": 5}))
        plane.client.create(objects.pod("whole", {f"{QGPU}core": 100}))
        making.told(plane, "whole", "no GPU is unused")
        plane.client.delete("Pod", "share", grace_seconds=0)
        assert _shares(making.bound(plane, "whole")) == {0: (16 * GIB, 100)}

    @pytest.mark.parametrize(
        ("core", "memory", "slice_of_card"), [(160, 60, (30 * GIB, 80)), (121, 31, (15 * GIB, 60))]
    )
    def test_more_than_a_card_is_slices_of_two(
        self, plane: ControlPlane, core: int, memory: int, slice_of_card: tuple[int, int]
    ) -> None:
        """Rounded down, on each of them."""
        plane.client.create(_node("n1", 40, 40))
        (pod,) = _placed(plane, objects.pod("p", {f"{QGPU}core": core, f"{QGPU}memory": memory}))
        assert _shares(pod) == {0: slice_of_card, 1: slice_of_card}

    def test_online_and_offline_are_on_different_cards_while_possible(
        self, plane: ControlPlane
    ) -> None:
        """On one card they meet, as there is no other."""
        online = {f"{QGPU}memory": 2}
        offline = {f"{QGPU}memory": 2, f"{QGPU}core-greedy": 30}
        for name, sizes in (("two", (16, 16)), ("one", (16,))):
            plane.client.create(_node(name, *sizes, labels={"cards": name}))
            made = [
                objects.pod(f"{name}-{word}", limits, annotations={CLASS: word})
                for word, limits in (("online", online), ("offline", offline))
            ]
            for pod in made:
                pod["spec"]["nodeSelector"] = {"cards": name}
            used = {card for pod in _placed(plane, *made) for card in _shares(pod)}
            assert len(used) == len(sizes)

    def test_what_the_classes_do_not_have_is_refused(self, plane: ControlPlane) -> None:
        """A greedy share above a card, and a fixed share for an online pod."""
        greedy = {f"{QGPU}core-greedy": 120, f"{QGPU}memory": 2}
        fixed = {f"{QGPU}core": 30, f"{QGPU}memory": 2}
        too_much = objects.pod("greedy", greedy, annotations={CLASS: "offline"})
        assert "120 is not between 1 and 100" in _refusal(plane, too_much)
        online = objects.pod("online", fixed, annotations={CLASS: "online"})
        assert f"limits[{QGPU}core]" in _refusal(plane, online)

    def test_the_seventeenth_on_a_card_waits(self, plane: ControlPlane) -> None:
        """However much is free."""
        plane.client.create(_node("n1", 80))
        limits = {f"{QGPU}core": 5, f"{QGPU}memory": 1}
        _placed(plane, *(objects.pod(f"p{i}", limits) for i in range(16)))
        plane.client.create(objects.pod("seventeenth", limits))
        making.told(plane, "seventeenth", "no GPU accepts another tenant")

    def test_its_configuration_of_the_scheduler_is_served(
        self, plane: ControlPlane, extender: extender_process.Extender
    ) -> None:
        """With the verbs and the resources that its add-on writes."""
        own = {
            "urlPrefix": f"{extender.url}/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "priorities",
            "bindVerb": "bind",
            "weight": 1,
            "enableHTTPS": False,
            "nodeCacheCapable": True,
            "managedResources": [
                {"name": f"{QGPU}{word}", "ignoredByScheduler": True} for word in ("core", "memory")
            ],
        }
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(plane.kubeconfig)},
            "extenders": [own],
        }
        plane.start_scheduler(yaml.safe_dump(configuration))
        plane.client.create_all([_node("n1", 16), _node("n2", 16)])
        pod = objects.pod("p", {f"{QGPU}core": 30, f"{QGPU}memory": 5})
        preference: dict[str, Any] = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
        pod["spec"]["affinity"] = {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": preference}
                ]
            }
        }
        (bound,) = _placed(plane, pod)
        assert _shares(bound) == {0: (5 * GIB, 30)}
        assert extender.metric('partage_verb_seconds_count{verb="prioritize"}') > 0


class TestGaiaGpu:
    """Tkestack's vcuda."""

    def test_a_card_and_a_half_is_refused(self, plane: ControlPlane) -> None:
        """Below a card or whole cards; with what to write."""
        refused = _refusal(plane, objects.pod("p", {f"{VCUDA}core": 150, f"{VCUDA}memory": 4}))
        assert f"limits[{VCUDA}core]" in refused
        assert "150" in refused
        assert "100 or 200" in refused

    def test_whole_cards_are_those_that_are_linked_best(self, plane: ControlPlane) -> None:
        """Its own fixture: pairs on one switch, four below one bridge, two across the socket."""
        pairs = {frozenset((i, j)): _near(i, j) for i in range(6) for j in range(6) if i != j}
        plane.client.create(_node("n1", *[16] * 6, links=pairs))
        three, pair = _placed(
            plane,
            objects.pod("three", {f"{VCUDA}core": 300}),
            objects.pod("pair", {f"{VCUDA}core": 200}),
        )
        assert list(_shares(three)) == [0, 1, 2]
        assert list(_shares(pair)) == [4, 5]


def _near(first: int, second: int) -> cards.Link:
    if first // 2 == second // 2:
        return cards.Link.PIX
    return cards.Link.PHB if max(first, second) < 4 else cards.Link.NODE


class TestElasticGpu:
    """What Elastic GPU's scheduler promises of containers; claims have tests of their own."""

    def test_memory_lands_on_one_card_which_is_written_down(self, plane: ControlPlane) -> None:
        """By the container's name; a label and an annotation say that it is placed."""
        plane.client.create(_node("n1", 16, 16))
        (pod,) = _placed(plane, objects.pod("p", {f"{ELASTIC}memory": 256}))
        [(index, share)] = _shares(pod).items()
        assert share == (256, 0)
        meta = pod["metadata"]
        container = pod["spec"]["containers"][0]["name"]
        assert meta["annotations"][f"elasticgpu.io/container-{container}"] == str(index)
        assert meta["annotations"]["elasticgpu.io/assumed"] == "true"
        assert meta["labels"]["elasticgpu.io/assumed"] == "true"

    def test_two_hundred_are_two_cards_that_nobody_uses(self, plane: ControlPlane) -> None:
        """A card of which a part is taken is not one of them: then the pod waits."""
        plane.client.create(_node("n1", 16, 16, 16))
        (_, pod) = _placed(
            plane,
            objects.pod("part", {f"{ELASTIC}memory": 256}),
            objects.pod("p", {f"{ELASTIC}core": 200}),
        )
        container = pod["spec"]["containers"][0]["name"]
        written = pod["metadata"]["annotations"][f"elasticgpu.io/container-{container}"]
        assert written == ",".join(map(str, sorted(_shares(pod))))
        assert len(_shares(pod)) == 2
        plane.client.create(objects.pod("next", {f"{ELASTIC}core": 100}))
        making.told(plane, "next", "no GPU is unused")
        plane.client.delete("Pod", "part", grace_seconds=0)
        assert len(_shares(making.bound(plane, "next"))) == 1

    def test_core_and_memory_go_together_in_one_container(self, plane: ControlPlane) -> None:
        """Which the original cannot do."""
        plane.client.create(_node("n1", 16))
        (pod,) = _placed(plane, objects.pod("p", {f"{ELASTIC}core": 30, f"{ELASTIC}memory": 256}))
        assert _shares(pod) == {0: (256, 30)}

    def test_filter_and_priorities_answer_the_same_twice(
        self, plane: ControlPlane, extender: extender_process.Extender
    ) -> None:
        """In the words of the protocol, and with scores from 0 to 10."""
        plane.stop_scheduler()
        plane.client.create_all([_node("n1", 16), _node("n2", 8)])
        plane.client.create(objects.pod("p", {f"{ELASTIC}memory": 9000}))
        question = {"Pod": plane.client.get("Pod", "p"), "NodeNames": ["n1", "n2"]}

        def filtered() -> Any:
            return extender.post("/scheduler/filter", question)

        making.eventually(lambda: filtered()["NodeNames"] == ["n1"])
        assert filtered() == filtered()
        scores = extender.post("/scheduler/priorities", question)
        assert scores == extender.post("/scheduler/priorities", question)
        assert [score["Host"] for score in scores] == ["n1"]
        assert all(0 <= score["Score"] <= 10 for score in scores)
