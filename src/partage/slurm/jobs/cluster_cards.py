"""The cards of a Slurm cluster and who has what of them, as its controller tells.

Nodes come from ``scontrol show node``. What a job has of which card comes from the job itself: the
controller of 22.05 counts cards and not shards among what a node has in use. Slurm numbers the
cards of a node by type, in the order in which the node names its types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from partage.slurm import slurm_programs
from partage.slurm.configuration import gres, host_ranges

_FIELD = r"(?:^|\s){}=(\S+)"
_DETAIL = re.compile(r"([a-z]+):(?:([^:(),]+):)?(\d+)\(([^()]*)\)", re.IGNORECASE | re.ASCII)
_PART = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
_MOST_CARDS = 1024  # of a node


class Job(msgspec.Struct, frozen=True):
    """What a job has of a card."""

    id: int
    user: str
    name: str
    amount: int
    resource: str  # gpu: the whole card


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One card; the total is None where Slurm does not tell it."""

    node: str
    state: str
    index: int  # as Slurm numbers the cards of a node
    type: str
    resource: str  # shard, mps; gpu where cards are not shared
    total: int | None
    jobs: tuple[Job, ...] = ()

    @property
    def used(self) -> int:
        """How much of it jobs have."""
        return sum(
            (self.total or 1) if job.resource == gres.GPU else job.amount for job in self.jobs
        )


class Cards(msgspec.Struct, frozen=True):
    """All of them, and the jobs that could not be put on one."""

    cards: tuple[Card, ...]
    problems: tuple[str, ...]


class _Node(msgspec.Struct, frozen=True):
    name: str
    cards: tuple[Card, ...]


class _QueuedJob(msgspec.Struct, frozen=True):
    """As ``squeue --json`` tells."""

    job_id: int
    nodes: str | None = None
    user_name: str | None = None
    name: str | None = None
    gres_detail: list[str] | None = None  # for each node; none before the job has one


class _Queue(msgspec.Struct, frozen=True):
    jobs: list[_QueuedJob]


class _Placed(msgspec.Struct, frozen=True):
    """What a job has on a node: its part of each card."""

    resource: str
    amounts: dict[int, int]


def read(ask: Callable[..., str] = slurm_programs.answer) -> Cards:
    """Ask the controller."""
    nodes = ask("scontrol", "--oneliner", "--details", "show", "node")
    return assembled(nodes, ask("squeue", "--json"))


def assembled(nodes: str, queue: str) -> Cards:
    """Cards and jobs together, from what the two programs print."""
    by_name = {node.name: node for node in _nodes(nodes)}
    jobs: dict[tuple[str, int], list[Job]] = {}
    problems: list[str] = []
    for job in _jobs(queue):
        try:
            for node, placed in _placed(job):
                _put(job, by_name[node], placed, jobs)
        except (KeyError, ValueError, host_ranges.BadRange):
            detail = ",".join(job.gres_detail or ())[:120]
            problems.append(f"job {job.job_id}: nobody can say on which card {detail!r} is")
    cards = (
        msgspec.structs.replace(card, jobs=tuple(jobs.get((card.node, card.index), ())))
        for node in by_name.values()
        for card in node.cards
    )
    return Cards(tuple(cards), tuple(problems))


def _nodes(text: str) -> Iterator[_Node]:
    for line in text.split("\n"):
        name, resources = _field(line, "NodeName"), _field(line, "Gres")
        if name and resources:
            state = _field(line, "State").lower()
            cards = _cards(name, state, gres.amounts(resources), _field(line, "GresUsed"))
            yield _Node(name, tuple(cards))


def _cards(node: str, state: str, amounts: Sequence[gres.Amount], in_use: str) -> Iterator[Card]:
    """One for each gpu; what is shared is the same for all cards of a type, or told for each."""
    shared = {amount.type: amount for amount in amounts if amount.name in gres.SHARINGS}
    whole = [amount for amount in amounts if amount.name == gres.GPU]
    totals = _totals(in_use)
    index = 0
    for amount in whole:
        share = shared.get(amount.type) or (shared.get("") if len(whole) == 1 else None)
        for _ in range(min(amount.count, _MOST_CARDS)):
            yield Card(
                node=node,
                state=state,
                index=index,
                type=amount.type,
                resource=share.name if share else gres.GPU,
                total=totals.get(index, _divided(share, amount)) if share else 1,
            )
            index += 1


def _divided(share: gres.Amount, cards: gres.Amount) -> int | None:
    return None if share.count % cards.count else share.count // cards.count


def _totals(in_use: str) -> dict[int, int]:
    """Of each card, where GresUsed tells: ``shard:a30:26(16/16,10/16)``, since 23.11."""
    for match in _DETAIL.finditer(in_use):
        parts = _PART.findall(match[4])
        if match[1].lower() in gres.SHARINGS and parts:
            return {index: int(total) for index, (_, total) in enumerate(parts)}
    return {}


def _jobs(text: str) -> Iterable[_QueuedJob]:
    try:
        queue = msgspec.json.decode(text, type=_Queue)
    except (msgspec.DecodeError, RecursionError) as error:
        raise slurm_programs.SlurmError(
            f"squeue --json does not tell its jobs as it should ({error})",
            instead="see what `squeue --json` prints; Slurm needs its plugin openapi for it",
        ) from error
    return [job for job in queue.jobs if job.gres_detail]  # those that hold something


def _placed(job: _QueuedJob) -> Iterator[tuple[str, _Placed]]:
    """One entry for each node of the job, in their order."""
    names = host_ranges.expanded(job.nodes or "")
    for node, detail in zip(names, job.gres_detail or (), strict=True):
        for match in _DETAIL.finditer(detail):
            if match[1].lower() in (gres.GPU, *gres.SHARINGS):
                yield node, _Placed(match[1].lower(), _amounts(int(match[3]), match[4]))


def _amounts(count: int, inside: str) -> dict[int, int]:
    """The part of each card: ``8(IDX:1)`` is all on one, ``20(16/16,4/16)`` is on both."""
    if parts := _PART.findall(inside):
        return {index: int(used) for index, (used, _) in enumerate(parts) if int(used)}
    indices = [*map(int, host_ranges.expanded(f"[{inside.removeprefix('IDX:')}]"))]
    if len(indices) == 1:
        return {indices[0]: count}
    return dict.fromkeys(indices, 1)  # whole cards


def _put(
    job: _QueuedJob, node: _Node, placed: _Placed, jobs: dict[tuple[str, int], list[Job]]
) -> None:
    for index, amount in placed.amounts.items():
        if index >= len(node.cards):
            raise ValueError(index)
        part = Job(job.job_id, job.user_name or "", job.name or "", amount, placed.resource)
        jobs.setdefault((node.name, index), []).append(part)


def _field(line: str, name: str) -> str:
    """The first value of a field; what users write comes later in the line."""
    match = re.search(_FIELD.format(name), line)
    return "" if match is None or match[1] == "(null)" else match[1]
