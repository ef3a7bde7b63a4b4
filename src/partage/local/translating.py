"""Translating: requests in the words of another system, and what its programs expect to find.

Apart from :mod:`partage.local.requests`, because most requests are in our own words, and the
dialects take their time to load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import base, pods, registry
from partage.local import entries

_SETTINGS = base.Settings()
_POD = "program"  # pods and containers must have a name
_FIELD = re.compile(r"spec\.containers\[0\](?:\.resources\.limits\[([^\]]*)\])?")
_WHO = re.compile(r"\b(the|a) pod\b")


def demand(limits: Sequence[str]) -> demands.PodDemand:
    """What limits such as ``aliyun.com/gpu-mem=3`` ask for, as those of a container."""
    amounts = _amounts(limits)
    pod = _pod(amounts)
    try:
        asked = registry.demand(pod, _SETTINGS)
    except errors.DemandError as error:
        raise _refused(error, amounts) from error
    if asked is None:
        raise errors.InputError(
            f"--limits: no dialect knows {', '.join(pods.resources(pod))}",
            instead="write for example aliyun.com/gpu-mem=3 (docs/dialects.md has all names)",
        )
    containers = tuple(
        demands.ContainerDemand(entries.CONTAINER, _held(c.demand)) for c in asked.containers
    )
    return msgspec.structs.replace(asked, containers=containers)


def environment(
    grant: grants.Grant, container: grants.ContainerGrant, node: cards.Node
) -> dict[str, str]:
    """The variables of the system in whose words it was asked for."""
    return registry.environment(grant, container, node, _SETTINGS)


def _refused(error: errors.DemandError, amounts: Mapping[str, str]) -> errors.InputError:
    """The same of what was written here: nobody who wrote limits knows of a pod."""

    def here(text: str) -> str:
        return _WHO.sub(rf"\1 {_POD}", _FIELD.sub(_written(amounts), text))

    return errors.InputError(here(error.what), instead=here(error.instead))


def _written(amounts: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def option(field: re.Match[str]) -> str:
        name = field[1]
        return f"--limits {name}={amounts[name]}" if name in amounts else "--limits"

    return option


def _held(demand: demands.Demand) -> demands.Demand:
    """Where a node's administrator would say whether a share is held: here it is."""
    fixed = demand.compute_mode is demands.ComputeMode.NODE
    mode = demands.ComputeMode.FIXED if fixed else demand.compute_mode
    return msgspec.structs.replace(demand, memory_enforced=True, compute_mode=mode)


def _amounts(texts: Sequence[str]) -> dict[str, str]:
    amounts: dict[str, str] = {}
    for text in (part for each in texts for part in each.split(",")):
        name, sign, amount = (part.strip() for part in text.partition("="))
        if not sign or not name or not amount:
            raise errors.InputError(
                f"--limits: {text!r} is no limit", instead="write for example aliyun.com/gpu-mem=3"
            )
        if name in amounts:
            raise errors.InputError(f"--limits: {name} is there twice", instead="write it once")
        amounts[name] = amount
    return amounts


def _pod(amounts: Mapping[str, str]) -> pods.Pod:
    """As a manifest would have it. T9k's pods are known by their scheduler, too."""
    of_t9k = any(name.startswith("tensorstack.dev/") for name in amounts)
    container = pods.Container(name=_POD, resources=pods.Resources(limits=amounts))
    return pods.Pod(
        metadata=pods.Metadata(name=_POD, uid=_POD),
        spec=pods.Spec(containers=(container,), scheduler_name="t9k-scheduler" if of_t9k else ""),
    )
