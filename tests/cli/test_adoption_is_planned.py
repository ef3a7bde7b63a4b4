"""A take-over is planned from what was read of a cluster; and what has to come before is said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from partage.cli.cluster.adoption import adoptions, forms, objects, situation, systems
from partage.cli.cluster.adoption import node_checks as checks
from partage.cli.cluster.adoption.plans import (
    gpushare_objects,
    gpushare_plan,
    places,
    plan,
    vendor_plan,
)
from partage.cli.cluster.facts import cluster_facts
from partage.cli.cluster.facts import forms as doctors_forms
from partage.core import cards
from partage.dialects import nodes
from tests.cli.doctor import sound_cluster
from tests.cluster import originals

IMAGE = "registry.example/partage:0.1.0"
MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
replace = msgspec.structs.replace


def _node(name: str = "g1", *, ready: bool = True, **status: Any) -> doctors_forms.Node:
    amounts = {MEMORY: "32", COUNT: "2"}
    made = {
        "metadata": {"name": name, **status.pop("metadata", {})},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": str(ready)}],
            **status,
        },
    }
    return msgspec.convert(made, doctors_forms.Node)


def _pod(name: str, *, owner: str = "", node: str = "g1", **more: Any) -> forms.Pod:
    owners = [{"kind": "DaemonSet", "name": owner, "controller": True}] if owner else []
    made = {
        "metadata": {
            "name": name,
            "namespace": "kube-system" if owner else "default",
            "uid": f"uid-{name}",
            "ownerReferences": owners,
            "annotations": more.pop("annotations", {}),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"limits": more.pop("limits", {})}}],
        },
        "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            **more,
        },
    }
    return msgspec.convert(made, forms.Pod)


def _tenant(name: str, index: int, units: int, **more: Any) -> forms.Pod:
    written = {"ALIYUN_COM_GPU_MEM_IDX": str(index), "ALIYUN_COM_GPU_MEM_POD": str(units)}
    return _pod(name, annotations=written, limits={MEMORY: units}, **more)


def _gpushare(**changes: Any) -> situation.Situation:
    """gpushare on one node with one pod."""
    made = originals.gpushare(unit=changes.pop("unit", "GiB"))
    seen = situation.Situation(
        system=systems.SYSTEMS["gpushare"],
        plugins=tuple(one for one in made if one["kind"] == "DaemonSet"),
        deciders=tuple(one for one in made if one["kind"] == "Deployment"),
        nodes=(_node(),),
        pods=(_pod("plugin", owner=originals.PLUGIN), _tenant("a", 1, 3)),
        beside=("Service kube-system/gpushare-schd-extender",),
        present={objects.path(one): one for one in made if "rules" in one},
    )
    return replace(seen, **changes)


def _vendor(system: str, **changes: Any) -> situation.Situation:
    """HAMi or NVIDIA's plugin on one node, and Partage beside it, ready to begin."""
    of_systems = {"hami": originals.hami, "nvidia": originals.nvidia}
    made = of_systems[system](**changes.pop("made", {}))
    seen = situation.Situation(
        system=systems.SYSTEMS[system],
        plugins=tuple(one for one in made if one["kind"] == "DaemonSet"),
        deciders=tuple(one for one in made if one["kind"] == "Deployment"),
        webhooks=tuple(one for one in made if "webhooks" in one),
        agents=(_agents("--dialects=partage,aliyun,t9k"),),
        nodes=(_node(),),
        facts=sound_cluster.SOUND,
    )
    plugin = seen.plugins[0]["metadata"]["name"]
    return replace(replace(seen, pods=(_pod("plugin", owner=plugin),)), **changes)


def _agents(*flags: str, selector: dict[str, str] | None = None) -> objects.Object:
    chosen = {"partage.dev/agent": "enabled"} if selector is None else selector
    container = {"name": "agent", "image": IMAGE, "args": ["partage", "agent", *flags]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "partage-agent", "namespace": "partage-system"},
        "spec": {"template": {"spec": {"containers": [container], "nodeSelector": chosen}}},
    }


def _planned(seen: situation.Situation) -> plan.Plan:
    if seen.system.name == systems.GPUSHARE:
        return gpushare_plan.made(seen, image=IMAGE)
    return vendor_plan.made(seen)


