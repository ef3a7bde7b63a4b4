"""Filter verb: what a filter costs, from bytes to bytes and over HTTP.

5,000 nodes of 8 cards, partly filled; sixteen bodies with different pods of 3 KB and the names in
different orders, in turns, because kube-scheduler never sends the same list twice; one node changes
between two questions, and each question reserves a node besides. 5,000 names are what it sends with
``percentageOfNodesToScore: 100``, 500 what it sends by default.

The floor is the decoding of the same body, which nobody can go without; another body is decoded
right before the clock starts, so that the floor finds warm memory, which the filter does not. Over
HTTP there is one connection that is kept, the server is another process, and the client does as
little as it can; its time is by the clock, so a busy machine shows in it. The processor time of the
server is printed beside it.

A pod that fits nowhere gets a reason for each node, and a pod whose like was never seen a look at
each of them; on a full cluster in which no two nodes look alike these are the worst questions there
are. What counts for them is how long nothing else is answered: no stop should be longer than 20 ms.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator, Sequence

import msgspec

from bench.extender import first_filter, http_client
from bench.large_cluster import filled_mirror, realistic_objects
from bench.measurement import coroutines, durations, results
from cluster import api
from partage.scheduler import decisions, http_server, wire
from partage.scheduler.binds import bind_states
from partage.scheduler.verbs import filter_history, filter_verb, node_scores, own_answers

NODES = 5000
PODS = 3 * NODES
BODIES = 16
BEST = 16
_FLOOR = "decode"
_DECODE = msgspec.json.Decoder(wire.SetArgs).decode
_HOLD_S = 15.0
_STOP_MS = 20
_USUAL_BYTES = 20_000
_BLOCK = 100


def run() -> Iterator[results.Result]:
    """All lines."""
    filled = filled_mirror.FilledMirror(filled_mirror.empty(), realistic_objects.names(NODES))
    filled.fill(PODS)
    filled_mirror.freeze_garbage()
    verbs = Verbs(filled)
    with http_client.of_standalone_server(NODES, PODS) as client:
        for count in (NODES, 500):
            bodies = verbs.bodies(count)
            yield _bytes_to_bytes(verbs, bodies, count)
            yield from _over_http(client, bodies, count)
        yield from _prioritize(verbs, client)
        yield _nothing(client)
    yield _first()
    yield from _worst()


class Verbs:
    """The verbs over a filled mirror, and bodies to ask them with."""

    def __init__(self, filled: filled_mirror.FilledMirror) -> None:
        self.filled = filled
        mirror, clock = filled.mirror, time.monotonic
        binds = bind_states.Binds(mirror, clock=clock, hold_s=_HOLD_S)
        decider = decisions.Decider(mirror, binds)
        history = filter_history.FilterHistory(clock=clock)
        answers = own_answers.OwnAnswers(mirror.fleet, decider, limit=BEST)
        self._filter: http_server.Verb = filter_verb.Filter(
            mirror, decider, history, answers
        ).filter
        self._prioritize: http_server.Verb = node_scores.NodeScores(decider).prioritize

    def filter(self, body: bytes) -> bytes:
        """The answer of filter."""
        return coroutines.result(self._filter(body))

    def prioritize(self, body: bytes) -> bytes:
        """The answer of prioritize."""
        return coroutines.result(self._prioritize(body))

    def longest_stop_ms(self, body: bytes) -> float:
        """The longest stop while filter answers."""
        return coroutines.longest_step_ms(lambda: self._filter(body))

    def bodies(self, count: int) -> list[bytes]:
        """Sixteen bodies with so many names."""
        source, names = self.filled.source, self.filled.names
        return [
            realistic_objects.body(_pod(i, size_gib), source.sample(names, count))
            for i, size_gib in enumerate(realistic_objects.SIZES_GIB[:BODIES])
        ]


def _pod(number: int, size_gib: int) -> api.Object:
    return realistic_objects.pod(
        f"filter-{number}", {realistic_objects.MEMORY: size_gib}, uid=f"filter-{number:029}"
    )


def _bytes_to_bytes(verbs: Verbs, bodies: Sequence[bytes], count: int) -> results.Line:
    for body in bodies:
        verbs.filter(body)
    work, floor = itertools.cycle(bodies), itertools.cycle(bodies)
    warm = itertools.cycle([*bodies[1:], bodies[0]])
    took_us, floor_us = durations.compare_us(
        lambda: verbs.filter(next(work)),
        lambda: _DECODE(next(floor)),
        before_work=verbs.filled.change,
        before_floor=lambda: _DECODE(next(warm)),
        rounds=40 * BODIES,
    )
    what = f"filter of {count} names, bytes to bytes"
    return results.Line(what=what, took_us=took_us, floor=_FLOOR, floor_us=floor_us, aim=6)


def _over_http(
    client: http_client.Client, bodies: Sequence[bytes], count: int
) -> Iterator[results.Result]:
    requests = [http_client.request("/scheduler/filter", body) for body in bodies]
    for request in requests:
        answer = client.ask(request)
        assert b'"Error":""' in answer, answer[:200]  # a refusal would be quick
    work = itertools.cycle(requests)
    floor, warm = itertools.cycle(bodies), itertools.cycle([*bodies[1:], bodies[0]])
    cpu = http_client.Cpu(client)
    took_us, floor_us = durations.compare_us(
        lambda: cpu.during(lambda: client.ask(next(work))),
        lambda: _DECODE(next(floor)),
        before_work=client.change,
        before_floor=lambda: _DECODE(next(warm)),
        rounds=40 * BODIES,
    )
    what = f"filter of {count} names over HTTP"
    yield results.Line(what=what, took_us=took_us, floor=_FLOOR, floor_us=floor_us, aim=8)
    yield results.Line(
        what=f"filter of {count} names over HTTP, processor time of the server",
        took_us=cpu.median_us,
        floor=_FLOOR,
        floor_us=floor_us,
        aim=8,
    )


def _prioritize(verbs: Verbs, client: http_client.Client) -> Iterator[results.Result]:
    bodies = []
    for i, body in enumerate(verbs.bodies(NODES)):
        kept = msgspec.json.decode(verbs.filter(body))["NodeNames"]
        bodies.append(realistic_objects.body(_pod(i, realistic_objects.SIZES_GIB[i]), kept))
    work = itertools.cycle(bodies)
    sent = itertools.cycle([http_client.request("/scheduler/prioritize", body) for body in bodies])
    for what, ask in (
        ("bytes to bytes", lambda: verbs.prioritize(next(work))),
        ("over HTTP", lambda: client.ask(next(sent))),
    ):
        took_us = statistics.median(durations.timed_us(ask) for _ in range(20 * BODIES))
        yield results.Amount(
            what=f"prioritize of {BEST} names, {what}", amount=took_us / 1000, unit="ms"
        )


def _nothing(client: http_client.Client) -> results.Amount:
    """What HTTP itself costs; in blocks, as the kernel counts too coarsely for one request."""
    sent = http_client.request("/nothing", b" " * _USUAL_BYTES)
    cpu = http_client.Cpu(client)
    for _ in range(40):
        cpu.during(lambda: [client.ask(sent) for _ in range(_BLOCK)])
    what = f"a request of {_USUAL_BYTES} bytes that does nothing, processor time"
    return results.Amount(what=what, amount=cpu.median_us / _BLOCK, unit="us")


def _first() -> results.Amount:
    stops = first_filter.in_a_new_process(NODES, PODS)
    what = f"stop by the first filter of a process ({stops.first_whole_ms:.0f} ms in all)"
    return results.Amount(what=what, amount=stops.first_ms, unit="ms", aim=_STOP_MS)


def _unseen(verbs: Verbs) -> results.Amount:
    names = verbs.filled.source.sample(verbs.filled.names, NODES)
    bodies = [
        realistic_objects.body(_pod(100 + size_gib, size_gib), names) for size_gib in range(1, 8)
    ]
    stop_ms = statistics.median(map(verbs.longest_stop_ms, bodies))
    what = "stop by a filter for a size never seen"
    return results.Amount(what=what, amount=stop_ms, unit="ms", aim=_STOP_MS)


def _worst() -> Iterator[results.Amount]:
    filled = filled_mirror.FilledMirror(filled_mirror.empty(), realistic_objects.names(NODES))
    filled.fill_up(_left_gib(filled))
    filled_mirror.freeze_garbage()
    verbs = Verbs(filled)
    yield _unseen(verbs)
    pairs = {"aliyun.com/gpu-count": "2"}
    for what, pod in (
        ("too little memory", realistic_objects.pod("large", _memory(20), uid="large")),
        ("one card too few", realistic_objects.pod("pair", _memory(16), uid="pair", labels=pairs)),
    ):
        body = realistic_objects.body(pod, filled.source.sample(filled.names, NODES))
        yield from _refusals(what, verbs, body)


def _memory(size_gib: int) -> dict[str, str | int]:
    return {realistic_objects.MEMORY: size_gib}


def _left_gib(filled: filled_mirror.FilledMirror) -> Iterator[int]:
    """On each node one card has 8 to 15 GiB left, the others less than 8."""
    while True:
        left = [filled.source.randrange(8) for _ in range(realistic_objects.CARDS)]
        left[filled.source.randrange(realistic_objects.CARDS)] += 8
        yield from left


def _refusals(what: str, verbs: Verbs, body: bytes) -> Iterator[results.Amount]:
    began = time.perf_counter()
    first_ms = verbs.longest_stop_ms(body)
    whole_ms = 1000 * (time.perf_counter() - began)
    again_ms = statistics.median(verbs.longest_stop_ms(body) for _ in range(11))
    for when, stop_ms in (("first", first_ms), ("again", again_ms)):
        text = f"stop by a filter that fits nowhere, {what}, {when}"
        yield results.Amount(what=text, amount=stop_ms, unit="ms", aim=_STOP_MS)
    text = f"the first answer, {what}, from its beginning to its end"
    yield results.Amount(what=text, amount=whole_ms, unit="ms")
