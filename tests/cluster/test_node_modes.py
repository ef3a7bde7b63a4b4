"""T9k's modes on a real control plane: labels, taints, tolerations, whole cards, shares and nodes.

There are no kubelets: what containers get is seen in ``agents/test_modes_of_nodes.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import admitting, installing, making

T9K = "tensorstack.dev/nvidia-gpu"
CARDS, PERCENT, WHOLE_NODE = T9K, f"{T9K}-percent", f"{T9K}-node"
MODE = "sched.tensorstack.dev/node-alloc-mode"
TAINT = {"key": "sched.tensorstack.dev/xgn-mode", "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "dedicated", "value": "lab", "effect": "PreferNoSchedule"}
EVICTING = {"key": "slow", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
ANY = {"operator": "Exists"}
CARD_MIB = 16384
GROUP = {"scheduler.tensorstack.dev/group-name": "gpu-usage"}


@pytest.fixture
def plane(clean_cluster: ControlPlane, extender: extender_process.Extender) -> ControlPlane:
    """With an extender, and the configuration of kube-scheduler that is shipped."""
    extender.start()
    read = yaml.safe_load((installing.DEPLOY / "scheduler-config.yaml").read_text())
    read["clientConnection"] = {"kubeconfig": str(clean_cluster.kubeconfig), "qps": 500}
    (shipped,) = read["extenders"]
    shipped |= {"urlPrefix": f"{extender.url}/scheduler", "enableHTTPS": False}
    del shipped["tlsConfig"]
    clean_cluster.start_scheduler(yaml.safe_dump(read))
    return clean_cluster


@pytest.fixture
def completing(plane: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """And with admission."""
    with admitting.admission(plane, tmp_path):
        yield plane


def _node(name: str, mode: str = "", *, cards: int = 2, accelerator: str = "") -> api.Object:
    """A node as its agent would describe it, of no mode or of one, and with all resources."""
    labels = {MODE: mode, "sched.tensorstack.dev/accelerator": accelerator}
    written = [
        {"uuid": f"GPU-{name}-{i}", "index": i, "memory_mib": CARD_MIB} for i in range(cards)
    ]
    return objects.node(
        name,
        cards=0,
        resources={CARDS: cards, PERCENT: 100 * cards, WHOLE_NODE: 1},
        labels={label: value for label, value in labels.items() if value},
        annotations={"partage.dev/cards": json.dumps({"version": 1, "cards": written})},
    )


def _pod(name: str, limits: Mapping[str, str | int] | None = None, **changes: Any) -> api.Object:
    """A pod of T9k, as its documentation has it."""
    made = objects.pod(name, limits, scheduler="t9k-scheduler", labels=GROUP)
    made["spec"] |= changes
    return made


def _label(plane: ControlPlane, node: str, **labels: str | None) -> None:
    plane.client.patch("Node", node, {"metadata": {"labels": labels}})


def _mode(plane: ControlPlane, node: str, mode: str | None, label: str = MODE) -> None:
    _label(plane, node, **{label: mode})


def _taints(plane: ControlPlane, node: str) -> list[api.Object]:
    return list(plane.client.get("Node", node)["spec"].get("taints", []))


def _tainted(plane: ControlPlane, node: str, *expected: api.Object) -> None:
    """Wait until a node has these taints and no others."""
    making.eventually(
        lambda: _taints(plane, node) == list(expected), why=lambda: str(_taints(plane, node))
    )


def _plain(tolerations: list[api.Object]) -> list[api.Object]:
    """Tolerations as one would write taints."""
    return [{k: t[k] for k in ("key", "value", "effect") if k in t} for t in tolerations]


def _uuids(pod: api.Object) -> list[str]:
    return [share["uuid"] for c in making.grant(pod)["containers"] for share in c["shares"]]


def _placed(plane: ControlPlane, *made: api.Object) -> list[api.Object]:
    """Create pods one after the other, each when the one before is bound."""
    bound = []
    for pod in made:
        plane.client.create(pod)
        bound.append(making.bound(plane, pod["metadata"]["name"]))
    return bound


def _where(pod: api.Object) -> str:
    return str(pod["spec"]["nodeName"])


class TestTaints:
    """Claim: labelling xgn adds the taint, sgn removes it, and others survive."""

    def test_a_label_brings_it_and_another_takes_it_away(self, plane: ControlPlane) -> None:
        """Other taints stay, with all that they have."""
        node = _node("n1")
        node["spec"] = {"taints": [OTHER, EVICTING]}
        plane.client.create(node)
        for label in (MODE, "scheduler.tensorstack.dev/node-alloc-mode"):
            _mode(plane, "n1", "xgn", label)
            _tainted(plane, "n1", OTHER, EVICTING, TAINT)
            _mode(plane, "n1", "sgn", label)
            _tainted(plane, "n1", OTHER, EVICTING)
            _mode(plane, "n1", "xgn", label)
            _tainted(plane, "n1", OTHER, EVICTING, TAINT)
            _mode(plane, "n1", None, label)
            _tainted(plane, "n1", OTHER, EVICTING)

    def test_taints_that_others_set_later_stay(self, plane: ControlPlane) -> None:
        """The list has several writers."""
        plane.client.create(_node("n1", "xgn"))
        _tainted(plane, "n1", TAINT)
        plane.client.patch("Node", "n1", {"spec": {"taints": [OTHER, TAINT, EVICTING]}})
        _mode(plane, "n1", "sgn")
        _tainted(plane, "n1", OTHER, EVICTING)

    def test_one_set_by_hand_on_a_node_without_the_label_stays(self, plane: ControlPlane) -> None:
        """As does another vendor's node without one, whatever its mode."""
        by_hand = _node("by-hand")
        by_hand["spec"] = {"taints": [TAINT]}
        plane.client.create(by_hand)
        plane.client.create(_node("amd", "xgn", accelerator="amd-gpu"))
        _mode(plane, "by-hand", "sgn")
        _label(plane, "by-hand", other="label")
        plane.client.create(_node("last", "xgn"))
        _tainted(plane, "last", TAINT)  # so all that came before was looked at
        assert _taints(plane, "by-hand") == [TAINT]
        assert _taints(plane, "amd") == []

    def test_a_taint_that_somebody_removes_comes_back(self, plane: ControlPlane) -> None:
        """As long as the label is there."""
        plane.client.create(_node("n1", "xgn"))
        _tainted(plane, "n1", TAINT)
        plane.client.patch("Node", "n1", {"spec": {"taints": []}})
        _tainted(plane, "n1", TAINT)

    def test_labels_that_changed_while_nobody_looked_are_followed(
        self, plane: ControlPlane, extender: extender_process.Extender
    ) -> None:
        """What was put is known by the node itself, not by the process that put it."""
        plane.client.create_all([_node("was", "xgn"), _node("will-be", "sgn")])
        _tainted(plane, "was", TAINT)
        extender.kill()
        _mode(plane, "was", None)
        _mode(plane, "will-be", "xgn")
        extender.start()
        _tainted(plane, "was")
        _tainted(plane, "will-be", TAINT)