class TestGpushare:
    """In gpushare's place, under its names."""

    def test_the_steps_and_who_has_no_fence(self) -> None:
        """The extender before the plugin, each node by itself, and the rights trimmed last."""
        made = _planned(_gpushare())
        assert [step.name for step in made.adoption.steps] == [
            *("rights", "extender", "device-plugin", "node g1", "finish")
        ]
        assert made.tenants == (plan.Tenants("g1", {MEMORY: 32, COUNT: 2}, 1, ("default/a",)),)
        assert made.first == ()

    def test_what_the_cluster_chose_stays(self) -> None:
        """Names, selectors, nodes, tolerations, port and unit; the rest is the manifest's."""
        seen = _gpushare(unit="MiB")
        (decider,), (plugin,) = seen.deciders, seen.plugins
        decider["spec"]["template"]["spec"]["containers"][0]["env"][1]["value"] = "1234"
        plugin["spec"]["template"]["spec"]["runtimeClassName"] = "nvidia"
        extender = gpushare_objects.extender(decider, IMAGE)
        agent = gpushare_objects.agent(plugin, IMAGE, by_hand=True)
        for ours, theirs in ((extender, decider), (agent, plugin)):
            assert ours["metadata"] == theirs["metadata"]
            assert ours["spec"]["selector"] == theirs["spec"]["selector"]
            labels = theirs["spec"]["template"]["metadata"]["labels"]
            assert ours["spec"]["template"]["metadata"]["labels"] == labels
            for field in ("nodeSelector", "tolerations", "runtimeClassName"):
                before = objects.pod_spec(theirs).get(field)
                assert objects.pod_spec(ours).get(field) == before, field
            (container,) = objects.pod_spec(ours)["containers"]
            assert container["image"] == IMAGE
        (container,) = objects.pod_spec(extender)["containers"]
        assert container["readinessProbe"]["httpGet"]["port"] == 1234
        (container,) = objects.pod_spec(agent)["containers"]
        assert container["command"].count("--memory-unit=MiB") == 1
        assert "--memory-unit=GiB" not in container["command"]
        assert agent["spec"]["updateStrategy"] == {"type": "OnDelete"}

    def test_an_account_has_the_rights_of_both_until_the_end(self) -> None:
        """Else gpushare's plugin would fail on the nodes that were not moved yet."""
        steps = {step.name: step for step in _planned(_gpushare()).adoption.steps}
        first, last = steps["rights"], steps["finish"]
        assert isinstance(first, adoptions.Step)
        assert isinstance(last, adoptions.Step)
        assert "nodes/proxy" in _rules(first.forward)
        assert "nodes/proxy" not in _rules(last.forward)
        assert "nodes/proxy" in _rules(last.backward)

    def test_two_that_decide_are_one_too_many(self) -> None:
        """Partage's extender is there already."""
        facts = sound_cluster.SOUND
        made = _planned(_gpushare(facts=facts))
        assert "would grant the same cards" in made.first[0]

    def test_nothing_to_take_over(self) -> None:
        """The error says what was looked for."""
        with pytest.raises(gpushare_plan.CannotPlan, match="no gpushare runs here"):
            _planned(_gpushare(plugins=(), deciders=()))

    def test_a_plugin_that_is_not_well_comes_first(self) -> None:
        """What its node offers is not known, so nothing could be compared."""
        ill = _pod("plugin", owner=originals.PLUGIN, conditions=[])
        made = _planned(_gpushare(pods=(ill,)))
        assert "is not ready" in made.first[0]

    def test_a_node_that_is_away_is_left(self) -> None:
        """It has its step, for when it is back."""
        made = _planned(_gpushare(nodes=(_node(ready=False),)))
        assert made.left == (places.Left("g1", "its kubelet is not ready"),)
        assert [place.name for place in made.adoption.places] == ["g1"]

    def test_it_is_read_back_as_it_was_kept(self) -> None:
        """And a record of another version is not."""
        adoption = _planned(_gpushare()).adoption
        text = adoptions.encode(adoption)
        assert adoptions.decode(text) == adoption
        with pytest.raises(adoptions.Unreadable, match="version 2"):
            adoptions.decode(text.replace(b'"version":1', b'"version":2', 1))


