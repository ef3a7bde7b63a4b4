"""What a pod has by its claims, or what it waits for.

A pod that names claims goes where the shares of its claims are, and gets exactly these. They are
held by the claims already, so nothing is weighed: the claims are bound or not, and they are on one
node or not. One pod at a time has a claim, unless its class says that it is shared.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

import msgspec

from partage.core import demands, fleet, grants
from partage.dialects import pods
from partage.dialects.claims import objects
from partage.scheduler.claims import claim_store, lifecycle

_MOST_COMBINATIONS = 64  # of what claims for TFLOPS may have on different models


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
        claims = self._claims(demand)
        if isinstance(claims, Waits):
            return claims
        bound = {key: self.store.bound_grant(claim) for key, claim in claims.items()}
        given = {key: grant for key, grant in bound.items() if grant is not None}
        if unbound := [claim for key, claim in claims.items() if key not in given]:
            return self._unbound(unbound, {grant.node for grant in given.values()}, among)
        for key, grant in given.items():
            waits = self._cordoned(claims[key], grant) or self._other_user(pod, claims[key], grant)
            if waits is not None:
                self.waiting.add(key)
                return waits
        if len({grant.node for grant in given.values()}) > 1:
            self.waiting.update(given)
            places = ", ".join(f"{key} on {grant.node}" for key, grant in given.items())
            return Waits(f"its claims are on different nodes ({places}); use one claim, or others")
        return grants.Grant(
            pod=pod.identity,
            node=next(iter(given.values())).node,
            containers=tuple(_container(c, given[c.demand.claim]) for c in demand.containers),
            dialect=demand.dialect,
        )

    def users(self, elastic_gpu: str) -> tuple[str, ...]:
        """The pods that have an ElasticGPU by its claim, by namespace and name."""
        return claim_store.users(self._fleet, elastic_gpu)

    def _claims(self, demand: demands.PodDemand) -> dict[str, objects.ElasticGPUClaim] | Waits:
        """The claims that a pod names, if all of them are there."""
        claims = {}
        for key in dict.fromkeys(container.demand.claim for container in demand.containers):
            claim = self.store.find(key)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                self.waiting.add(key)
                if claim is None:
                    return Waits(f"there is no ElasticGPUClaim {key}; create it")
                return Waits(f"ElasticGPUClaim {key} is being deleted")
            claims[key] = claim
        return claims

    def _unbound(
        self, claims: list[objects.ElasticGPUClaim], taken: set[str], among: Collection[str]
    ) -> Waits:
        """Claims of one pod are bound one after the other, where all of them can be.

        The others are on the nodes that are ``taken`` already. Those that wait for their pod come
        last, as only they can follow.
        """
        first = min(claims, key=self._follows)
        self.waiting.add(first.key)
        nodes = set(among) & taken if taken else set(among)
        if len(claims) > 1 and nodes and self._follows(first):
            nodes = self._room_for_all(claims, nodes)
            if not nodes:
                keys = ", ".join(claim.key for claim in claims)
                return Waits(f"no node has room for what its ElasticGPUClaims {keys} ask for")
        if nodes:
            self.store.want(first, sorted(nodes))
        return Waits(f"ElasticGPUClaim {first.key} is not bound{_reason(first)}")

    def _follows(self, claim: objects.ElasticGPUClaim) -> bool:
        """Whether a claim goes where its pod goes."""
        gpu_class = self.store.class_of(claim)
        mode = None if gpu_class is None else gpu_class.binding_mode
        return mode is objects.BindingMode.FIRST_CONSUMER

    def _room_for_all(
        self, claims: list[objects.ElasticGPUClaim], among: Collection[str]
    ) -> set[str]:
        """The nodes that have room for all of these at once."""
        alternatives = [
            self.store.asked(claim, self.store.class_of(claim)).alternatives for claim in claims
        ]
        nodes: set[str] = set()
        combined = itertools.product(*alternatives)
        for chosen in itertools.islice(combined, _MOST_COMBINATIONS):
            containers = (demands.ContainerDemand(str(i), one) for i, one in enumerate(chosen))
            together = demands.PodDemand(containers=tuple(containers), dialect="elastic")
            namespace = claims[0].metadata.namespace
            nodes.update(self._fleet.best(together, limit=0, among=among, namespace=namespace))
        return nodes

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
    condition = lifecycle.condition(claim)
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
