"""HAMi's records: which devices each container of a pod has, in one line of text.

``UUID,NVIDIA,mem,cores:`` is a device, ``;`` ends a container, and containers without devices leave
their ``;`` in place. Since HAMi counts init containers they come first; before that only app
containers had a place, so the number of places tells which of the two was meant.

Of HAMi's two lists only the one that stays is written: the other is a message to its device plugin,
which is not there.
"""

from __future__ import annotations

import msgspec

from partage.core import cards, demands, grants
from partage.dialects import contract, nodes, pods, records, rules

ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
NODE = "hami.io/vgpu-node"
TIME = "hami.io/vgpu-time"
BIND_TIME = "hami.io/bind-time"
BIND_PHASE = "hami.io/bind-phase"
REGISTER = "hami.io/node-nvidia-register"  # on nodes

_VENDOR = "NVIDIA"
_LONGEST_LABEL = 63  # characters, by Kubernetes; a node's name may be longer
_SECOND_NS = 1_000_000_000


def marks(bound: contract.Bound) -> contract.Marks:
    """What HAMi's filter and bind write."""
    shares = {container.name: container.shares for container in bound.grant.containers}
    shares_in_order = (shares.get(spot.container.name, ()) for spot in pods.spots(bound.pod))
    seconds = str(bound.now_ns // _SECOND_NS)
    node = {NODE: bound.node.name}
    annotations = {
        TIME: seconds,
        BIND_TIME: seconds,
        BIND_PHASE: "allocating",
        ALLOCATED: "".join(_line(shares_of_one) + ";" for shares_of_one in shares_in_order),
    }
    return contract.Marks(
        node | annotations, node if len(bound.node.name) <= _LONGEST_LABEL else {}
    )


def registered(node: nodes.Node) -> tuple[cards.Card, ...]:
    """The cards that HAMi's plugin registered on a node."""
    text = node.metadata.annotations.get(REGISTER)
    if text is None:
        return ()
    devices = nodes.decoded(REGISTER, text, list[_Registered])
    return nodes.bounded(REGISTER, (_card(device) for device in devices))


def _card(device: _Registered) -> cards.Card:
    return cards.Card(
        uuid=device.id,
        index=device.index,
        memory_mib=device.devmem,
        model=device.type,
        healthy=device.health,
        max_tenants=max(1, device.count),
        numa=device.numa if device.numa >= 0 else None,
    )


class _Registered(msgspec.Struct, frozen=True, kw_only=True):
    """One card, in the words of HAMi's plugin."""

    id: str
    index: int = 0
    count: int = 1
    devmem: int
    type: str = ""
    numa: int = -1
    health: bool = True


def granted(
    request: contract.Request, node: cards.Node, demand: demands.PodDemand
) -> grants.Grant | None:
    """The grant that HAMi recorded; None if it recorded nothing."""
    annotations = request.pod.metadata.annotations
    annotation = next((name for name in (ALLOCATED, TO_ALLOCATE) if name in annotations), None)
    if annotation is None:
        return None
    records.same_node(request.pod, NODE, node)
    lines = {name: line for name, line in _lines(request.pod, annotation).items() if line}
    demanded = {container.name: container.demand for container in demand.containers}
    if lines.keys() != demanded.keys():
        raise records.Unreadable(annotation, "its containers are not those that ask for cards")
    shares = {name: _shares(annotation, node, lines[name], demanded[name]) for name in demanded}
    return records.shared(request, node, demand, shares)


def _line(shares: tuple[grants.Share, ...]) -> str:
    return "".join(f"{s.uuid},{_VENDOR},{s.memory_mib},{s.compute_percent}:" for s in shares)


def _lines(pod: pods.Pod, annotation: str) -> dict[str, str]:
    """The text for each container, by name."""
    written = records.text(pod, annotation).removesuffix(";").split(";")
    everyone = [spot.container.name for spot in pods.spots(pod)]
    apps = [container.name for container in pod.spec.containers]
    names = everyone if len(written) == len(everyone) else apps
    if len(written) != len(names):
        problem = f"it lists {len(written)} containers; the pod has {len(everyone)}"
        raise records.Unreadable(annotation, problem)
    return dict(zip(names, written, strict=True))


def _shares(
    annotation: str, node: cards.Node, line: str, demand: demands.Demand
) -> tuple[grants.Share, ...]:
    devices = line.removesuffix(":").split(":", records.MOST_CARDS)
    shares = tuple(_share(annotation, node, device, demand) for device in devices)
    if len(shares) != demand.cards or len({share.uuid for share in shares}) != len(shares):
        problem = f"a container has {len(shares)} devices and asks for {demand.cards} cards"
        raise records.Unreadable(annotation, problem)
    return shares


def _share(annotation: str, node: cards.Node, device: str, demand: demands.Demand) -> grants.Share:
    uuid, _, amounts = device.partition(f",{_VENDOR},")
    card = next((card for card in node.cards if card.uuid == uuid), None)
    if card is None:
        raise records.Unreadable(annotation, f"node {node.name} has no card {rules.shown(uuid)}")
    memory, _, cores = amounts.partition(",")
    memory_mib = records.number(annotation, memory)
    compute_percent = records.number(annotation, cores)
    if not 0 < memory_mib <= card.memory_mib or compute_percent > cards.FULL_PERCENT:
        problem = f"card {card.index} cannot have {rules.shown(amounts)}"
        raise records.Unreadable(annotation, problem)
    return grants.Share(
        uuid=uuid,
        index=card.index,
        memory_mib=memory_mib,
        compute_percent=compute_percent,
        exclusive=demand.whole,
    )
