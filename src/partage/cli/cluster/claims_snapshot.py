"""Claims of a cluster, read once into a mirror, so that what they hold is counted there.

Most clusters do not have the definitions, and that is not a problem. An account without the right
to read them is told what is missing from what it sees.
"""

from __future__ import annotations

from partage.cli.cluster import cluster_snapshot
from partage.dialects.claims import objects
from partage.kube import errors as kube_errors
from partage.scheduler.claims import claim_grants, claim_store
from partage.scheduler.mirror import mirror

_KINDS = "ElasticGPUs and their claims"


async def read(
    cluster: cluster_snapshot.Cluster, cluster_mirror: mirror.Mirror
) -> claim_grants.ClaimGrants | None:
    """What claims have; None where there are none, or where they may not be read."""
    try:
        return await read_all(cluster, cluster_mirror)
    except kube_errors.NotFound:
        return None
    except kube_errors.Forbidden as error:
        cluster_mirror.problems.set(_KINDS, f"{error.message}; what claims hold is not shown")
        return None


async def read_all(
    cluster: cluster_snapshot.Cluster, cluster_mirror: mirror.Mirror
) -> claim_grants.ClaimGrants:
    """What claims have; raises NotFound without definitions, and Forbidden without the rights.

    It comes after the nodes: the shares of a claim are read by the names that cards have now.
    """
    store = claim_store.ClaimStore(cluster_mirror.fleet, settings=lambda: cluster_mirror.settings)
    async for page in cluster.api.pages(objects.CLASSES_PATH, objects.ElasticGPUClass):
        for gpu_class in page.items:
            store.classes.put(gpu_class)
    async for elastic_gpus in cluster.api.pages(objects.ELASTIC_GPUS_PATH, objects.ElasticGPU):
        for elastic_gpu in elastic_gpus.items:
            store.elastic_gpus.put(elastic_gpu)
    async for claims in cluster.api.pages(objects.CLAIMS_PATH, objects.ElasticGPUClaim):
        for claim in claims.items:
            store.claims.put(claim)
    for name, damage in store.elastic_gpus.damages.items():
        cluster_mirror.problems.set(f"elasticgpu {name}", damage)
    return claim_grants.ClaimGrants(store, cluster_mirror.fleet)
