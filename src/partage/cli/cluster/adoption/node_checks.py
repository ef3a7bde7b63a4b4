"""Checks of a node that was moved, or given back: pure, from what was read of it.

Each answers with what is wrong, or waited for; an empty text is well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from partage.cli.cluster.adoption import adoptions, forms, systems
from partage.cli.cluster.adoption.plans import places
from partage.core import cards, grants
from partage.dialects import bound_pods, contract, node_readings, nodes, pods

_Cards = list[tuple[str, list[tuple[int, int]]]]  # per container: index and memory of its cards
_GPUSHARE_MEMORY = "aliyun.com/gpu-mem"
_SHOWN = 3


def unstarted(tenants: Iterable[forms.Pod]) -> str:
    """Pods that are bound and that the kubelet has not accepted: nobody would serve them."""
    waiting = [pod for pod in tenants if not pod.status.start_time]
    return f"{_named(waiting)} bound there, and not accepted by the kubelet yet" if waiting else ""


def amounts(adoption: adoptions.Adoption, place: adoptions.Place, now: nodes.Node) -> str:
    """Whether an agent offers what the plugin did."""
    if adoption.system != systems.GPUSHARE:
        return _cards(place, now)
    offered = {name: now.allocatable(name) for name in place.amounts}
    if offered == dict(place.amounts):
        return ""
    published = node_readings.read(now).node.cards
    sizes = [card.memory_mib // adoption.unit_mib for card in published]
    if len(set(sizes)) > 1 and offered[_GPUSHARE_MEMORY] == sum(sizes):
        return ""  # gpushare counted all cards as large as the first
    return f"it offers {_amounts(offered)}, and offered {_amounts(place.amounts)} before"


def amounts_before(place: adoptions.Place, now: nodes.Node) -> str:
    """Whether the plugin offers again what it did."""
    offered = {name: now.allocatable(name) for name in place.amounts}
    if offered == dict(place.amounts):
        return ""
    return f"it offers {_amounts(offered)}, and offered {_amounts(place.amounts)} before"


def read_back(
    adoption: adoptions.Adoption,
    place: adoptions.Place,
    now: nodes.Node,
    tenants: Sequence[forms.Pod],
) -> str:
    """Whether every pod has the cards that it had, as far as anybody could tell before."""
    settings = contract.Settings(memory_unit_mib=adoption.unit_mib)
    before = node_readings.read(places.as_node(place)).node
    present = node_readings.read(now).node
    remembers = systems.SYSTEMS[adoption.system].remembers
    wrong = []
    for pod in tenants:
        had = _granted(pod, before, settings) if remembers else None
        has = _granted(pod, present, settings)
        if has is None:
            wrong.append(f"{pod.label}: nothing tells which cards it has; it counts on all of them")
        elif had is not None and had != has:
            wrong.append(f"{pod.label}: it had {_shown(had)}, and is read as {_shown(has)}")
    return "; ".join(wrong[:_SHOWN])


def ran_on(before: Mapping[str, forms.Pod], tenants: Iterable[forms.Pod]) -> str:
    """Whether what ran before the change runs still, unless somebody took it away."""
    ended = [p for p in tenants if p.metadata.uid in before and p.status.phase == "Failed"]
    return f"{_named(ended)} failed meanwhile ({ended[0].status.reason})" if ended else ""


def strangers(
    adoption: adoptions.Adoption, place: adoptions.Place, tenants: Iterable[forms.Pod]
) -> str:
    """Pods whose cards the original system would give away again, as it does not know of them."""
    system = systems.SYSTEMS[adoption.system]
    unknown = [
        pod
        for pod in tenants
        if pod.metadata.uid not in place.pods
        and not any(name in pod.metadata.annotations for name in system.pod_annotations)
    ]
    if not unknown:
        return ""
    return (
        f"{system.title} would not know which cards {_named(unknown)} has, and give them away "
        "again; delete or move what runs there first"
    )


def _cards(place: adoptions.Place, now: nodes.Node) -> str:
    """Whether the agent names the cards that the node told of before, where it told of any."""
    published = nodes.publication(now) if nodes.CARDS in now.metadata.annotations else None
    if published is None:
        return "its agent has not published its cards yet"
    before = node_readings.read(places.as_node(place)).node.cards
    named = [card for card in before if not nodes.unnamed(card)]
    if named and {card.uuid for card in named} != {card.uuid for card in published.cards}:
        return "its agent names other cards than the node told of before"
    if before and len(before) != len(published.cards):
        return f"its agent names {len(published.cards)} cards, and {len(before)} were told before"
    return ""


def _granted(pod: pods.Pod, node: cards.Node, settings: contract.Settings) -> _Cards | None:
    grant = bound_pods.granted(pod, node, settings)
    if not isinstance(grant, grants.Grant):
        return None
    return [(c.name, sorted((s.index, s.memory_mib) for s in c.shares)) for c in grant.containers]


def _shown(granted: _Cards) -> str:
    return ", ".join(
        f"{memory_mib} MiB of card {index}" for _, shares in granted for index, memory_mib in shares
    )


def _amounts(amounts_by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {amount}" for name, amount in sorted(amounts_by_name.items()))


def _named(some: Sequence[forms.Pod]) -> str:
    labels = sorted(pod.label for pod in some)
    more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
    word = "pod" if len(labels) == 1 else "pods"
    return f"{word} {', '.join(labels[:_SHOWN])}{more}"