class TestPods:
    """Claims: who lands where."""

    def test_a_pod_with_cards_tolerates_without_asking_and_a_plain_pod_stays_away(
        self, completing: ControlPlane
    ) -> None:
        """The label of a group that does not exist does no harm to either."""
        plane = completing
        plane.client.create(_node("xgn", "xgn"))
        _tainted(plane, "xgn", TAINT)
        plane.client.create(_pod("plain"))
        (cards,) = _placed(plane, _pod("cards", {CARDS: 1}))
        assert TAINT in _plain(cards["spec"]["tolerations"])
        making.told(plane, "plain", "untolerated taint")
        plane.client.create(_node("open"))
        assert _where(making.bound(plane, "plain")) == "open"
        assert TAINT not in _plain(making.bound(plane, "plain")["spec"]["tolerations"])

    def test_two_cards_are_two_cards_of_an_exclusive_node(self, completing: ControlPlane) -> None:
        """Never of a shared one, where only percentages go."""
        plane = completing
        plane.client.create_all([_node("sgn", "sgn", cards=4), _node("xgn", "xgn")])
        _placed(plane, _pod("first", {CARDS: 1}))
        plane.client.create(_pod("cards", {CARDS: 2}))
        making.told(plane, "cards", "does not serve such GPU requests")
        plane.client.delete("Pod", "first", grace_seconds=0)
        cards = making.bound(plane, "cards")
        assert _where(cards) == "xgn"
        assert sorted(_uuids(cards)) == ["GPU-xgn-0", "GPU-xgn-1"]
        (share,) = _placed(plane, _pod("share", {PERCENT: 30}))
        assert _where(share) == "sgn"

    def test_a_percentage_never_lands_on_an_exclusive_node(self, completing: ControlPlane) -> None:
        """Even if it tolerates the taint."""
        plane = completing
        plane.client.create_all([_node("xgn", "xgn"), _node("sgn", "sgn", cards=1)])
        _placed(plane, _pod("all", {PERCENT: 100}))
        plane.client.create(_pod("share", {PERCENT: 30}, tolerations=[ANY]))
        making.told(plane, "share", "does not serve such GPU requests")
        plane.client.delete("Pod", "all", grace_seconds=0)
        assert _where(making.bound(plane, "share")) == "sgn"

    def test_percentages_share_a_card_while_they_fit(self, completing: ControlPlane) -> None:
        """60 and 40 do, 60 and 50 need two; 30 % of 16384 MiB are 4915."""
        plane = completing
        plane.client.create(_node("first", "sgn", cards=1))
        pods = _placed(plane, _pod("a", {PERCENT: 60}), _pod("b", {PERCENT: 40}))
        assert [_uuids(pod) for pod in pods] == [["GPU-first-0"]] * 2
        plane.client.create(_node("second", "sgn"))
        pods = _placed(plane, _pod("c", {PERCENT: 60}), _pod("d", {PERCENT: 50}))
        assert len({uuid for pod in pods for uuid in _uuids(pod)}) == 2
        (pod,) = _placed(plane, _pod("e", {PERCENT: 30}))
        (container,) = making.grant(pod)["containers"]
        assert container["shares"][0]["memory_mib"] == 4915


