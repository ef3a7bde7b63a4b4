"""First: what the first filter of a process costs, in a process of its own.

``python -m bench.first NODES PODS`` fills a world without asking it anything, then asks for a pod
and prints, as one line of JSON, the longest stop and the whole processor time of the first filter,
and of the second, which asks for the same. What is made at the first use (ranks, tables, regular
expressions, modules) is in the first one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import msgspec

from bench import coroutines, manifests, worlds
from partage.scheduler import deciding, filtering, questions

_SIZE_GIB = 7


class Stops(msgspec.Struct, frozen=True):
    """Milliseconds of processor time."""

    first_ms: float
    first_whole_ms: float
    second_ms: float


def in_a_new_process(nodes: int, pods: int) -> Stops:
    """Measured where nothing is warm."""
    command = [sys.executable, "-m", "bench.first", str(nodes), str(pods)]
    done = subprocess.run(command, check=True, capture_output=True)
    return msgspec.json.decode(done.stdout, type=Stops)


def main(nodes: int, pods: int) -> None:
    world = worlds.World(worlds.empty(), manifests.names(nodes))
    world.fill(pods)
    worlds.settle_down()
    decider = deciding.Decider(world.mirror, clock=time.monotonic, hold_s=15.0)
    verbs = filtering.Filter(decider, questions.Questions(clock=time.monotonic), limit=16)
    bodies = [_body(world, number) for number in range(2)]
    began_ns = time.process_time_ns()
    first_ms = coroutines.longest_step_ms(lambda: verbs.filter(bodies[0]))
    whole_ms = (time.process_time_ns() - began_ns) / 1e6
    second_ms = coroutines.longest_step_ms(lambda: verbs.filter(bodies[1]))
    print(json.dumps(msgspec.to_builtins(Stops(first_ms, whole_ms, second_ms))))


def _body(world: worlds.World, number: int) -> bytes:
    limits = {manifests.MEMORY: _SIZE_GIB}
    pod = manifests.pod(f"first-{number}", limits, uid=f"first-{number}")
    return manifests.body(pod, world.source.sample(world.names, len(world.names)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
