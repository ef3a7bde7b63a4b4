"""Reviews: what admission costs for each pod, from bytes to bytes.

5,000 nodes of 8 cards are known. Sixteen pods of 3 KB of different languages are reviewed in turns,
as a burst of workloads brings them. The floor is the decoding of the same body into plain objects,
which nobody can go without.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import msgspec

from bench.large_cluster import realistic_objects
from bench.measurement import durations, results
from partage.admission import known_cards, reviews
from partage.dialects import contract, memory_units, nodes

NODES = 5000
_PODS = 16
_ROUNDS = 2000
_AIM = 6.0
_REQUESTS: tuple[dict[str, int], ...] = (
    {"aliyun.com/gpu-mem": 3},
    {"nvidia.com/gpumem": 3000},
    {"partage.dev/memory-mib": 3000},
    {"tensorstack.dev/nvidia-gpu": 2},
    {"nvidia.com/gpu": 99},  # more than any node has: refused
)


def run() -> Iterator[results.Result]:
    """A line for each review."""
    cards = known_cards.KnownCards(memory_units.Unit(contract.Settings()))
    for name in realistic_objects.names(NODES):
        cards.put(msgspec.convert(realistic_objects.node(name), nodes.Node))
    reviewer = reviews.Reviews(cards, reviews.Options())
    bodies = [_body(i) for i in range(_PODS)]
    yield _line("a pod is completed", reviewer.complete, bodies)
    yield _line("a pod is judged", reviewer.judge, bodies)


def _line(what: str, review: Callable[[bytes], bytes], bodies: list[bytes]) -> results.Line:
    for body in bodies:
        review(body)  # each shape of demand is looked at once on all nodes, off this path
    reviewed, decoded = itertools.cycle(bodies), itertools.cycle(bodies)
    took_us, floor_us = durations.compare_us(
        lambda: review(next(reviewed)), lambda: msgspec.json.decode(next(decoded)), rounds=_ROUNDS
    )
    what = f"{what}, {len(bodies[0])} bytes, {NODES} nodes known"
    return results.Line(what=what, took_us=took_us, floor="decode", floor_us=floor_us, aim=_AIM)


def _body(number: int) -> bytes:
    pod = realistic_objects.pod(f"p{number}", _REQUESTS[number % len(_REQUESTS)])
    request = {
        "uid": f"{number:032x}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "default",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "request": request})
