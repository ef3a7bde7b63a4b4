"""``partage claims``: claims for cards, what they have, who uses it, and what they wait for.

`kubectl get egpuc` shows what is written on each claim. Here is what follows from all objects
together: the pods that use a claim, the cards behind its ElasticGPU, and why pods and claims wait.
The controller that binds claims is a part of ``partage extender``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import msgspec

from partage.cli import notices
from partage.cli.cluster import claims_snapshot, cluster_snapshot, mirror_snapshot
from partage.cli.display import json_objects, tables
from partage.dialects import pods
from partage.kube import errors as kube_errors

if TYPE_CHECKING:
    from partage.core import grants
    from partage.dialects.claims import objects
    from partage.scheduler.claims import claim_grants

_EPILOG = """\b
Examples:
  partage claims                    of all namespaces
  partage claims -n lab -o wide     with the ElasticGPU and the cards of each
  partage claims -o json | jq '.claims[] | select(.phase != "Bound")'

Exit code 0: shown; 1: the cluster cannot be read, or has no claims installed;
2: a mistake in what you wrote.
"""
_NOTHING = "-"
_NOT_INSTALLED = "this cluster does not know claims"
_INSTALL = "apply deploy/claims.yaml, as docs/claims.md says"
_UNSEEN = (
    "no extender has looked at it yet; 'partage doctor --cluster' says whether one runs, and its "
    "log what keeps it from claims"
)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, with what it has."""

    namespace: str
    name: str
    phase: str
    reason: str
    message: str
    class_name: str
    elastic_gpu: str | None
    node: str | None
    cards: tuple[str, ...]  # uuids
    memory_mib: int | None  # of all its cards; None while it has none
    compute_percent: int | None
    used_by: tuple[str, ...]  # namespace/name of pods


class Claims(msgspec.Struct, frozen=True):
    """All of them, for programs."""

    claims: tuple[Claim, ...]


@click.command(epilog=_EPILOG)
@click.option("-n", "--namespace", default="", help="Only claims of this namespace.")
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table")
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def claims(*, namespace: str, output: str, kubeconfig: str | None, context: str | None) -> None:
    """Show claims for cards: what they have, who uses it, and what they wait for."""

    async def work(cluster: cluster_snapshot.Cluster) -> Claims:
        mirror = await mirror_snapshot.read(cluster, pods.Pod)
        try:
            granting = await claims_snapshot.read_all(cluster, mirror)
        except kube_errors.NotFound as error:
            words = error.message
            raise cluster_snapshot.CannotRead(
                _NOT_INSTALLED, words=words, instead=_INSTALL
            ) from error
        return Claims(tuple(_rows(granting, namespace)))

    shown = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")
    if output == "json":
        click.echo(json_objects.written("Claims", shown))
    elif shown.claims:
        click.echo(_table(shown, wide=output == "wide"))
    else:
        notices.show(f"No claims found{f' in namespace {namespace}' if namespace else ''}.")


def _rows(granting: claim_grants.ClaimGrants, namespace: str) -> Iterator[Claim]:
    listed = granting.store.claims.by_uid.values()
    for claim in sorted(listed, key=lambda claim: claim.key):
        if namespace in ("", claim.metadata.namespace):
            yield _row(granting, claim)


def _row(granting: claim_grants.ClaimGrants, claim: objects.ElasticGPUClaim) -> Claim:
    reason, message = _said(granting, claim)
    grant = granting.store.bound_grant(claim)
    shares: tuple[grants.Share, ...] = grant.containers[0].shares if grant is not None else ()
    return Claim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        phase=str(claim.status.phase),
        reason=reason,
        message=message,
        class_name=claim.class_name,
        elastic_gpu=claim.spec.elastic_gpu_name or None,
        node=grant.node if grant is not None else None,
        cards=tuple(share.uuid for share in shares),
        memory_mib=sum(share.memory_mib for share in shares) if shares else None,
        compute_percent=sum(share.compute_percent for share in shares) if shares else None,
        used_by=granting.users(claim.spec.elastic_gpu_name),
    )


def _said(granting: claim_grants.ClaimGrants, claim: objects.ElasticGPUClaim) -> tuple[str, str]:
    """What the extender wrote of it; where it never did, why that may be."""
    from partage.dialects.claims import objects
    from partage.scheduler.claims import lifecycle

    condition = lifecycle.condition(claim)
    if condition is not None:
        return condition.reason, condition.message
    view = granting.store.claim_view(claim.metadata.uid)
    if view is None or claim.status.phase is not objects.ClaimPhase.PENDING:
        return "", ""
    if view.gpu_class is not None and view.foreign:
        theirs = f"the provisioner {view.gpu_class.provisioner}, which Partage leaves alone"
        return "Foreign", f"class {claim.class_name} has {theirs}"
    if view.asked.problem:
        return view.asked.reason, view.asked.problem
    if view.gpu_class is None and view.spare is None and not claim.spec.elastic_gpu_name:
        return "ClassNotFound", lifecycle.without_class(claim)
    return "NotSeen", _UNSEEN


def _table(shown: Claims, *, wide: bool) -> str:
    header = ("NAMESPACE", "CLAIM", "STATUS", "CLASS", "NODE", "MEMORY(MiB)", "COMPUTE", "USED BY")
    more = ("ELASTICGPU", "CARDS") * wide
    rows = [(*_usual(claim), *_more(claim) * wide, _why(claim)) for claim in shown.claims]
    written = [tuple(map(tables.printable, row)) for row in rows]
    return tables.aligned([(*header, *more, "WAITS FOR"), *written])


def _usual(claim: Claim) -> tuple[str, ...]:
    memory = _NOTHING if claim.memory_mib is None else str(claim.memory_mib)
    compute = f"{claim.compute_percent}%" if claim.compute_percent else _NOTHING
    users = ", ".join(name.partition("/")[2] for name in claim.used_by)
    return (
        *(claim.namespace, claim.name, claim.phase, claim.class_name or _NOTHING),
        *(claim.node or _NOTHING, memory, compute, users or _NOTHING),
    )


def _more(claim: Claim) -> tuple[str, ...]:
    return claim.elastic_gpu or _NOTHING, ",".join(claim.cards) or _NOTHING


def _why(claim: Claim) -> str:
    if claim.phase == "Bound":
        return _NOTHING
    return ": ".join(filter(None, (claim.reason, claim.message))) or _NOTHING
