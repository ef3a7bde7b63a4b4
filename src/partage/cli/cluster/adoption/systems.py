"""Systems: what each of those that can be taken over is known by.

Objects are known by what they run or are labelled, as the doctor knows them; names are chosen by
charts and administrators. What is written here about HAMi and NVIDIA's GPU Operator is from their
charts.
"""

from __future__ import annotations

import msgspec

from partage.cli.cluster.facts import program_facts

GPUSHARE, HAMI, NVIDIA = "gpushare", "hami", "nvidia"


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    name: str
    title: str
    plugin: program_facts.Plugin
    deciders: tuple[str, ...] = ()  # words of the Deployment that decides about cards
    resources: tuple[str, ...]  # what its plugin puts on nodes
    node_annotations: tuple[str, ...] = ()  # by which its nodes tell of their cards
    pod_annotations: tuple[str, ...] = ()  # each says that the system itself knows the pod's cards
    remembers: bool = True  # whether it writes down which pod has which card
    limited: bool = False  # whether it holds containers to their shares, in a way of its own


def _plugin(word: str) -> program_facts.Plugin:
    return next(p for p in program_facts.PLUGINS if p.name.startswith(word))


SYSTEMS = {
    system.name: system
    for system in (
        System(
            name=GPUSHARE,
            title="gpushare",
            plugin=_plugin("gpushare"),
            deciders=("gpushare-schd-extender",),
            resources=("aliyun.com/gpu-mem", "aliyun.com/gpu-count"),
            pod_annotations=("ALIYUN_COM_GPU_MEM_IDX",),
        ),
        System(
            name=HAMI,
            title="HAMi",
            plugin=_plugin("HAMi"),
            deciders=("hami-scheduler",),
            resources=("nvidia.com/gpu",),
            node_annotations=("hami.io/node-nvidia-register",),
            pod_annotations=("hami.io/vgpu-devices-allocated",),
            limited=True,
        ),
        System(
            name=NVIDIA,
            title="NVIDIA's device plugin",
            plugin=_plugin("NVIDIA"),
            resources=("nvidia.com/gpu",),
            remembers=False,
        ),
    )
}