class TestWholeNodes:
    """Claim: a whole node is an otherwise empty one, and nothing else comes there."""

    def test_it_is_alone_there(self, completing: ControlPlane) -> None:
        """But for DaemonSets and kube-system, whoever comes first; until it ends."""
        plane = completing
        plane.client.create(_node("n1", "xgn"))
        plane.client.create(objects.pod("before", node_name="n1"))
        plane.client.create(_pod("node", {WHOLE_NODE: 1}))
        making.told(plane, "node", "anti-affinity")
        plane.client.create(_node("n2", "xgn"))
        plane.client.create(self._of_a_daemon_set("daemon-before", node_name="n2"))
        node = making.bound(plane, "node")
        assert _where(node) == "n2"
        assert sorted(_uuids(node)) == ["GPU-n2-0", "GPU-n2-1"]
        only: dict[str, Any] = {
            "nodeSelector": {"kubernetes.io/hostname": "n2"},
            "tolerations": [ANY],
        }
        plane.client.create(_pod("plain", **only))
        plane.client.create(_pod("cards", {CARDS: 1}, **only))
        daemon = self._of_a_daemon_set("daemon-after")
        system = _pod("system") | {"metadata": {"name": "system", "namespace": "kube-system"}}
        for pod in (daemon, system):
            pod["spec"] |= only
            plane.client.create(pod)
        making.bound(plane, "daemon-after")
        making.eventually(
            lambda: plane.client.get("Pod", "system", "kube-system")["spec"].get("nodeName")
        )
        making.told(plane, "plain", "anti-affinity")
        assert not making.node_of(plane, "cards")
        plane.client.delete("Pod", "node", grace_seconds=0)
        making.bound(plane, "plain")
        making.bound(plane, "cards")

    def test_an_affinity_of_the_user_holds_as_well(self, completing: ControlPlane) -> None:
        """It is added to."""
        plane = completing
        plane.client.create_all([_node("n1", "xgn"), _node("n2", "xgn")])
        wish = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        affinity = {
            "nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [wish]}]}}
        }
        (pod,) = _placed(plane, _pod("node", {WHOLE_NODE: 1}, affinity=affinity))
        assert _where(pod) == "n2"
        assert pod["spec"]["affinity"].keys() == {"nodeAffinity", "podAntiAffinity"}

    def test_two_containers_cannot_both_take_it(self, completing: ControlPlane) -> None:
        """A pod is on one node."""
        pod = _pod("twice", {WHOLE_NODE: 1})
        (container,) = pod["spec"]["containers"]
        pod["spec"]["containers"].append({**container, "name": "second"})
        with pytest.raises(api.ApiError, match="takes the whole node"):
            completing.client.create(pod)

    @staticmethod
    def _of_a_daemon_set(name: str, **more: Any) -> api.Object:
        """As its controller makes them: ``agents/test_modes_of_nodes.py`` sees a real one."""
        pod = objects.pod(name, **more)
        pod["metadata"]["labels"] = {"pod-template-generation": "1"}
        return pod


def test_a_new_label_is_enough_for_pods_that_wait(completing: ControlPlane) -> None:
    """Nothing is restarted: the extender decides by the labels that are there."""
    plane = completing
    plane.client.create_all([_node("n1", "xgn"), _node("n2", "sgn", cards=1)])
    _tainted(plane, "n1", TAINT)
    _placed(plane, _pod("all", {PERCENT: 100}))
    plane.client.create(_pod("share", {PERCENT: 30}))
    making.told(plane, "share", "untolerated taint")
    _mode(plane, "n1", "sgn")
    assert _where(making.bound(plane, "share")) == "n1"


def test_a_change_of_mode_leaves_pods_where_they_are(completing: ControlPlane) -> None:
    """What comes later is placed beside what they hold."""
    plane = completing
    plane.client.create(_node("n1", "xgn"))
    (cards,) = _placed(plane, _pod("cards", {CARDS: 1}))
    _mode(plane, "n1", "sgn")
    _tainted(plane, "n1")
    shares = _placed(plane, _pod("a", {PERCENT: 60}), _pod("b", {PERCENT: 40}))
    assert {uuid for pod in shares for uuid in _uuids(pod)} == {
        "GPU-n1-0",
        "GPU-n1-1",
    } - set(_uuids(cards))
    plane.client.create(_pod("c", {PERCENT: 10}))
    making.told(plane, "c", "node")
    plane.client.delete("Pod", "cards", grace_seconds=0)
    making.bound(plane, "c")
