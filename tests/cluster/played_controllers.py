"""Controllers, kubelets and plugins that a test plays, on a real API server without any.

So a test says when they act, and every state in which a take-over may be stopped can be had in
turn. What must never be is looked for at each move: two plugins on a node, or an open node without
one.
"""

from __future__ import annotations

import msgspec

from cluster import api
from partage.core import cards, grants
from partage.dialects import bound_pods, contract, grant_record, nodes, pods
from partage.dialects.nodes import CARDS

MARK, GRANT = "partage.dev/adopted", "partage.dev/grant"
_AGENT = "partage-agent"
_READY = [{"type": "Ready", "status": "True"}]


class Player:
    """Plays them for some nodes of two cards of 16 GiB."""

    def __init__(self, client: api.Api, names: list[str]) -> None:
        self.client = client
        self.offences: list[str] = []
        self._names = names
        self._made = 0
        self._cluster = _Cluster(client, [])

    def settle(self) -> None:
        """All of them act until there is nothing to do."""
        acts = (self._deployments, self._daemon_sets, self._records, self._nodes)
        busy = True
        while busy:
            self._cluster = _Cluster(self.client, self._names)
            self._look()
            acted = [act() for act in acts]
            busy = any(acted)

    def uuid(self, node: str, index: int) -> str:
        """Of a card."""
        return f"GPU-{node}-{index}"

    def _deployments(self) -> bool:
        changed = False
        for made in self._cluster.deployments:
            count, generation = made["spec"]["replicas"], made["metadata"]["generation"]
            status = {
                "observedGeneration": generation,
                "replicas": count,
                "updatedReplicas": count,
                "readyReplicas": count,
                "availableReplicas": count,
            }
            changed |= self._state(made, {name: n for name, n in status.items() if n})
        return changed

    def _state(self, made: api.Object, status: api.Object) -> bool:
        if made.get("status", {}) == status:
            return False
        meta = made["metadata"]
        gone = dict.fromkeys(made.get("status", {}))
        change = {"status": {**gone, **status}}
        where = {"namespace": meta["namespace"], "subresource": "status"}
        self.client.patch("Deployment", meta["name"], change, **where)
        return True

    def _daemon_sets(self) -> bool:
        made, of_cluster = self._cluster.daemon_sets, self._cluster.nodes
        acted = [self._on_node(one, node) for one in made for node in of_cluster]
        return any(acted)

    def _on_node(self, daemon_set: api.Object, node: api.Object) -> bool:
        """What its controller and the kubelet would do about one node."""
        name = node["metadata"]["name"]
        present = [pod for pod in self._cluster.serving(node) if _owned(pod, daemon_set)]
        for pod in present:
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:  # since the round before: it has ended by now
                self.client.delete("Pod", meta["name"], meta["namespace"], grace_seconds=0)
                return True
            if not _belongs(daemon_set, node) or _outdated(daemon_set, pod):
                self.client.delete("Pod", meta["name"], meta["namespace"])
                return True
        if present or not _belongs(daemon_set, node):
            return False
        self._start(daemon_set, name)
        return True

    def _start(self, daemon_set: api.Object, node: str) -> None:
        self._made += 1
        meta, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        name = f"{meta['name']}-{self._made}"
        space = meta["namespace"]
        self.client.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **template["metadata"],
                    "name": name,
                    "namespace": space,
                    "ownerReferences": [owner],
                },
                "spec": {**template["spec"], "nodeName": node, "serviceAccountName": "default"}
                | {"priorityClassName": ""},
            }
        )
        status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": _READY}
        self.client.patch("Pod", name, {"status": status}, namespace=space, subresource="status")

    def _records(self) -> bool:
        """What an agent writes on pods of a plugin that writes nothing, by the kubelet's record."""
        by_name = {node["metadata"]["name"]: node for node in self._cluster.nodes}
        written = False
        for pod in self._cluster.tenants:
            meta, node = pod["metadata"], by_name[pod["spec"]["nodeName"]]
            if _recorded(pod) or not any(map(self.is_agent, self._cluster.serving(node))):
                continue
            name = node["metadata"]["name"]
            read = msgspec.convert(pod, pods.Pod)
            chosen = {"main": (self._cards(name)[1],)}
            cards_node = cards.Node(name=name, cards=self._cards(name))
            grant = bound_pods.on_cards(read, cards_node, contract.Settings(), chosen)
            assert isinstance(grant, grants.Grant), grant
            text = grant_record.encode(grant)
            change = {"metadata": {"annotations": {GRANT: text}}}
            self.client.patch("Pod", meta["name"], change)
            written = True
        return written

    def _nodes(self) -> bool:
        acted = [self._offer(node) for node in self._cluster.nodes]
        return any(acted)

    def _offer(self, node: api.Object) -> bool:
        """The amounts that the kubelet tells, and the cards that an agent publishes."""
        serving = self._cluster.serving(node)
        meta, allocatable = node["metadata"], node["status"]["allocatable"]
        resource, amount = self._resource(node, [pod["metadata"]["name"] for pod in serving])
        if allocatable.get(resource, "0") != amount:
            change = {"status": {"allocatable": {resource: amount}}}
            self.client.patch("Node", meta["name"], change, subresource="status")
            return True
        if any(map(self.is_agent, serving)) and CARDS not in meta.get("annotations", {}):
            written = {
                "metadata": {"annotations": {CARDS: nodes.encode(self._cards(meta["name"]))}}
            }
            self.client.patch("Node", meta["name"], written)
            return True
        return False

    def _resource(self, node: api.Object, serving: list[str]) -> tuple[str, str]:
        if "nvidia.com/gpu" in node["status"]["capacity"]:
            count = node["status"]["capacity"]["nvidia.com/gpu"]
            theirs = [name for name in serving if not name.startswith(_AGENT)]
            return "nvidia.com/gpu", count if theirs else "0"
        return "aliyun.com/gpu-mem", "32" if serving else "0"

    def _cards(self, node: str) -> tuple[cards.Card, ...]:
        return tuple(
            cards.Card(uuid=self.uuid(node, i), index=i, memory_mib=16384, model="Tesla T4")
            for i in range(2)
        )

    def _look(self) -> None:
        """What must never be."""
        for node in self._cluster.nodes:
            serving = self._cluster.serving(node)
            name = node["metadata"]["name"]
            if len(serving) > 1:
                self.offences.append(f"{name}: {[p['metadata']['name'] for p in serving]}")
            if not serving and not node["spec"].get("unschedulable"):
                self.offences.append(f"{name}: open, and nothing serves it")

    def serving(self, node: api.Object) -> list[api.Object]:
        """The pods of DaemonSets on a node now."""
        return _Cluster(self.client, []).serving(node)

    def is_agent(self, pod: api.Object) -> bool:
        """Whether it is Partage's."""
        meta = pod["metadata"]
        return MARK in meta.get("annotations", {}) or meta["name"].startswith(_AGENT)


