"""Translating: requests in the words of another system, and what its programs expect to find.

Apart from :mod:`partage.local.requests`, because most requests are in our own words, and the
dialects take their time to load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set

import msgspec

from partage.core import cards, demands, errors, grants
from partage.dialects import aliyun, base, pods, registry
from partage.local import entries

_SETTINGS = base.Settings()
_POD = "program"  # pods and containers must have a name
_FIELD = re.compile(r"spec\.containers\[0\](?:\.resources\.limits\[([^\]]*)\])?")
_WHO = re.compile(r"\b(the|a) pod\b")
_LABEL = re.compile(r"; for several cards set the label \S+")  # which only pods have
_EXAMPLE = "write for example aliyun.com/gpu-mem=3 (docs/dialects.md has all names)"
_BESIDE = ("cpu", "memory", "ephemeral-storage")  # what containers ask of a node, not of its cards
_HUGE_PAGES = "hugepages-"
_NEAR = 0.8  # of two names, how much of them is the same; domains are long


def demand(limits: Sequence[str]) -> demands.PodDemand:
    """What limits such as ``aliyun.com/gpu-mem=3`` ask for, as those of a container."""
    _, asked = _read(_amounts(limits))
    containers = tuple(
        demands.ContainerDemand(entries.CONTAINER, _held(c.demand)) for c in asked.containers
    )
    return msgspec.structs.replace(asked, containers=containers)


def warnings(limits: Sequence[str]) -> tuple[str, ...]:
    """What has no effect, or another one, of limits that are allowed."""
    amounts = _amounts(limits)
    pod, _ = _read(amounts)
    found = registry.warnings(pod, _SETTINGS)
    return tuple(_LABEL.sub("", _here(text, amounts)) for text in found)


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
        asked = registry.demand(pod, _SETTINGS)
    except errors.DemandError as error:
        what, instead = _here(error.what, amounts), _here(error.instead, amounts)
        raise errors.InputError(what, instead=instead) from error
    if asked is None:
        written = ",".join(f"{name}={amount}" for name, amount in amounts.items())
        raise errors.InputError(f"--limits {written} asks for no card", instead=_EXAMPLE)
    return pod, asked


def _check_names(amounts: Mapping[str, str]) -> None:
    """A limit that is left out in silence is one that the user believes in."""
    known = {name for dialect in registry.DIALECTS for name in dialect.resources}
    known.add(aliyun.COUNT)  # a resource without effect, of which its dialect warns
    for name, amount in amounts.items():
        if name in _BESIDE or name.startswith(_HUGE_PAGES):
            raise errors.InputError(
                f"--limits {name}={amount}: {name} is not of a card, and nothing here limits it",
                instead="leave it out",
            )
        if name not in known:
            raise errors.InputError(
                f"--limits {name}={amount}: no dialect knows {name}",
                instead=_nearest(name, known),
            )


def _nearest(mistyped: str, known: Set[str]) -> str:
    import difflib  # for those who mistype one, and nobody else

    near = difflib.get_close_matches(mistyped, sorted(known), n=1, cutoff=_NEAR)
    return f"the nearest name is {near[0]}" if near else _EXAMPLE


def _here(text: str, amounts: Mapping[str, str]) -> str:
    """The same of what was written here: nobody who wrote limits knows of a pod."""
    return _WHO.sub(rf"\1 {_POD}", _FIELD.sub(_written(amounts), text))


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
