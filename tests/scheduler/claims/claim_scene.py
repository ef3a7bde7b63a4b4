"""Claims in an extender as its sinks see them: a class, a card, claims with shares, and pods."""

from __future__ import annotations

from typing import Any

from partage.core import cards, demands, grants
from partage.dialects import grant_record, pods
from partage.dialects.claims import objects
from partage.scheduler.claims import claim_grants, claims_service
from tests.scheduler import small_cluster
from tests.scheduler.claims import claim_server

SHARE = grants.Share(uuid="GPU-1", index=0, memory_mib=4096)


class Scene:
    """Claims in an extender, and how often it had all pods tried again."""

    def __init__(self) -> None:
        self.woken = 0
        self.cluster = small_cluster.Cluster()
        card = cards.Card(uuid="GPU-1", index=0, memory_mib=8192)
        self.cluster.fleet.set_node(cards.Node(name="n1", cards=(card,)))
        self.claims = claims_service.Claims(
            None,  # type: ignore[arg-type]
            self.cluster.mirror,
            may_write=lambda: True,
            wake_all=self._wake,
        )
        self.store = self.claims.store
        self.show_class()

    def show_class(self, **fields: Any) -> None:
        """The class as it is now."""
        made = objects.ElasticGPUClass(
            metadata=objects.Metadata(name="shares"), provisioner="elasticgpu.io/gpushare", **fields
        )
        self.store.classes.put(made)

    def show_claim(
        self, name: str = "c", *, version: int = 1, gpu_class: str = "shares", **fields: Any
    ) -> None:
        """A claim as it is now."""
        spec = objects.ClaimSpec(elastic_gpu_class_name=gpu_class, **fields.pop("spec", {}))
        meta = objects.Metadata(
            name=name, namespace="default", uid=f"u-{name}", resource_version=str(version)
        )
        self.store.claims.put(objects.ElasticGPUClaim(metadata=meta, spec=spec, **fields))

    def show_elastic_gpu(self, name: str = "c", *, record: str | None = None) -> None:
        """What a claim is bound to, with its shares; the record may be edited."""
        stored: dict[str, Any] = {
            "metadata": {"name": f"e-{name}"},
            "spec": {"claimRef": {"namespace": "default", "name": name, "uid": f"u-{name}"}},
            "status": {"phase": "Bound"},
        }
        empty = claim_server.decoded(stored, objects.ElasticGPU)
        container = grants.ContainerGrant(name="", shares=(SHARE,))
        owner = objects.owner(f"e-{name}")
        grant = grants.Grant(pod=owner, node="n1", containers=(container,), dialect="elastic")
        claim_server.merge(stored, objects.allocated(empty, grant))
        if record is not None:
            stored["metadata"]["annotations"][grant_record.GRANT] = record
        self.store.elastic_gpus.put(claim_server.decoded(stored, objects.ElasticGPU))

    def show_bound(self, name: str = "c") -> None:
        """A claim that has a share, with it."""
        self.show_elastic_gpu(name)
        bound = objects.ClaimStatus(phase=objects.ClaimPhase.BOUND)
        self.show_claim(name, spec={"elastic_gpu_name": f"e-{name}"}, status=bound)

    def ask(self, pod: str = "p", *names: str) -> grants.Grant | claim_grants.Waits:
        """kube-scheduler asks about a pod with claims; what it is told."""
        demand = self._demand(*names or ("c",))
        return self.claims.grants.grant(self._pod(pod), demand, ["n1"])

    def waits(self, pod: str = "p", *names: str) -> str:
        """It has to wait, and was not woken since."""
        answer = self.ask(pod, *names)
        assert isinstance(answer, claim_grants.Waits)
        self.woken = 0
        return answer.text

    def choose(self, pod: str, *names: str) -> bool:
        """kube-scheduler filters a pod, which holds what it gets; whether it got something."""
        decider = self.cluster.decider
        decider._claims = self.claims.grants  # as the service puts them together
        return bool(decider.choose(self._pod(pod), self._demand(*names), ["n1"], 1).nodes)

    def _pod(self, name: str) -> pods.Pod:
        return pods.Pod(metadata=pods.Metadata(name=name, namespace="default", uid=f"uid-{name}"))

    def _demand(self, *names: str) -> demands.PodDemand:
        containers = tuple(
            demands.ContainerDemand(f"c{i}", demands.Demand(claim=f"default/{name}"))
            for i, name in enumerate(names)
        )
        return demands.PodDemand(containers=containers, dialect="elastic")

    def _wake(self) -> None:
        self.woken += 1
