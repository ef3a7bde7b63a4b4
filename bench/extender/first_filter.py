"""First filter: what the first filter of a process costs, in a process of its own.

``python -m bench.extender.first_filter NODES PODS`` fills a mirror without asking it
anything, then asks for a pod and prints, as one line of JSON, the longest stop and the whole
processor time of the first filter, and of the second, which asks for the same. What is made at the
first use (ranks, tables, regular expressions, modules) is in the first one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import msgspec

from bench.large_cluster import filled_mirror, realistic_objects
from bench.measurement import coroutines
from partage.scheduler import decisions
from partage.scheduler.binds import bind_states
from partage.scheduler.verbs import filter_history, filter_verb, own_answers

_SIZE_GIB = 7


class Stops(msgspec.Struct, frozen=True):
    """Milliseconds of processor time."""

    first_ms: float
    first_whole_ms: float
    second_ms: float


def in_a_new_process(nodes: int, pods: int) -> Stops:
    """Measured where nothing is warm."""
    command = [sys.executable, "-m", "bench.extender.first_filter", str(nodes), str(pods)]
    done = subprocess.run(command, check=True, capture_output=True)
    return msgspec.json.decode(done.stdout, type=Stops)


def main(nodes: int, pods: int) -> None:
    filled = filled_mirror.FilledMirror(filled_mirror.empty(), realistic_objects.names(nodes))
    filled.fill(pods)
    filled_mirror.freeze_garbage()
    mirror, clock = filled.mirror, time.monotonic
    decider = decisions.Decider(mirror, bind_states.Binds(mirror, clock=clock, hold_s=15.0))
    history = filter_history.FilterHistory(clock=clock)
    answers = own_answers.OwnAnswers(mirror.fleet, decider, limit=16)
    verb = filter_verb.Filter(mirror, decider, history, answers)
    bodies = [_body(filled, number) for number in range(2)]
    began_ns = time.process_time_ns()
    first_ms = coroutines.longest_step_ms(lambda: verb.filter(bodies[0]))
    whole_ms = (time.process_time_ns() - began_ns) / 1e6
    second_ms = coroutines.longest_step_ms(lambda: verb.filter(bodies[1]))
    print(json.dumps(msgspec.to_builtins(Stops(first_ms, whole_ms, second_ms))))


def _body(filled: filled_mirror.FilledMirror, number: int) -> bytes:
    limits = {realistic_objects.MEMORY: _SIZE_GIB}
    pod = realistic_objects.pod(f"first-{number}", limits, uid=f"first-{number}")
    return realistic_objects.body(pod, filled.source.sample(filled.names, len(filled.names)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