class TestVendors:
    """HAMi and NVIDIA's plugin beside a Partage that is there."""

    @pytest.mark.parametrize(
        ("system", "names"),
        [
            ("hami", ["device-plugin", "node g1", "webhook", "scheduler"]),
            ("nvidia", ["device-plugin", "node g1"]),
        ],
    )
    def test_the_steps(self, system: str, names: list[str]) -> None:
        """Nodes move first; who decides for HAMi goes when none is left."""
        made = _planned(_vendor(system))
        assert [step.name for step in made.adoption.steps] == names
        assert made.first == ()

    def test_the_operator_is_asked_by_its_label(self) -> None:
        """It would put its DaemonSet back; its label of the node it obeys."""
        made = _planned(_vendor("nvidia", made={"operated": True}))
        (step,) = made.adoption.steps
        assert isinstance(step, adoptions.NodeStep)
        assert step.labels["nvidia.com/gpu.deploy.device-plugin"] == "false"
        assert step.place.labels == {
            "partage.dev/agent": None,
            "nvidia.com/gpu.deploy.device-plugin": None,
        }

    def test_a_plugin_of_its_own_manifest_keeps_its_other_terms(self) -> None:
        """Each of them is narrowed: they are alternatives."""
        seen = _vendor("nvidia")
        terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchFields": []}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        objects.pod_spec(seen.plugins[0])["affinity"] = {"nodeAffinity": required}
        step = _planned(seen).adoption.steps[0]
        assert isinstance(step, adoptions.Step)
        (change,) = step.forward
        assert isinstance(change, adoptions.Put)
        affinity = objects.pod_spec(change.object)["affinity"]["nodeAffinity"]
        (narrowed,) = affinity.values()
        keys = [
            [rule["key"] for rule in term["matchExpressions"]]
            for term in narrowed["nodeSelectorTerms"]
        ]
        assert keys == [["a", "partage.dev/agent"], ["partage.dev/agent"]]

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"agents": ()}, "Partage is not installed: helm install partage"),
            ({"agents": (_agents(),)}, "would offer nvidia.com/gpu"),
            ({"agents": (_agents("--dialects", "nvidia"),)}, "would offer nvidia.com/gpu"),
            (
                {"agents": (_agents("--dialects=t9k", selector={"gpu": "on"}),)},
                "nodes cannot be moved by it",
            ),
            (
                {
                    "facts": replace(
                        sound_cluster.SOUND,
                        scheduler=(
                            cluster_facts.SchedulerConfiguration(
                                label="ConfigMap s",
                                managed=(cluster_facts.Managed("nvidia.com/gpu", ignored=False),),
                            ),
                        ),
                    )
                },
                "lets Partage decide about nvidia.com/gpu on all nodes",
            ),
            (
                {"facts": replace(sound_cluster.SOUND, programs=(), leases=())},
                "nobody decides about cards",
            ),
        ],
    )
    def test_what_has_to_come_before(self, changes: dict[str, Any], text: str) -> None:
        """Two systems would offer the same resource, or nobody would decide."""
        made = _planned(_vendor("hami", **changes))
        assert any(text in said for said in made.first), made.first

    def test_cards_that_are_shared_in_time_are_left_until_nobody_has_them(self) -> None:
        """The kubelet's record does not tell which card it is."""
        node = _node(metadata={"labels": {"nvidia.com/gpu.sharing-strategy": "time-slicing"}})
        seen = _vendor("nvidia", nodes=(node,))
        assert _planned(seen).left == ()
        (plugin,) = seen.pods
        busy = replace(seen, pods=(plugin, _pod("a", limits={"nvidia.com/gpu": 1})))
        (left,) = _planned(busy).left
        assert "drain it" in left.why


