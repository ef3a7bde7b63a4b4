"""Lives of honest containers in simulated time, with all that makes honest programs look odd.

Their driver rounds, loads code late, and shows shared memory twice; a server of their own holds
what its clients count; processes start and end between the driver's answer and the fence's; pids
come again at once. A look is taken in the worst order: the driver first, the kernel a moment later,
and the fences last, when some that the kernel knew have ended.
"""

from __future__ import annotations

import collections
import dataclasses
import random

from partage.fence.watch import samples

MIB = 1 << 20
GIB = 1 << 30
CARD_BYTES = 80 * GIB
PAGE_BYTES = 2 * MIB
CONTEXT_BYTES = 300 * MIB  # as the agent measured it
CARDS = tuple(f"GPU-{n:08x}-0000-4000-8000-{n:012x}" for n in range(4))
PIDS = 2000  # so few that ids come again within seconds


@dataclasses.dataclass
class Program:
    """One process that uses CUDA."""

    pid: int
    inner_pid: int
    started_ticks: int
    begins_s: float
    ends_s: float
    counted_bytes: int  # that its fence counts, from its first allocation on
    real_bytes: int  # that it holds in the end, but for code that comes late
    late_bytes: int
    imported_bytes: int  # of another process; this driver shows it here as well
    behind: bool = True  # its fence knows it

    def lives(self, now_s: float) -> bool:
        """Whether it is there."""
        return self.begins_s <= now_s < self.ends_s

    def held_bytes(self, now_s: float) -> int:
        """What it really holds: code comes by and by."""
        age = min(1.0, (now_s - self.begins_s) / max(0.01, self.ends_s - self.begins_s))
        return self.real_bytes + int(self.late_bytes * age)


@dataclasses.dataclass
class Life:
    """One container, from its start to its end."""

    tenant: str
    uuid: str
    quota_bytes: int
    begins_s: float
    ends_s: float
    programs: list[Program]


class Node:
    """A node whose containers come and go; time is what the caller says."""

    def __init__(self, seed: int, containers: int) -> None:
        self.random = random.Random(seed)
        self.pids = collections.deque(range(2, PIDS))
        self.containers = containers
        self.lives: list[Life] = []
        self.begun = 0

    def advance(self, now_s: float) -> None:
        """Let containers end and others begin."""
        for life in [life for life in self.lives if life.ends_s <= now_s]:
            self.lives.remove(life)
            self.pids.extendleft(program.pid for program in life.programs)  # to come again at once
        while len(self.lives) < self.containers:
            self.lives.append(self._life(now_s))
            self.begun += 1

    def sample(self, now_s: float) -> samples.Sample:
        """One look, during which things go on."""
        later_s = now_s + self.random.uniform(0.0, 0.05)
        last_s = later_s + self.random.uniform(0.0, 0.05)
        holdings, used = [], dict.fromkeys(CARDS, 0)
        for life in self.lives:
            for program in (program for program in life.programs if program.lives(now_s)):
                held_bytes = program.held_bytes(now_s)
                used[life.uuid] += held_bytes
                shown_bytes = held_bytes + program.imported_bytes
                holdings.append(samples.Holding(life.uuid, program.pid, shown_bytes))
        living = [life for life in self.lives if life.begins_s <= later_s < life.ends_s]
        return samples.Sample(
            taken_s=now_s,
            cards=tuple(samples.Card(uuid, size) for uuid, size in used.items()),
            holdings=tuple(holdings),
            processes=tuple(
                samples.Process(
                    pid=program.pid,
                    started_ticks=program.started_ticks,
                    inner_pid=program.inner_pid,
                    tenant=life.tenant,
                )
                for life in living
                for program in life.programs
                if program.lives(later_s)
            ),
            tenants=tuple(_tenant(life, last_s) for life in living),
        )

    def _life(self, now_s: float) -> Life:
        pick = self.random
        begins_s = now_s + pick.uniform(0.0, 0.4)
        ends_s = begins_s + pick.choice((pick.uniform(0.05, 2.0), pick.expovariate(1 / 12.0)))
        life = Life(
            tenant=f"tenant-{self.begun}",
            uuid=pick.choice(CARDS),
            quota_bytes=pick.choice((2, 3, 4, 8)) * GIB,
            begins_s=begins_s,
            ends_s=ends_s,
            programs=[],
        )
        _fill(life, self)
        return life

    def program(self, life: Life, counted_bytes: int, *, inner_pid: int) -> Program:
        """A program that takes so much, contexts included."""
        pick = self.random
        taken_bytes = counted_bytes - CONTEXT_BYTES
        rounded_bytes = taken_bytes + min(taken_bytes // 20, pick.randrange(60) * PAGE_BYTES)
        begins_s = pick.uniform(life.begins_s, (life.begins_s + life.ends_s) / 2)
        return Program(
            pid=self.pids.popleft(),
            inner_pid=inner_pid,
            started_ticks=int(begins_s * 100),
            begins_s=begins_s,
            ends_s=pick.uniform(begins_s, life.ends_s),
            counted_bytes=counted_bytes,
            real_bytes=rounded_bytes + int(CONTEXT_BYTES * pick.uniform(0.9, 1.15)),
            late_bytes=int(CONTEXT_BYTES * pick.uniform(0.0, 0.8)),
            imported_bytes=0,
        )


def _fill(life: Life, node: Node) -> None:
    """The programs of a container, which together never count more than its quota."""
    pick = node.random
    count = pick.choice((1, 1, 1, 2, 4))
    each_bytes = life.quota_bytes // count
    for number in range(count):
        fullest = pick.choice((each_bytes, pick.randrange(CONTEXT_BYTES, each_bytes)))
        life.programs.append(node.program(life, fullest, inner_pid=1 + 6 * number))
    kind = pick.random()
    if kind < 0.2 and count > 1:
        _share_memory(life.programs)
    elif kind < 0.3:
        _serve(life, node)


def _share_memory(programs: list[Program]) -> None:
    """The first one's memory is opened by the others: counted once, shown by the driver in each."""
    owner, *others = programs
    for program in others:
        program.begins_s = max(program.begins_s, owner.begins_s)
        program.ends_s = max(program.begins_s, min(program.ends_s, owner.ends_s))
        program.imported_bytes = owner.real_bytes - CONTEXT_BYTES


def _serve(life: Life, node: Node) -> None:
    """A server of the tenant's own holds what its clients have counted (MPS, before Volta)."""
    clients = life.programs
    server = node.program(life, CONTEXT_BYTES, inner_pid=99)
    server.begins_s = min(client.begins_s for client in clients)
    server.ends_s = max(client.ends_s for client in clients)
    server.behind = False
    for client in clients:  # they come and go with it, so that it holds what they count
        client.begins_s, client.ends_s = server.begins_s, server.ends_s
        server.real_bytes += client.real_bytes - CONTEXT_BYTES
        client.real_bytes = 0
        client.late_bytes = 0
    life.programs = [*clients, server]


def _tenant(life: Life, now_s: float) -> samples.Tenant:
    counted = tuple(
        samples.Counted(program.inner_pid, program.counted_bytes)
        for program in life.programs
        if program.behind and program.lives(now_s)
    )
    share = samples.Share(
        uuid=life.uuid,
        quota_bytes=life.quota_bytes,
        context_bytes=CONTEXT_BYTES,
        counted=counted,
    )
    return samples.Tenant(life.tenant, (share,))
