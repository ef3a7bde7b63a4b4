"""Compute policies: how the time of a node's cards is divided among the tenants of each.

The policy is the administrator's: a label of the node, for pods of every dialect. Without it each
container is held as its own words say. What a pod's author may write on the pod is less: a weight
among the weights of others, on nodes that divide by weight, and a tighter policy for the pod alone.
cGPU's names for a weight and for high priority are variables of a container.

A value that makes no sense never raises here, because pods run and labels change under them: it is
a problem to tell, and what is used instead gives nobody more time.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from partage.core import errors
from partage.dialects import pods, rules

POLICY = "partage.dev/compute-policy"  # a label of nodes; an annotation of pods, to be held tighter
SLOTS = "partage.dev/compute-slots"  # a label of nodes
PRIORITY = "partage.dev/compute-priority"  # a label of nodes
WEIGHT = "partage.dev/compute-weight"  # an annotation of pods

WEIGHTS = rules.Range("a weight, 1 to 25", 25)
_SLOTS = rules.Range("a number of slots, 1 to 25", 25)
_PRIORITIES = rules.Range("percent of a card, 20 to 99", 99, 20)
_DEFAULT_SLOTS = 20
_YES, _NO = ("1", "true"), ("0", "false", "")


class Policy(enum.StrEnum):
    """How time is divided among the tenants of a card."""

    BEST_EFFORT = "best-effort"  # nobody is limited
    FIXED = "fixed"  # never above the share
    BURST = "burst"  # the share is guaranteed, idle time usable up to the ceiling
    EQUAL = "equal"  # one part for each tenant that is there
    SLOTS = "slots"  # a part of a fixed size, also for a tenant that is alone
    WEIGHTED = "weighted"  # a part for each tenant that is there, by weights


TIGHTER = (Policy.FIXED, Policy.BURST)  # what a pod may choose for itself, the tightest first


class OfNode(msgspec.Struct, frozen=True, kw_only=True):
    """What the labels of a node say."""

    policy: Policy | None = None  # None: each container as it asks
    slots: int = _DEFAULT_SLOTS
    priority_percent: int = 0  # of a card, for containers of high priority; 0: there is no such
    problems: tuple[str, ...] = ()


class OfContainer(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod says of one of its containers."""

    policy: Policy | None = None
    weight: int = 1
    high_priority: bool = False
    problems: tuple[str, ...] = ()


class Variables(msgspec.Struct, frozen=True):
    """The names by which a family's containers say it in their environment; empty: they do not."""

    weight: str = ""
    high_priority: str = ""


NO_VARIABLES = Variables()


def of_node(labels: Mapping[str, str]) -> OfNode:
    """What the labels of a node say; slots of no sense are as small as slots can be."""
    problems: list[str] = []
    policy = labels.get(POLICY)
    return OfNode(
        policy=Policy(policy) if policy in set(Policy) else None,  # the table of modes tells
        slots=_number(f"label {SLOTS}", labels.get(SLOTS), _SLOTS, problems)
        or (_DEFAULT_SLOTS if SLOTS not in labels else _SLOTS.most),
        priority_percent=_number(f"label {PRIORITY}", labels.get(PRIORITY), _PRIORITIES, problems),
        problems=tuple(problems),
    )


def of_container(
    pod: pods.Pod, environment: Mapping[str, str], names: Variables = NO_VARIABLES
) -> OfContainer:
    """What a pod says of a container with this environment; a weight of no sense is 1."""
    problems: list[str] = []
    annotations = pod.metadata.annotations
    written = annotations.get(WEIGHT, environment.get(names.weight))
    field = rules.annotation_field(WEIGHT) if WEIGHT in annotations else f"variable {names.weight}"
    return OfContainer(
        policy=_tighter(annotations.get(POLICY), problems),
        weight=_number(field, written, WEIGHTS, problems) or 1,
        high_priority=_yes(names.high_priority, environment, problems),
        problems=tuple(problems),
    )


def _number(field: str, text: str | None, allowed: rules.Range, problems: list[str]) -> int:
    """A number within its range; 0 if it is not there, or makes no sense."""
    if text is None:
        return 0
    try:
        return rules.whole(field, text, allowed)
    except errors.DemandError as error:
        problems.append(f"{error.field}: {error.problem}; {error.instead}")
        return 0


def _tighter(text: str | None, problems: list[str]) -> Policy | None:
    if text is None or text in TIGHTER:
        return None if text is None else Policy(text)
    problems.append(
        f"{rules.annotation_field(POLICY)}: {rules.shown(text)} is not what a pod can choose; "
        f"write {' or '.join(TIGHTER)}"
    )
    return None


def _yes(name: str, environment: Mapping[str, str], problems: list[str]) -> bool:
    text = environment.get(name, "")
    if text.lower() not in (*_YES, *_NO):
        problems.append(f"variable {name}: {rules.shown(text)} is not valid; write 1 or 0")
    return text.lower() in _YES
