"""Elastic GPU: percent of compute and MiB of memory, under two domains.

Its scheduler and its agent were released with different domains, ``elasticgpu.com`` and
``elasticgpu.io``, so both are in use; they mean the same and both are accepted, though not mixed in
one container. Claims (ElasticGPUClaim) are not read (docs/limits.md).
"""

from __future__ import annotations

from typing import ClassVar

from partage.core import cards, demands, grants
from partage.dialects import base, nodes, reading, records

DOMAINS = ("elasticgpu.io", "elasticgpu.com")
ASSUMED = "elasticgpu.io/assumed"
CONTAINER = "elasticgpu.io/container-"  # followed by the container's name

_LONGEST_KEY = 63  # characters after the slash of an annotation's name, by Kubernetes
_PREFIX = CONTAINER.partition("/")[2]


class Elastic(base.Dialect):
    """Elastic GPU, without claims."""

    name = "elastic"
    resources: ClassVar = {
        f"{domain}/{resource}": allowed
        for domain in DOMAINS
        for resource, allowed in (("gpu-core", reading.CORES), ("gpu-memory", reading.units("MiB")))
    }

    def demand(self, request: base.Request) -> demands.PodDemand:
        containers = base.containers(request, _demand)
        return demands.PodDemand(containers=containers, dialect=self.name)

    def offered(self, node: cards.Node, _settings: base.Settings) -> dict[str, int]:
        amounts = {"gpu-core": base.percents(node), "gpu-memory": base.units(node, 1)}
        return {f"{domain}/{name}": n for domain in DOMAINS for name, n in amounts.items()}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        for domain in DOMAINS:
            count = node.amount(f"{domain}/gpu-core") // 100
            found = nodes.divided(node, count, f"{domain}/gpu-memory", 1)
            if found:
                return found
        return ()

    def warnings(self, request: base.Request) -> tuple[str, ...]:
        found = []
        for asking in request.askings:
            core, memory = _resources(asking)
            if asking.get(core) >= 100 and asking.get(memory):
                found.append(f"{asking.path}: {memory} has no effect on whole cards")
            if not _writable(asking.name):
                found.append(f"{asking.path}: its name is too long for {CONTAINER}{asking.name}")
        return tuple(found)

    def marks(self, bound: base.Bound) -> base.Marks:
        chosen = {
            CONTAINER + container.name: records.indexes(container)
            for container in bound.grant.containers
            if _writable(container.name)
        }
        return base.Marks({ASSUMED: "true", **chosen}, {ASSUMED: "true"})

    def granted(self, request: base.Request, node: cards.Node) -> grants.Grant | None:
        demand, annotations = self.demand(request), request.pod.metadata.annotations
        if not any(name.startswith(CONTAINER) for name in annotations):
            return None
        places = {c.name: CONTAINER + c.name for c in demand.containers}
        return records.listed(request, node, demand, places)


def _demand(asking: reading.Asking) -> demands.Demand:
    core_name, memory_name = _resources(asking)
    core, memory = asking.get(core_name), asking.get(memory_name)
    if core and core % 100 == 0:
        return demands.Demand(cards=core // 100, exclusive=demands.Exclusive.CARD)
    if core > 100:
        instead = f"write {reading.around(core, 100)}"
        raise asking.refused(core_name, f"{core} is no number of whole cards", instead=instead)
    return demands.Demand(
        memory_mib=memory,
        compute_percent=core,
        compute_mode=demands.ComputeMode.FIXED if core else demands.ComputeMode.BEST_EFFORT,
    )


def _resources(asking: reading.Asking) -> tuple[str, str]:
    """The names of compute and memory in the one domain that the container uses."""
    domain, *others = dict.fromkeys(name.partition("/")[0] for name in asking.amounts)
    if others:
        second = next(name for name in asking.amounts if name.startswith(others[0]))
        problem = f"the container already names {domain}"
        raise asking.refused(second, problem, instead="use one of the two domains")
    return f"{domain}/gpu-core", f"{domain}/gpu-memory"


def _writable(container: str) -> bool:
    return len(_PREFIX) + len(container) <= _LONGEST_KEY
