"""What a pod has by its claims, or what it waits for.

A pod that names claims goes where the shares of its claims are, and gets exactly these. They are
held by the claims already, so nothing is weighed: the claims are bound or not, and they are on one
node or not. One pod at a time has a claim, unless its class says that it is shared.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from partage.core import demands, fleet, grants
from partage.dialects import pods
from partage.dialects.claims import objects
from partage.scheduler.claims import claim_store, lifecycle


class Waits(msgspec.Struct, frozen=True):
    """Why a pod cannot have what its claims have, for people."""

    text: str


class ClaimGrants:
    """Answers for pods that name claims."""

    def __init__(self, store: claim_store.ClaimStore, fleet: fleet.Fleet) -> None:
        self.store = store
        self._fleet = fleet
        self.waiting: set[str] = set()  # claims that a pod was refused for, by namespace/name

    def grant(
        self, pod: pods.Pod, demand: demands.PodDemand, among: Collection[str] = ()
    ) -> grants.Grant | Waits:
        """The grant of a pod by its claims; ``among`` are the nodes that it could go to.

        Without any it is only a question: a claim that waits for its first pod goes on waiting.
        """
        containers: list[grants.ContainerGrant] = []
        nodes: dict[str, str] = {}  # by claim
        for container in demand.containers:
            shares = self._shares(pod, container, among)
            if isinstance(shares, Waits):
                self.waiting.add(container.demand.claim)
                return shares
            containers.append(_container(container, shares))
            nodes[container.demand.claim] = shares.node
        if len(set(nodes.values())) > 1:
            places = ", ".join(f"{claim} on {node}" for claim, node in nodes.items())
            return Waits(f"its claims are on different nodes ({places}); use one claim, or others")
        return grants.Grant(
            pod=pod.identity,
            node=next(iter(nodes.values())),
            containers=tuple(containers),
            dialect=demand.dialect,
        )

    def users(self, elastic_gpu: str) -> tuple[str, ...]:
        """The pods that have an ElasticGPU by its claim, by namespace and name."""
        return claim_store.users(self._fleet, elastic_gpu)

    def _shares(
        self, pod: pods.Pod, container: demands.ContainerDemand, among: Collection[str]
    ) -> grants.Grant | Waits:
        key = container.demand.claim
        claim = self.store.find(key)
        if claim is None:
            return Waits(f"there is no ElasticGPUClaim {key}; create it")
        if claim.metadata.deletion_timestamp is not None:
            return Waits(f"ElasticGPUClaim {key} is being deleted")
        grant = self.store.bound_grant(claim)
        if grant is None:
            if among:
                self.store.want(claim, among)
            return Waits(f"ElasticGPUClaim {key} is not bound{_reason(claim)}")
        return self._cordoned(claim, grant) or self._other_user(pod, claim, grant) or grant

    def _cordoned(self, claim: objects.ElasticGPUClaim, grant: grants.Grant) -> Waits | None:
        """Nothing new starts on a cordoned card, whoever has a share of it."""
        state = self._fleet.state(grant.node)
        cordons = state.node.cordons if state is not None else {}
        for share in grant.containers[0].shares:
            if share.uuid in cordons:
                return Waits(
                    f"ElasticGPUClaim {claim.key} has a share of card {share.index} of node "
                    f"{grant.node}, which is cordoned; wait, or use another claim"
                )
        return None

    def _other_user(
        self, pod: pods.Pod, claim: objects.ElasticGPUClaim, grant: grants.Grant
    ) -> Waits | None:
        """Of two pods that name a claim, the one that has it keeps it."""
        gpu_class = self.store.class_of(claim)
        if gpu_class is not None and gpu_class.shared:
            return None
        name = objects.owned_name(grant.pod.uid)
        others = claim_store.users(self._fleet, name, but=pod.metadata.uid)
        if not others:
            return None
        return Waits(
            f"ElasticGPUClaim {claim.key} is used by pod {others[0]}; wait for its end, or use a "
            "class with shared: true"
        )


def _reason(claim: objects.ElasticGPUClaim) -> str:
    condition = next((c for c in claim.status.conditions if c.type == lifecycle.BOUND), None)
    if condition is None or condition.status == "True":
        return " yet"
    return f" ({condition.reason}: {condition.message})"


def _container(container: demands.ContainerDemand, shares: grants.Grant) -> grants.ContainerGrant:
    return msgspec.structs.replace(
        shares.containers[0],
        name=container.name,
        role=container.role,
        elastic_gpu=objects.owned_name(shares.pod.uid),
    )
