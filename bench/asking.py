"""Asking: what a filter costs, from bytes to bytes and over HTTP.

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

from bench import coroutines, first, http_client, manifests, measuring, worlds
from cluster import api
from partage.scheduler import deciding, filtering, questions, serving, wire

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


def run() -> Iterator[measuring.Result]:
    """All lines."""
    world = worlds.World(worlds.empty(), manifests.names(NODES))
    world.fill(PODS)
    worlds.settle_down()
    asked = Questions(world)
    with http_client.standing(NODES, PODS) as client:
        for count in (NODES, 500):
            bodies = asked.bodies(count)
            yield _bytes_to_bytes(asked, bodies, count)
            yield from _over_http(client, bodies, count)
        yield from _prioritize(asked, client)
        yield _nothing(client)
    yield _first()
    yield from _worst()


class Questions:
    """A world, the verbs over it, and bodies to ask with."""

    def __init__(self, world: worlds.World) -> None:
        self.world = world
        decider = deciding.Decider(world.mirror, clock=time.monotonic, hold_s=_HOLD_S)
        asked = questions.Questions(clock=time.monotonic)
        verbs = filtering.Filter(decider, asked, limit=BEST)
        self._filter: serving.Verb = verbs.filter
        self._prioritize: serving.Verb = verbs.prioritize

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
        source, names = self.world.source, self.world.names
        return [
            manifests.body(_asking(i, size_gib), source.sample(names, count))
            for i, size_gib in enumerate(manifests.SIZES_GIB[:BODIES])
        ]


def _asking(number: int, size_gib: int) -> api.Object:
    return manifests.pod(
        f"asking-{number}", {manifests.MEMORY: size_gib}, uid=f"asking-{number:029}"
    )


def _bytes_to_bytes(asked: Questions, bodies: Sequence[bytes], count: int) -> measuring.Line:
    for body in bodies:
        asked.filter(body)
    work, floor = itertools.cycle(bodies), itertools.cycle(bodies)
    warm = itertools.cycle([*bodies[1:], bodies[0]])
    took_us, floor_us = measuring.compare_us(
        lambda: asked.filter(next(work)),
        lambda: _DECODE(next(floor)),
        before_work=asked.world.change,
        before_floor=lambda: _DECODE(next(warm)),
        rounds=40 * BODIES,
    )
    what = f"filter of {count} names, bytes to bytes"
    return measuring.Line(what=what, took_us=took_us, floor=_FLOOR, floor_us=floor_us, aim=6)


def _over_http(
    client: http_client.Client, bodies: Sequence[bytes], count: int
) -> Iterator[measuring.Result]:
    requests = [http_client.request("/scheduler/filter", body) for body in bodies]
    for request in requests:
        answer = client.ask(request)
        assert b'"Error":""' in answer, answer[:200]  # a refusal would be quick
    work = itertools.cycle(requests)
    floor, warm = itertools.cycle(bodies), itertools.cycle([*bodies[1:], bodies[0]])
    cpu = http_client.Cpu(client)
    took_us, floor_us = measuring.compare_us(
        lambda: cpu.during(lambda: client.ask(next(work))),
        lambda: _DECODE(next(floor)),
        before_work=client.change,
        before_floor=lambda: _DECODE(next(warm)),
        rounds=40 * BODIES,
    )
    what = f"filter of {count} names over HTTP"
    yield measuring.Line(what=what, took_us=took_us, floor=_FLOOR, floor_us=floor_us, aim=8)
    yield measuring.Line(
        what=f"filter of {count} names over HTTP, processor time of the server",
        took_us=cpu.median_us,
        floor=_FLOOR,
        floor_us=floor_us,
        aim=8,
    )


def _prioritize(asked: Questions, client: http_client.Client) -> Iterator[measuring.Result]:
    bodies = []
    for i, body in enumerate(asked.bodies(NODES)):
        kept = msgspec.json.decode(asked.filter(body))["NodeNames"]
        bodies.append(manifests.body(_asking(i, manifests.SIZES_GIB[i]), kept))
    work = itertools.cycle(bodies)
    sent = itertools.cycle([http_client.request("/scheduler/prioritize", body) for body in bodies])
    for what, ask in (
        ("bytes to bytes", lambda: asked.prioritize(next(work))),
        ("over HTTP", lambda: client.ask(next(sent))),
    ):
        took_us = statistics.median(measuring.timed_us(ask) for _ in range(20 * BODIES))
        yield measuring.Amount(
            what=f"prioritize of {BEST} names, {what}", amount=took_us / 1000, unit="ms"
        )


def _nothing(client: http_client.Client) -> measuring.Amount:
    """What HTTP itself costs; in blocks, as the kernel counts too coarsely for one request."""
    sent = http_client.request("/nothing", b" " * _USUAL_BYTES)
    cpu = http_client.Cpu(client)
    for _ in range(40):
        cpu.during(lambda: [client.ask(sent) for _ in range(_BLOCK)])
    what = f"a request of {_USUAL_BYTES} bytes that does nothing, processor time"
    return measuring.Amount(what=what, amount=cpu.median_us / _BLOCK, unit="us")


def _first() -> measuring.Amount:
    stops = first.in_a_new_process(NODES, PODS)
    what = f"stop by the first filter of a process ({stops.first_whole_ms:.0f} ms in all)"
    return measuring.Amount(what=what, amount=stops.first_ms, unit="ms", aim=_STOP_MS)


def _unseen(asked: Questions) -> measuring.Amount:
    names = asked.world.source.sample(asked.world.names, NODES)
    bodies = [manifests.body(_asking(100 + size_gib, size_gib), names) for size_gib in range(1, 8)]
    stop_ms = statistics.median(map(asked.longest_stop_ms, bodies))
    what = "stop by a filter for a size never seen"
    return measuring.Amount(what=what, amount=stop_ms, unit="ms", aim=_STOP_MS)


def _worst() -> Iterator[measuring.Amount]:
    world = worlds.World(worlds.empty(), manifests.names(NODES))
    world.fill_up(_left_gib(world))
    worlds.settle_down()
    asked = Questions(world)
    yield _unseen(asked)
    pairs = {"aliyun.com/gpu-count": "2"}
    for what, pod in (
        ("too little memory", manifests.pod("large", _memory(20), uid="large")),
        ("one card too few", manifests.pod("pair", _memory(16), uid="pair", labels=pairs)),
    ):
        body = manifests.body(pod, world.source.sample(world.names, NODES))
        yield from _refusals(what, asked, body)


def _memory(size_gib: int) -> dict[str, str | int]:
    return {manifests.MEMORY: size_gib}


def _left_gib(world: worlds.World) -> Iterator[int]:
    """On each node one card has 8 to 15 GiB left, the others less than 8."""
    while True:
        left = [world.source.randrange(8) for _ in range(manifests.CARDS)]
        left[world.source.randrange(manifests.CARDS)] += 8
        yield from left


def _refusals(what: str, asked: Questions, body: bytes) -> Iterator[measuring.Amount]:
    began = time.perf_counter()
    first_ms = asked.longest_stop_ms(body)
    whole_ms = 1000 * (time.perf_counter() - began)
    again_ms = statistics.median(asked.longest_stop_ms(body) for _ in range(11))
    for when, stop_ms in (("first", first_ms), ("again", again_ms)):
        text = f"stop by a filter that fits nowhere, {what}, {when}"
        yield measuring.Amount(what=text, amount=stop_ms, unit="ms", aim=_STOP_MS)
    text = f"the first answer, {what}, from its beginning to its end"
    yield measuring.Amount(what=text, amount=whole_ms, unit="ms")
