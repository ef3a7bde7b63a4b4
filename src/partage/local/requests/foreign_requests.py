"""Requests in the words of another system, and what its programs expect to find.

Apart from :mod:`partage.local.requests.requests`, because most requests are in our own words, and
the dialects take their time to load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import contract, pods, registry, rules
from partage.local.state import entries

_SETTINGS = contract.Settings()
_POD = "program"  # pods and containers must have a name
_PATH = "spec.containers[0]"
_EXAMPLE = "write for example aliyun.com/gpu-mem=3 (docs/dialects.md has all names)"
_BESIDE = ("cpu", "memory", "ephemeral-storage")  # what containers ask of a node, not of its cards
_HUGE_PAGES = "hugepages-"
_NEAR = 0.8  # of two names, how much of them is the same; domains are long


def demand(limits: Sequence[str]) -> demands.PodDemand:
    """What limits such as ``aliyun.com/gpu-mem=3`` ask for, as those of a container."""
    _, pod_demand = _read(_amounts(limits))
    containers = tuple(
        demands.ContainerDemand(entries.CONTAINER, _held(c.demand)) for c in pod_demand.containers
    )
    return msgspec.structs.replace(pod_demand, containers=containers)


def warnings(limits: Sequence[str]) -> tuple[str, ...]:
    """What has no effect, or another one, of limits that are allowed."""
    amounts = _amounts(limits)
    pod, _ = _read(amounts)
    cautions = registry.warnings(pod, _SETTINGS)  # what they say instead is for manifests
    return tuple(
        f"{_option(caution.field, amounts)}: {caution.problem}"
        if caution.field
        else caution.problem
        for caution in cautions
    )


def environment(
    grant: grants.Grant, container: grants.ContainerGrant, node: cards.Node
) -> dict[str, str]:
    """The variables of the system in whose words it was asked for."""
    return registry.environment(grant, container, node, _SETTINGS)


def _read(amounts: Mapping[str, str]) -> tuple[pods.Pod, demands.PodDemand]:
    """The limits as those of a pod, and what it asks for."""
    _check_names(amounts)
    pod = _pod(amounts)
    try:
        pod_demand = registry.demand(pod, _SETTINGS)
    except errors.DemandError as error:
        also = f" ({_option(error.also, amounts)})" if error.also else ""
        raise errors.InputError(
            f"{_option(error.field, amounts)}: {error.problem}{also}", instead=error.instead
        ) from error
    if pod_demand is None:
        written = ",".join(f"{name}={amount}" for name, amount in amounts.items())
        raise errors.InputError(f"--limits {written} asks for no card", instead=_EXAMPLE)
    return pod, pod_demand


def _check_names(amounts: Mapping[str, str]) -> None:
    """A limit that is left out in silence is one that the user believes in."""
    names = registry.names()
    resources = names.resources | names.inert_resources  # their dialects warn of the latter
    for name, amount in amounts.items():
        if name in _BESIDE or name.startswith(_HUGE_PAGES):
            raise errors.InputError(
                f"--limits {name}={amount}: {name} is not limited here,"
                " because it is not a resource of a card",
                instead="leave it out",
            )
        if name in names.uncounted_resources:
            raise errors.InputError(
                f"--limits {name}={amount}: claims are for pods of a cluster",
                instead="ask for amounts",
            )
        if name not in resources:
            raise errors.InputError(
                f"--limits {name}={amount}: no dialect knows {name}",
                instead=_nearest(name, resources),
            )


def _nearest(mistyped: str, resources: Set[str]) -> str:
    import difflib  # needed only if one was mistyped

    near = difflib.get_close_matches(mistyped, sorted(resources), n=1, cutoff=_NEAR)
    return f"the nearest name is {near[0]}" if near else _EXAMPLE


def _option(field: str, amounts: Mapping[str, str]) -> str:
    """A field of the pod as what was written on the command line, where nobody has a pod."""
    for name, amount in amounts.items():
        if field == rules.limit_field(_PATH, name):
            return f"--limits {name}={amount}"
    return "--limits"


def _held(demand: demands.Demand) -> demands.Demand:
    """Where a node's administrator would say whether a share is held: here it is."""
    fixed = demand.compute_mode is demands.ComputeMode.NODE
    mode = demands.ComputeMode.FIXED if fixed else demand.compute_mode
    return msgspec.structs.replace(demand, memory_enforced=True, compute_mode=mode)


def _amounts(texts: Sequence[str]) -> dict[str, str]:
    amounts: dict[str, str] = {}
    for text in (part for option in texts for part in option.split(",")):
        name, sign, amount = (part.strip() for part in text.partition("="))
        if not sign or not name or not amount:
            raise errors.InputError(
                f"--limits: {text!r} is not a limit",
                instead="write for example aliyun.com/gpu-mem=3",
            )
        if name in amounts:
            raise errors.InputError(f"--limits: {name} is written twice", instead="write it once")
        amounts[name] = amount
    return amounts


def _pod(amounts: Mapping[str, str]) -> pods.Pod:
    """As a manifest would have it, with the scheduler that its dialect expects."""
    container = pods.Container(name=_POD, resources=pods.Resources(limits=amounts))
    return pods.Pod(
        metadata=pods.Metadata(name=_POD, uid=_POD),
        spec=pods.Spec(
            containers=(container,), scheduler_name=registry.scheduler_name(amounts.keys())
        ),
    )
