"""Claims of Elastic GPU: a container has what an ElasticGPUClaim has, and asks for no amounts.

A pod asks by claims or by amounts, not by both: what a claim has is counted with the claim, and the
record of a grant would be two things at once. The annotation says which claim, and the resource
beside it brings the container to the agent (:mod:`partage.dialects.pod_claims`); each without the
other would be a container without a card.

What a claim itself may ask for is read by :mod:`partage.dialects.claims.requests`.
"""

from __future__ import annotations

from typing import ClassVar

from partage.core import cards, demands
from partage.dialects import contract, pod_claims, pods, rules
from partage.dialects.families import elastic

TFLOPS = "elasticgpu.io/tflops"
_README = "gpushare.provisioner.elasticgpu.io"  # the domain of the resources in its example
_UNITS = 1000  # of a node: more containers than a kubelet takes, and few for it to count


class ElasticClaims(contract.Dialect):
    """Elastic GPU, by claims."""

    name = "claims"
    resources: ClassVar = {pod_claims.CLAIM: rules.Range("1, for a container with a claim", 1)}
    annotation_prefixes = pod_claims.PREFIXES
    asking_annotations = pod_claims.PREFIXES
    counts = False
    measures: ClassVar = {**elastic.measures(_README), TFLOPS: contract.TFLOPS}

    def speaks(self, pod: pods.Pod) -> bool:
        return bool(pod_claims.annotation(pod) or rules.first_field(pod, self.resources))

    def demand(self, request: contract.Request) -> demands.PodDemand:
        claims = pod_claims.of(request.pod)
        for asking in request.askings:
            if asking.name not in claims:
                instead = f"add the annotation {pod_claims.ANNOTATION}{asking.name}: <claim>"
                raise asking.refused(pod_claims.CLAIM, "no claim is named for it", instead=instead)
        _check_resources(request, claims)
        namespace = request.pod.metadata.namespace
        return demands.PodDemand(
            containers=contract.containers(
                request, lambda asking: demands.Demand(claim=f"{namespace}/{claims[asking.name]}")
            ),
            dialect=self.name,
        )

    def implied_in(self, pod: pods.Pod) -> dict[str, dict[str, int]]:
        # Also if the claims cannot be meant: it is refused later, with the reason.
        return {container: {pod_claims.CLAIM: 1} for container in pod_claims.containers(pod)}

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        return {pod_claims.CLAIM: _UNITS} if node.cards else {}


def _check_resources(request: contract.Request, claims: dict[str, str]) -> None:
    """A container with a claim and without the resource would start without its cards."""
    missing = claims.keys() - {asking.name for asking in request.askings}
    if missing:
        container = min(missing)
        raise rules.annotation_error(
            pod_claims.annotation(request.pod),
            f"container {container} does not have {pod_claims.CLAIM} in its limits, which "
            "Partage's admission adds when a pod is created",
            instead=f"install it (docs/admission.md) and create the pod again, or write "
            f"{pod_claims.CLAIM}: 1 in the container's limits",
        )
