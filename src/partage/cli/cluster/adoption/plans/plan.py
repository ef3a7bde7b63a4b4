"""Plans: what a take-over would do, for people and programs, and the take-over itself."""

from __future__ import annotations

import msgspec

from partage.cli.cluster.adoption import adoptions, objects, situation
from partage.cli.cluster.adoption.plans import places


class Tenants(msgspec.Struct, frozen=True):
    """The pods with cards on a node that is moved."""

    node: str
    offers: dict[str, int]
    pods: int
    without_fence: tuple[str, ...]  # by Partage, until they are made anew


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that people should know before they say yes."""

    adoption: adoptions.Adoption
    runs: tuple[str, ...]  # objects of the system that work now
    kept: tuple[str, ...]  # names that stay
    changed: tuple[str, ...]  # objects that are changed, made or taken away
    left_alone: tuple[str, ...]
    tenants: tuple[Tenants, ...]
    left: tuple[places.Left, ...]  # nodes that stay for now
    first: tuple[str, ...] = ()  # what has to be done before
    notes: tuple[str, ...] = ()
    afterwards: tuple[str, ...] = ()  # what people do when all nodes were moved


def tenants(seen: situation.Situation, moved: list[adoptions.Place]) -> tuple[Tenants, ...]:
    """The pods with cards on the nodes that are moved."""
    return tuple(
        Tenants(
            node=place.name,
            offers=dict(place.amounts),
            pods=len(place.pods),
            without_fence=tuple(sorted(pod.label for pod in seen.tenants(place.name))),
        )
        for place in moved
    )


def changed(steps: tuple[adoptions.Step | adoptions.NodeStep, ...]) -> tuple[str, ...]:
    """The objects that steps change, each once."""
    labels: dict[str, None] = {}
    for step in steps:
        if isinstance(step, adoptions.NodeStep):
            labels[f"Node {step.place.name}"] = None
            continue
        for change in step.forward:
            match change:
                case adoptions.Put(made):
                    labels[objects.label(made)] = None
                case adoptions.Remove(label=label):
                    labels[label] = None
    return tuple(labels)