class _Cluster:
    """All that is there at one moment."""

    def __init__(self, client: api.Api, names: list[str]) -> None:
        pods_of_all = client.list_all("Pod")
        self.deployments = client.list_all("Deployment")
        self.daemon_sets = client.list_all("DaemonSet")
        self.nodes = [client.get("Node", name) for name in names]
        self.tenants = [p for p in pods_of_all if p["metadata"]["namespace"] == "default"]
        self._pods = pods_of_all

    def serving(self, node: api.Object) -> list[api.Object]:
        """The pods of DaemonSets on a node."""
        name = node["metadata"]["name"]
        owners = ((pod, pod["metadata"].get("ownerReferences", [{}])[0]) for pod in self._pods)
        made = (pod for pod, owner in owners if owner.get("kind") == "DaemonSet")
        return [pod for pod in made if pod["spec"].get("nodeName") == name]


def _recorded(pod: api.Object) -> bool:
    """Whether something on it says which cards it has, or it asks for none of NVIDIA's."""
    written = pod["metadata"].get("annotations") or {}
    is_known = any(name in written for name in (GRANT, "hami.io/vgpu-devices-allocated"))
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    return is_known or "nvidia.com/gpu" not in limits


def _owned(pod: api.Object, daemon_set: api.Object) -> bool:
    owners = pod["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == daemon_set["metadata"]["uid"] for owner in owners)


def _belongs(daemon_set: api.Object, node: api.Object) -> bool:
    spec, labels = daemon_set["spec"]["template"]["spec"], node["metadata"]["labels"]
    chosen = (spec.get("nodeSelector") or {}).items() <= labels.items()
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    return chosen and any(
        all(_holds(rule, labels) for rule in term.get("matchExpressions") or ()) for term in terms
    )


def _holds(rule: api.Object, labels: dict[str, str]) -> bool:
    inside = labels.get(rule["key"]) in rule["values"]
    return inside is (rule["operator"] == "In")


def _outdated(daemon_set: api.Object, pod: api.Object) -> bool:
    """Of a rolling update alone; by hand, pods stay until somebody deletes them."""
    if daemon_set["spec"]["updateStrategy"]["type"] == "OnDelete":
        return False
    ours = MARK in (daemon_set["spec"]["template"]["metadata"].get("annotations") or {})
    return ours is not (MARK in (pod["metadata"].get("annotations") or {}))
