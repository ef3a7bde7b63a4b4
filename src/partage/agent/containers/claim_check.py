"""The claim check: what a container has by a claim is compared with the claim's object.

Everybody who may edit a pod can edit its record. The amounts of other containers stand in their
limits, which nobody can edit, and are compared with these. A container by a claim has no amounts,
so its record alone says what it has; the ElasticGPU says it too, and tenants cannot write that. It
names the claim that owns it, and the pod names the claim that it uses.

It fails closed: where the API server does not answer, the container waits. No other container is
asked about.
"""

from __future__ import annotations

import asyncio
import re

import msgspec

from partage.agent import node_state
from partage.agent.containers import gate
from partage.core import grants
from partage.dialects import grant_record, nodes, registry
from partage.dialects.claims import objects
from partage.kube import api as kube
from partage.kube import errors as kube_errors

_PATIENCE_S = 5.0  # for an answer; the kubelet gives a container 30 s in all, and tries again
_NAME = re.compile(r"[a-z0-9][-a-z0-9.]{0,252}", re.ASCII)  # of an object, by Kubernetes

_PLACE_AGAIN = "delete the pod so that it is placed again"
_WAIT = "wait: the kubelet tries again by itself"


class ClaimCheck:
    """Asks the API server about the ElasticGPUs of containers that start on this node."""

    def __init__(self, api: kube.Api, state: node_state.NodeState) -> None:
        self._api = api
        self._state = state

    async def check(
        self, grant: grants.Grant, container: grants.ContainerGrant, claim: str
    ) -> None:
        """Refuse a container unless its ElasticGPU says the same as the pod's record.

        ``claim`` is ``namespace/name`` of the claim that the pod names for it. A container that has
        its shares in another way is left alone.
        """
        if not container.elastic_gpu:
            return
        problem = "" if claim else "the pod names no claim for it"
        if not _NAME.fullmatch(container.elastic_gpu):
            problem = "that is not the name of an object"  # nor to be asked for: it may be a path
        if not problem:
            elastic_gpu = await self._read(grant, container.elastic_gpu, claim)
            problem = _not_the_claims(elastic_gpu, claim) or self._unequal(
                elastic_gpu, grant, container
            )
        if problem:
            raise gate.NotGranted(
                f"container {container.name} of pod {grant.pod.namespace}/{grant.pod.name} has its "
                f"cards by ElasticGPU {container.elastic_gpu}, but {problem}",
                instead=_PLACE_AGAIN,
            )

    def _unequal(
        self, elastic_gpu: objects.ElasticGPU, grant: grants.Grant, container: grants.ContainerGrant
    ) -> str:
        """How the shares differ, each as this node names its cards and would hold them."""
        record = objects.recorded(elastic_gpu)
        if not isinstance(record, grants.Grant):
            return f"its annotation {grant_record.GRANT} is not the record of its own share"
        if record.node != grant.node:
            return f"it is on node {record.node}, and the pod is on {grant.node}"
        recorded = msgspec.structs.replace(grant, containers=record.containers)
        node = self._state.node
        (own,) = registry.settled(nodes.rebased(recorded, node), node).containers
        if own.shares != container.shares:
            return f"it has {_shown(own)}, and the pod's record says {_shown(container)}"
        if _terms(own) != _terms(container):
            return "the pod's record says that it is held in another way"
        return ""

    async def _read(self, grant: grants.Grant, name: str, claim: str) -> objects.ElasticGPU:
        pod = f"pod {grant.pod.namespace}/{grant.pod.name}"
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._api.get(objects.elastic_gpu_path(name), objects.ElasticGPU)
        except kube_errors.NotFound as error:
            problem = f"{pod} cannot have what its claim {claim} had: ElasticGPU {name} is gone"
            raise gate.NotGranted(problem, instead=_PLACE_AGAIN) from error
        except kube_errors.Forbidden as error:
            problem = f"{pod} has to wait: the agent may not read ElasticGPU {name} ({error})"
            instead = "allow 'get' on elasticgpus to the agent, as deploy/agent.yaml does"
            raise gate.NotGranted(problem, instead=instead) from error
        except (kube_errors.KubeError, TimeoutError) as error:
            why = str(error) or f"no answer within {_PATIENCE_S:g} s"
            problem = f"{pod} has to wait: ElasticGPU {name} of its claim cannot be read ({why})"
            raise gate.NotGranted(problem, instead=_WAIT) from error


def _not_the_claims(elastic_gpu: objects.ElasticGPU, claim: str) -> str:
    """Whose the object is, if it is not the claim's; empty: it is."""
    owner = elastic_gpu.claim_key
    if not owner:
        return "it belongs to no claim"
    if owner != claim:
        return f"it belongs to claim {owner}, and the pod names claim {claim}"
    return ""


def _terms(container: grants.ContainerGrant) -> tuple[object, ...]:
    return container.compute_mode, container.compute_ceiling_percent, container.memory_enforced


def _shown(container: grants.ContainerGrant) -> str:
    shares = (
        f"{share.memory_mib} MiB and {share.compute_percent} % of card {share.uuid}"
        + (" for itself" if share.exclusive else "")
        for share in container.shares
    )
    return ", ".join(shares) or "nothing"
