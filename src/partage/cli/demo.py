"""``partage demo``: the textbook cluster of this field, in memory."""

from __future__ import annotations

import click
import yaml

from partage.cli import decisions, gpushare_table, manifests
from partage.core import cards, fleet

_GIB = 1024
_NODE = cards.Node(
    name="dev-server-153",
    address="192.168.0.153",
    cards=tuple(
        cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=23 * _GIB, model="NVIDIA A30")
        for i in range(8)
    ),
)
_PODS = """
kind: StatefulSet
metadata: {name: binpack-1}
spec:
  replicas: 3
  template:
    spec:
      containers: [{name: binpack-1, resources: {limits: {aliyun.com/gpu-mem: 3}}}]
---
kind: Pod
metadata: {name: four-cards, labels: {aliyun.com/gpu-count: "4"}}
spec:
  containers: [{name: train, resources: {limits: {aliyun.com/gpu-mem: 12}}}]
---
kind: Pod
metadata: {name: shared-gpu}
spec:
  schedulerName: t9k-scheduler
  containers: [{name: shared, resources: {limits: {tensorstack.dev/nvidia-gpu-percent: 30}}}]
---
kind: Pod
metadata: {name: whole-card}
spec:
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]
---
kind: Pod
metadata: {name: too-large}
spec:
  containers: [{name: main, resources: {limits: {aliyun.com/gpu-mem: 24}}}]
"""


@click.command()
def demo() -> None:
    """Share eight cards among five kinds of request, in memory.

    Cards and pods exist in this process only; no GPU and no cluster is touched.
    """
    world = fleet.standard()
    world.set_node(_NODE)
    click.echo(f"{_NODE.name}: {len(_NODE.cards)} cards of 23 GiB, in memory only\n")
    for pod in manifests.pods_of(yaml.safe_load_all(_PODS), "demo"):
        demand = decisions.asked(pod)
        if demand is not None:
            _tell(decisions.decide(world, pod, demand))
    click.echo(gpushare_table.summary([_row(world)]))


def _tell(decision: decisions.Decision) -> None:
    click.echo(f"{decision.pod} ({decision.dialect}) asks for {decision.asks}")
    if decision.grant is None:
        click.echo(f"  refused, {decision.reason}\n")
        return
    shares = [share for container in decision.grant.containers for share in container.shares]
    indexes = ", ".join(str(share.index) for share in shares)
    which = f"card {indexes}" if len(shares) == 1 else f"each of cards {indexes}"
    click.echo(f"  gets {shares[0].memory_mib} MiB of {which} on {decision.grant.node}")
    click.echo(f"  {decision.reason}\n")


def _row(world: fleet.Fleet) -> gpushare_table.NodeRow:
    """The node in whole GiB; what is used is rounded up, so that no more looks free than is."""
    state = world.state(_NODE.name)
    rooms = state.rooms if state is not None else []
    return gpushare_table.NodeRow(
        name=_NODE.name,
        address=_NODE.address,
        used=tuple(-(-(room.memory_mib - room.free_mib) // _GIB) for room in rooms),
        total=tuple(room.memory_mib // _GIB for room in rooms),
    )
