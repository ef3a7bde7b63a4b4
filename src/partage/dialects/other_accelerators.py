"""Other accelerators: resources of vendors whose cards Partage does not share.

Their own plugins offer them and kube-scheduler counts them; Partage shows them and leaves them
alone. Whether an extended resource is one, its name says:

1. ``amd.com/gpu`` and ``huawei.com/Ascend*``, by their vendors' names;
2. any other name of a domain whose last part has a word for such a card: ``gpu``, ``npu``, ``tpu``,
   ``xpu``, ``dcu``, ``mlu`` or ``accelerator``, virtual ones (``vgpu``) and plurals among them. Of
   such a vendor only the domain is known: ``gpu-vendor.example/example-gpu``;
3. but no resource of a dialect, and nothing of Kubernetes itself (a name without a domain, as
   ``cpu`` or ``hugepages-2Mi``, or one of ``kubernetes.io``).
"""

from __future__ import annotations

import fnmatch
import functools
import re

from partage.core import errors, quantities
from partage.dialects import loads, nodes, pods, registry, rules

_KINDS = {"amd.com/gpu": "AMD GPU", "huawei.com/Ascend*": "Huawei NPU"}
_WORD = re.compile(r"(?<![a-z])v?(?:gpu|npu|tpu|xpu|dcu|mlu|accelerator)s?(?![a-z])")
_KUBERNETES = re.compile(r"(?:.*\.)?(?:kubernetes|k8s)\.io")


@functools.lru_cache(maxsize=1024)  # each pod of a cluster is asked about its resources
def kind(resource: str) -> str:
    """What kind of accelerator a resource counts; empty if it counts none, or a dialect's."""
    domain, _, name = resource.partition("/")
    names = registry.names()
    own = resource in names.resources | names.inert_resources | names.vendor_resources
    if not name or own or resource.startswith(names.own_prefix) or _KUBERNETES.fullmatch(domain):
        return ""
    by_vendor = (text for form, text in _KINDS.items() if fnmatch.fnmatchcase(resource, form))
    return next(by_vendor, domain if _WORD.search(name.lower()) else "")


def offered(node: nodes.Node) -> tuple[str, ...]:
    """The resources of a node that count other accelerators, by name."""
    return tuple(sorted(filter(kind, {*node.status.capacity, *node.status.allocatable})))


def taken(pod: pods.Pod) -> dict[str, int]:
    """How many of each resource a pod takes, as kube-scheduler counts it."""
    amounts = {name: _taken(pod, name) for name in pods.resources(pod) if kind(name)}
    return {name: amount for name, amount in amounts.items() if amount}


def _taken(pod: pods.Pod, resource: str) -> int:
    return loads.at_worst(pod, lambda resources: _amount(resources, resource))


def _amount(resources: pods.Resources, name: str) -> int:
    """What a container requests; where only a limit is written, that is the request."""
    amount = resources.requests.get(name, resources.limits.get(name, 0))
    try:
        return max(0, quantities.whole(rules.as_text(amount)))
    except errors.QuantityError:
        return 0
