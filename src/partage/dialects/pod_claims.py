"""Pod claims: which container of a pod has its cards by which claim.

A pod names an ElasticGPUClaim of its own namespace in an annotation, and the container in the
annotation's name. Two spellings are in circulation, ``elasticgpu.io/egpuc-<container>`` and
``egpuc.elasticgpu.io/<container>``; both are read. The published example of the second one names
something that is not a container of its pod. Where a pod has one container, it can only be that.

The kubelet gives devices by the resources of a container, so one that has a claim names
``partage.dev/claim: 1``, which admission writes.
"""

from __future__ import annotations

import contextlib
import itertools
import re

from partage.core import errors
from partage.dialects import pods, rules

CLAIM = "partage.dev/claim"  # the resource by which a container with a claim reaches the agent
ANNOTATION = "elasticgpu.io/egpuc-"  # followed by the container's name
OTHER_ANNOTATION = "egpuc.elasticgpu.io/"
PREFIXES = (ANNOTATION, OTHER_ANNOTATION)

_LONGEST_NAME = 253  # of an object, by Kubernetes
_KEY = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", re.ASCII)


def of(pod: pods.Pod) -> dict[str, str]:
    """The names of the claims, by container; raises DemandError for what cannot be meant."""
    claims: dict[str, str] = {}
    annotations: dict[str, str] = {}
    present = _present(pod)
    for annotation, text in pod.metadata.annotations.items():
        if not annotation.startswith(PREFIXES):
            continue
        container, claim = _container(present, annotation), _claim(annotation, text)
        if claims.setdefault(container, claim) != claim:
            first = rules.annotation_field(annotations[container])
            raise errors.DemandError(
                rules.annotation_field(annotation),
                f"container {container} has another claim already, {claims[container]}",
                also=first,
                instead="name one claim for each container",
            )
        annotations[container] = annotation
    return claims


def containers(pod: pods.Pod) -> set[str]:
    """The containers that annotations name, whatever claims they name for them."""
    names, present = set(), _present(pod)
    for annotation in pod.metadata.annotations:
        if annotation.startswith(PREFIXES):
            with contextlib.suppress(errors.DemandError):
                names.add(_container(present, annotation))
    return names


def respelled(pod: pods.Pod) -> dict[str, str]:
    """Annotations that Kubernetes does not take, by the one that is meant in each one's place.

    A published example has ``<container-name>`` where a name belongs. In a pod with one container
    it is plain which.
    """
    try:
        claims = of(pod)
    except errors.DemandError:
        return {}  # it is refused, with the reason
    names = [name for name in pod.metadata.annotations if name.startswith(PREFIXES)]
    wrong = [name for name in names if not _KEY.fullmatch(name.partition("/")[2])]
    return {name: f"{ANNOTATION}{container}" for name in wrong for container in claims}


def annotation(pod: pods.Pod) -> str:
    """The first annotation of a pod that names a claim; empty if none does."""
    return next((name for name in pod.metadata.annotations if name.startswith(PREFIXES)), "")


def _present(pod: pods.Pod) -> dict[str, None]:
    """The names of all containers, in order; a pod may have many, and as many annotations."""
    return dict.fromkeys(spot.container.name for spot in pods.spots(pod))


def _container(present: dict[str, None], annotation: str) -> str:
    prefix = next(prefix for prefix in PREFIXES if annotation.startswith(prefix))
    named = annotation.removeprefix(prefix)
    if named in present:
        return named
    if len(present) == 1:
        return next(iter(present))
    some = itertools.islice(present, rules.MOST_WORDS)
    raise rules.annotation_error(
        annotation,
        f"the pod has no container {rules.shown(named)}",
        instead="write " + " or ".join(f"{prefix}{name}" for name in some),
    )


def _claim(annotation: str, text: str) -> str:
    if "/" in text:
        problem = f"{rules.shown(text)} is not a claim of the pod's own namespace"
        instead = "write the name of a claim alone, and create that claim where the pod is"
        raise rules.annotation_error(annotation, problem, instead=instead)
    if len(text) > _LONGEST_NAME or not _NAME.fullmatch(text):
        problem = f"{rules.shown(text)} is not the name of an object"
        instead = "write the name of an ElasticGPUClaim of the pod's namespace"
        raise rules.annotation_error(annotation, problem, instead=instead)
    return text
