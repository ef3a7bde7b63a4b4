"""GaiaGPU (tkestack): percent of compute and blocks of 256 MiB, held in user space.

Below 100 percent a container shares one card and must name memory too; whole hundreds are whole
cards. The limit is hard unless the pod carries ``vcuda-core-limit``: then the share is a guarantee,
and idle time can be used up to that ceiling. The original clamps a ceiling above 100 in silence;
here it is refused, as everything that would not be done as written.
"""

from __future__ import annotations

from typing import ClassVar

from partage.core import cards, demands, grants
from partage.dialects import contract, modes, nodes, pods, records, rules

CORE = "tencent.com/vcuda-core"
MEMORY = "tencent.com/vcuda-memory"
CEILING = "tencent.com/vcuda-core-limit"

TIME = "tencent.com/predicate-time"
INDEXES = "tencent.com/predicate-gpu-idx-"  # followed by the position in spec.containers
NODE = "tencent.com/predicate-node"
ASSIGNED = "tencent.com/gpu-assigned"

_BLOCK_MIB = 256


class Gaia(contract.Dialect):
    """GaiaGPU: gpu-manager and gpu-admission."""

    name = "gaia"
    resources: ClassVar = {CORE: rules.CORES, MEMORY: rules.units("blocks of 256 MiB")}
    annotation_prefixes = ("tencent.com/",)
    measures: ClassVar = {CORE: contract.COMPUTE, MEMORY: contract.memory(_BLOCK_MIB)}
    provisioner = contract.Provisioner(
        names=("elasticgpu.io/vcuda",), source="gpuShare", needs=(CORE, MEMORY)
    )
    record_annotations = frozenset({TIME, NODE, ASSIGNED})
    modes = (
        modes.Mode(
            labels=("nvidia-device-enable",),
            values=("enable",),
            note="brings gpu-manager's DaemonSet to the node; no effect on Partage",
        ),
    )

    def demand(self, request: contract.Request) -> demands.PodDemand:
        ceiling = rules.annotation_number(request.pod, CEILING, rules.PERCENT) or 0
        containers = contract.containers(request, lambda asking: _demand(asking, ceiling))
        return demands.PodDemand(containers=containers, dialect=self.name)

    def offered(self, node: cards.Node, _settings: contract.Settings) -> dict[str, int]:
        return {CORE: contract.percents(node), MEMORY: contract.units(node, _BLOCK_MIB)}

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        return nodes.divided(node, node.amount(CORE) // 100, MEMORY, _BLOCK_MIB)

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        problem = f"{MEMORY} has no effect on whole cards"
        return tuple(
            contract.Caution(field=asking.path, problem=problem)
            for asking in request.askings
            if asking.get(CORE) >= 100 and asking.get(MEMORY)
        )

    def marks(self, bound: contract.Bound) -> contract.Marks:
        positions = pods.app_positions(bound.pod)
        chosen = {
            f"{INDEXES}{positions[container.name]}": records.indexes(container)
            for container in bound.grant.containers
            if container.name in positions
        }
        return contract.Marks(
            {
                TIME: str(bound.now_ns),
                NODE: bound.node.name,
                ASSIGNED: "false",
                **chosen,
            }
        )

    def assigned(self) -> dict[str, str]:
        return {ASSIGNED: "true"}

    def granted(self, request: contract.Request, node: cards.Node) -> grants.Grant | None:
        demand, pod = self.demand(request), request.pod
        if not any(name == NODE or name.startswith(INDEXES) for name in pod.metadata.annotations):
            return None
        records.same_node(pod, NODE, node)
        positions = pods.app_positions(pod)
        annotations_by_container = {
            c.name: f"{INDEXES}{positions.get(c.name, c.name)}" for c in demand.containers
        }
        return records.listed(request, node, demand, annotations_by_container)


def _demand(asking: rules.Asking, ceiling: int) -> demands.Demand:
    core, memory = asking.get(CORE), asking.get(MEMORY)
    if not core:
        problem = "memory alone is not enough"
        raise asking.refused(MEMORY, problem, instead=f"add {CORE}, 1 to 99")
    if core % 100 == 0:
        return demands.Demand(cards=core // 100, exclusive=demands.Exclusive.CARD)
    if core > 100:
        instead = f"write {rules.around(core, 100)}"
        raise asking.refused(CORE, f"{core} is not a number of whole cards", instead=instead)
    if not memory:
        problem = "a share of a card needs memory too"
        raise asking.refused(CORE, problem, instead=f"add {MEMORY}, in blocks of 256 MiB")
    if ceiling and ceiling < core:
        problem = f"the ceiling {ceiling} is below {core}, which {asking.path} asks for"
        raise rules.annotation_error(CEILING, problem, instead=f"write {core} to 100")
    return demands.Demand(
        memory_mib=_BLOCK_MIB * memory,
        compute_percent=core,
        compute_ceiling_percent=ceiling,
        compute_mode=demands.ComputeMode.BURST if ceiling else demands.ComputeMode.FIXED,
    )