class TestNodes:
    """What is looked at on a node that was moved."""

    adoption = _planned(_gpushare()).adoption
    place = adoption.places[0]

    def _moved(self, *sizes_gib: int, **allocatable: str) -> doctors_forms.Node:
        made = [
            cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=size * 1024)
            for i, size in enumerate(sizes_gib)
        ]
        amounts = {MEMORY: str(sum(sizes_gib)), COUNT: str(len(sizes_gib)), **allocatable}
        metadata = {"annotations": {nodes.CARDS: nodes.encode(made)}}
        return _node(metadata=metadata, allocatable=amounts)

    def test_it_offers_what_it_did(self) -> None:
        """A node with nothing yet, or half of it, is waited for."""
        assert checks.amounts(self.adoption, self.place, self._moved(16, 16)) == ""
        less = checks.amounts(self.adoption, self.place, self._moved(16, 8, **{MEMORY: "16"}))
        assert "offers aliyun.com/gpu-count: 2, aliyun.com/gpu-mem: 16, and offered" in less

    def test_unequal_cards_are_counted_as_they_are(self) -> None:
        """gpushare counted all as large as the first."""
        assert checks.amounts(self.adoption, self.place, self._moved(16, 8)) == ""

    def test_a_card_that_is_lost_stops_it(self) -> None:
        """A pod on it would count on all others; one on the other card is as before."""
        moved = self._moved(16, 16)
        same, other = _tenant("a", 1, 3), _tenant("a", 0, 3)
        assert checks.read_back(self.adoption, self.place, moved, [same, other]) == ""
        lost = self._moved(16)
        assert "counts on all" in checks.read_back(self.adoption, self.place, lost, [same])
        assert checks.read_back(self.adoption, self.place, lost, [other]) == ""

    def test_a_pod_that_is_read_otherwise_stops_it(self) -> None:
        """HAMi had called its card the second, and the agent calls it the first."""
        uuids = ["GPU-0", "GPU-1"]
        register = [
            {"id": uuid, "index": i, "count": 10, "devmem": 16384, "type": "NVIDIA", "health": True}
            for i, uuid in enumerate(uuids)
        ]
        text = msgspec.json.encode(register).decode()
        hami = _node(metadata={"annotations": {"hami.io/node-nvidia-register": text}})
        adoption = _planned(_vendor("hami", nodes=(hami,))).adoption
        written = {
            "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,30:;",
            "hami.io/vgpu-node": "g1",
        }
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
        pod = _pod("a", annotations=written, limits=limits)
        indexes = {"same": (0, 1), "swapped": (1, 0)}
        said = {
            name: checks.read_back(
                adoption,
                adoption.places[0],
                _published(dict(zip(uuids, order, strict=True))),
                [pod],
            )
            for name, order in indexes.items()
        }
        assert said == {
            "same": "",
            "swapped": "default/a: it had 3000 MiB of card 1, and is read as 3000 MiB of card 0",
        }

    def test_pods_that_failed_and_pods_that_wait(self) -> None:
        """Those that were bound and not accepted have to start before."""
        failed = _tenant("a", 1, 3, phase="Failed", reason="UnexpectedAdmissionError")
        text = checks.ran_on({failed.metadata.uid: failed}, [failed])
        assert text == "pod default/a failed meanwhile (UnexpectedAdmissionError)"
        assert checks.ran_on({}, [failed]) == ""
        waiting = _tenant("b", 1, 3, startTime="")
        assert "default/b bound there" in checks.unstarted([waiting, _tenant("a", 1, 3)])

    def test_who_the_old_system_would_not_know(self) -> None:
        """A pod without gpushare's annotations, unless it was there before gpushare left."""
        before, recorded = _pod("a", limits={MEMORY: 3}), _tenant("b", 0, 3)
        assert checks.strangers(self.adoption, self.place, [before, recorded]) == ""
        stranger = _pod("c", limits={MEMORY: 3})
        text = checks.strangers(self.adoption, self.place, [recorded, stranger])
        assert "gpushare would not know which cards pod default/c has" in text


def _published(indexes: dict[str, int]) -> doctors_forms.Node:
    """A node whose agent gives its cards these indexes."""
    made = [cards.Card(uuid=uuid, index=i, memory_mib=16384) for uuid, i in indexes.items()]
    return _node(metadata={"annotations": {nodes.CARDS: nodes.encode(made)}})


def _rules(changes: tuple[adoptions.Change, ...]) -> str:
    made = [change.object for change in changes if isinstance(change, adoptions.Put)]
    return str(
        [
            one["rules"]
            for one in made
            if one["metadata"]["name"].endswith("plugin") and "rules" in one
        ]
    )
