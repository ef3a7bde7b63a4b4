"""Elastic GPU: percent of compute and MiB of memory, under two domains.

Its scheduler and its agent were released with different domains, ``elasticgpu.com`` and
``elasticgpu.io``, so both are in use; they mean the same and both are accepted, though not mixed in
one container. Its claims are a dialect of their own
(:mod:`partage.dialects.families.elastic_claims`), as a pod asks by amounts or by claims.
"""

from __future__ import annotations

from typing import ClassVar

from partage.core import cards, demands, grants
from partage.dialects import contract, nodes, records, rules

DOMAINS = ("elasticgpu.io", "elasticgpu.com")
ASSUMED = "elasticgpu.io/assumed"
CONTAINER = "elasticgpu.io/container-"  # followed by the container's name

_LONGEST_KEY = 63  # characters after the slash of an annotation's name, by Kubernetes
_PREFIX = CONTAINER.partition("/")[2]


def measures(domain: str) -> dict[str, contract.Measure]:
    """What the resources of a domain count."""
    return {f"{domain}/gpu-core": contract.COMPUTE, f"{domain}/gpu-memory": contract.memory(1)}


class Elastic(contract.Dialect):
    """Elastic GPU, without claims."""

    name = "elastic"
    resources: ClassVar = {
        f"{domain}/{resource}": allowed
        for domain in DOMAINS
        for resource, allowed in (("gpu-core", rules.CORES), ("gpu-memory", rules.units("MiB")))
    }
    annotation_prefixes = ("elasticgpu.io/",)
    # It counts every MiB, which makes a kubelet slower (docs/performance.md, "The agent").
    served_by_default = False
    measures: ClassVar = {**measures(DOMAINS[0]), **measures(DOMAINS[1])}
    provisioner = contract.Provisioner(
        names=("elasticgpu.io/gpushare", "gpushare.provisioner.elasticgpu.io"), source="gpuShare"
    )

    def demand(self, request: contract.Request) -> demands.PodDemand:
        containers = contract.containers(request, _demand)
        return demands.PodDemand(containers=containers, dialect=self.name)

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        amounts = {"gpu-core": contract.percents(node), "gpu-memory": contract.units(node, 1)}
        return {f"{domain}/{name}": n for domain in DOMAINS for name, n in amounts.items()}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        for domain in DOMAINS:
            count = node.amount(f"{domain}/gpu-core") // 100
            node_cards = nodes.divided(node, count, f"{domain}/gpu-memory", 1)
            if node_cards:
                return node_cards
        return ()

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        cautions = []
        for asking in request.askings:
            core, memory = _resources(asking)
            if asking.get(core) >= 100 and asking.get(memory):
                problem = f"{memory} has no effect on whole cards"
                cautions.append(contract.Caution(field=asking.path, problem=problem))
            if not _writable(asking.name):
                problem = f"its name is too long for {CONTAINER}{asking.name}"
                cautions.append(contract.Caution(field=asking.path, problem=problem))
        return tuple(cautions)

    def marks(self, bound: contract.Bound) -> contract.Marks:
        chosen = {
            CONTAINER + container.name: records.indexes(container)
            for container in bound.grant.containers
            if _writable(container.name)
        }
        return contract.Marks({ASSUMED: "true", **chosen}, {ASSUMED: "true"})

    def granted(self, request: contract.Request, node: cards.Node) -> grants.Grant | None:
        demand, annotations = self.demand(request), request.pod.metadata.annotations
        if not any(name.startswith(CONTAINER) for name in annotations):
            return None
        annotations_by_container = {c.name: CONTAINER + c.name for c in demand.containers}
        return records.listed(request, node, demand, annotations_by_container)


def _demand(asking: rules.Asking) -> demands.Demand:
    core_name, memory_name = _resources(asking)
    core, memory = asking.get(core_name), asking.get(memory_name)
    if core and core % 100 == 0:
        return demands.Demand(cards=core // 100, exclusive=demands.Exclusive.CARD)
    if core > 100:
        instead = f"write {rules.around(core, 100)}"
        raise asking.refused(core_name, f"{core} is not a number of whole cards", instead=instead)
    return demands.Demand(
        memory_mib=memory,
        compute_percent=core,
        compute_mode=demands.ComputeMode.FIXED if core else demands.ComputeMode.BEST_EFFORT,
    )


def _resources(asking: rules.Asking) -> tuple[str, str]:
    """The names of compute and memory in the one domain that the container uses."""
    domain, *others = dict.fromkeys(name.partition("/")[0] for name in asking.amounts)
    if others:
        second = next(name for name in asking.amounts if name.startswith(others[0]))
        problem = f"the container already names {domain}"
        raise asking.refused(second, problem, instead="use one domain in a container")
    return f"{domain}/gpu-core", f"{domain}/gpu-memory"


def _writable(container: str) -> bool:
    return len(_PREFIX) + len(container) <= _LONGEST_KEY
