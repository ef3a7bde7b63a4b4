"""Reviews of claims and their classes: stored in one spelling, and refused if nobody can read them.

Several spellings of the same fields are in circulation. :meth:`ClaimReviews.spell` stores the one
of the definitions, and amounts as Kubernetes writes them, with a warning where that could surprise.
:meth:`ClaimReviews.check` refuses a claim that asks for what cannot be, for more than any card of
the cluster has, or for more than its namespace may ever have. A class that is not there yet is a
warning only, as classes and claims may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from partage.admission import additions, chances, wire
from partage.core import demands, errors
from partage.dialects import contract, registry
from partage.dialects.claims import amounts, objects, requests

_CLAIM, _CLASS = "ElasticGPUClaim", "ElasticGPUClass"

Form = TypeVar("Form")


class Classes(Protocol):
    """The classes of the cluster."""

    def complete(self) -> bool:
        """Whether all of them are known."""

    def provisioner(self, name: str, /) -> str | None:
        """What makes the shares of a class; None if it is not known."""


class ClaimReviews:
    """Answers, by the classes that are known at the moment."""

    def __init__(
        self, classes: Classes, cluster: chances.Cluster, *, refuse_never: bool = True
    ) -> None:
        self._classes = classes
        self._cluster = cluster
        self._refuse_never = refuse_never  # what no card of today can hold; else it is a warning

    def spell(self, body: bytes) -> bytes:
        """Store an object in the one spelling."""
        request = wire.decode(body)
        claim, gpu_class = _claim(request), _class(request)
        if claim is not None:
            warnings = [str(caution) for caution in _cautions(claim)]
            return wire.allowed(request, patch=list(_spelled_claim(claim)), warnings=warnings)
        if gpu_class is not None:
            return wire.allowed(request, patch=list(_spelled_class(gpu_class)))
        return wire.allowed(request)

    def check(self, body: bytes) -> bytes:
        """Refuse a claim that nobody could ever bind."""
        request = wire.decode(body)
        claim, gpu_class = _claim(request), _class(request)
        if gpu_class is not None:
            return wire.allowed(request, warnings=list(_of_class(gpu_class)))
        if claim is None or _has_its_object(request, claim):
            return wire.allowed(request)
        try:
            chance, warnings = self._judged(claim, request.namespace)
        except errors.DemandError as error:
            return wire.refused(request, f"claim {claim.metadata.name}: {error}")
        if chance.never and self._refuse_never:
            text = f"claim {claim.metadata.name}: {chance.never}"
            return wire.refused(request, text, warnings=warnings)
        warnings += filter(None, (chance.never, chance.waits))
        return wire.allowed(request, warnings=warnings)

    def _judged(
        self, claim: objects.ElasticGPUClaim, namespace: str
    ) -> tuple[chances.Chances, list[str]]:
        """Whether it can ever be bound, and what to warn of; raises DemandError for the rest."""
        name = claim.class_name
        provisioner = self._classes.provisioner(name)
        if provisioner is None:
            cautions = [str(caution) for caution in requests.check(claim)]
            waits = f"class {name} is not there yet; the claim waits until it is created"
            missed = name and self._classes.complete()
            return chances.GOOD, [waits, *cautions] if missed else cautions
        if not requests.ours(provisioner):
            theirs = f"class {name} has the provisioner {provisioner}, which Partage leaves alone"
            return chances.GOOD, [theirs]
        reading = requests.read(claim, provisioner, self._cluster.settings)
        chance = self._best_chance(reading.alternatives, namespace)
        return chance, [str(caution) for caution in reading.cautions]

    def _best_chance(
        self, alternatives: Iterable[demands.Demand], namespace: str
    ) -> chances.Chances:
        """Any of these will do; where none will, what is nearest to that is told."""
        nearest = chances.GOOD
        for demand in alternatives:
            pod = demands.PodDemand(containers=(demands.ContainerDemand("", demand),))
            chance = chances.of(self._cluster, pod, namespace, asker="claim")
            if not chance.never:
                return chance
            nearest = nearest if nearest.by_total else chance
        return nearest


def _has_its_object(request: wire.Request, claim: objects.ElasticGPUClaim) -> bool:
    """Whether it is not, or no longer, the question what a claim asks for."""
    has_one = bool(claim.spec.elastic_gpu_name)
    return has_one and (request.operation != "CREATE" or not requests.asks(claim))


def _claim(request: wire.Request) -> objects.ElasticGPUClaim | None:
    return _decoded(request, _CLAIM, objects.ElasticGPUClaim)


def _class(request: wire.Request) -> objects.ElasticGPUClass | None:
    return _decoded(request, _CLASS, objects.ElasticGPUClass)


def _decoded(request: wire.Request, kind: str, form: type[Form]) -> Form | None:
    """The object, if it is of the kind; what cannot be read is refused by its definition."""
    if request.kind.kind != kind:
        return None
    try:
        return msgspec.json.decode(request.object, type=form)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _spelled_claim(claim: objects.ElasticGPUClaim) -> Iterator[additions.Operation]:
    """The changes; spellings that contradict each other stay, and the definition refuses them."""
    names = claim.spec.class_names
    others = [field for field in names if field != "elasticGPUClassName"]
    if others and len(set(names.values())) == 1:
        yield _set("/spec/elasticGPUClassName", claim.class_name)
        yield from ({"op": "remove", "path": f"/spec/{field}"} for field in others)
    for kind, resource, written in _written(claim):
        if amounts.canonical(written) != written:
            path = f"/spec/resources/{kind}/{additions.pointer(resource)}"
            yield _set(path, amounts.canonical(written))


def _cautions(claim: objects.ElasticGPUClaim) -> Iterator[contract.Caution]:
    for kind, resource, written in _written(claim):
        caution = amounts.caution(f"spec.resources.{kind}[{resource}]", written)
        if caution is not None:
            yield caution


def _written(claim: objects.ElasticGPUClaim) -> Iterator[tuple[str, str, Any]]:
    """Its amounts; where there are more than the definition lets pass, that says so."""
    resources = claim.spec.resources
    for kind, written in (("requests", resources.requests), ("limits", resources.limits)):
        if len(written) <= amounts.MOST:
            yield from ((kind, resource, amount) for resource, amount in written.items())


def _spelled_class(gpu_class: objects.ElasticGPUClass) -> Iterator[additions.Operation]:
    own, other = gpu_class.egpu_binding_mode, gpu_class.other_binding_mode
    if own is None:
        yield _set("/egpuBindingMode", str(gpu_class.binding_mode))
    if other is not None and own in (None, other):
        yield {"op": "remove", "path": "/eGPUBindingMode"}


def _of_class(gpu_class: objects.ElasticGPUClass) -> Iterator[str]:
    if not requests.ours(gpu_class.provisioner):
        names = ", ".join(registry.provisioners())
        yield (
            f"Partage leaves claims of provisioner {gpu_class.provisioner} to others; its own are "
            f"{names}"
        )


def _set(path: str, value: Any) -> additions.Operation:
    return {"op": "add", "path": path, "value": value}
