"""Checks of how cards are shared: shard or mps, their types, counts and flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partage.devices import nvml
from partage.slurm import slurm_programs
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import findings, gres, gres_lines, statements

TYPES_MATTER_BEFORE = slurm_programs.Version(23, 11)
_MOST_SHARDS_PER_GIB = 1024


def two_sharings(slurm: statements.Document, nodes: list[gres.Node]) -> Iterator[findings.Finding]:
    """Never mps and shard in one cluster: jobs then lose their cards, in every version."""
    remedy = "choose one of them for the whole cluster: shard, unless users need CUDA MPS"
    value, place = slurm.setting("GresTypes")
    if set(gres.SHARINGS) <= set(statements.words(value)):
        text = f"GresTypes={value} has both mps and shard, and jobs then run without their card"
        yield findings.problem("two-sharings", place, text, remedy)
    for node in nodes:
        names = {line.name for line in node.of(*gres.SHARINGS)}
        names |= {amount.name for amount in node.amounts if amount.name in gres.SHARINGS}
        if len(names) > 1:
            lines = node.of(*gres.SHARINGS)
            where = lines[-1].place if lines else node.place
            text = f"node {node.name} has both mps and shard"
            yield findings.problem("two-sharings", where, text, remedy)


def types(node: gres.Node, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """Old versions give a whole card beside shards of it, where cards have no type."""
    newer = facts.version is not None and facts.version >= TYPES_MATTER_BEFORE
    if newer or node.detected:  # what Slurm detects has a type
        return
    for line in node.of(gres.GPU):
        if line.type:
            continue
        text = "this card has no Type: Slurm before 23.11 then gives it away as a whole while jobs"
        remedy = f"write Type={_type(line, facts)} here, and gpu:{_type(line, facts)} in slurm.conf"
        report = findings.note if facts.version is None else findings.problem
        yield report("no-type", line.place, f"{text} have shards of it", remedy)


def mps_flags(node: gres.Node) -> Iterator[findings.Finding]:
    """Without the flag one card of a node is in use by mps at a time."""
    if len(node.files) < 2:
        return
    for line in node.of(gres.MPS):
        if gres.SHARED_BY_ALL not in line.flags:
            text = "only one card of the node can be shared at a time"
            remedy = f"add Flags={gres.SHARED_BY_ALL} to this line"
            yield findings.problem("mps-one-card", line.place, text, remedy)


def counts(node: gres.Node, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """Each card has its shards, and a shard is the same amount of memory on all of them."""
    for name in gres.SHARINGS:
        lines = node.of(name)
        if not lines or not node.files:
            continue
        trouble = [*_uneven(name, lines, node), *_files(name, lines, node)]
        yield from trouble
        if not trouble:
            yield from _sizes(name, lines, node, facts)


def _uneven(name: str, lines: list[gres.Line], node: gres.Node) -> Iterator[findings.Finding]:
    for line in lines:
        cards = len(line.files or node.files)
        if line.count is None or not line.count or line.count % cards:
            written = "no Count" if line.count is None else f"Count={line.count}"
            text = f"{written} does not give each of {cards} cards the same number of {name}"
            instead = cards * max(1, (line.count or 0) // cards)
            remedy = f"write Count={instead}, or one line with its own Count and File for each card"
            yield findings.problem(f"{name}-count", line.place, text, remedy)


def _files(name: str, lines: list[gres.Line], node: gres.Node) -> Iterator[findings.Finding]:
    """Where files are named, they are those of the cards, each once."""
    named = [file for line in lines for file in line.files]
    if not named:
        if len(lines) > 1:
            text = f"several lines of {name} have no File, and slurmd does not start"
            remedy = "write one line for all cards, or a File in each"
            yield findings.problem(f"{name}-count", lines[1].place, text, remedy)
        return
    for line in lines:
        for file in line.files:
            if file not in node.files:
                text = f"{file} is not the File of a gpu"
                remedy = f"write one of {', '.join(node.files[:8])}"
                yield findings.problem(f"{name}-count", line.place, text, remedy)
    if missing := [file for file in node.files if file not in named]:
        text = f"{', '.join(missing[:8])} has no {name}"
        remedy = f"add a line with Name={name}, Count and File={missing[0]}"
        yield findings.problem(f"{name}-count", lines[-1].place, text, remedy)


def _sizes(
    name: str, lines: list[gres.Line], node: gres.Node, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """Of the cards that the driver tells about."""
    shares = _by_card(lines, node, facts)
    if name == gres.MPS:
        yield from _percents(lines, shares)
        return
    sizes = [(count, card.memory_mib or 0) for _, card, count in shares]
    if not sizes or any(_are_parts_of_gib(sizes, per) for per in _candidates(sizes)):
        return
    smallest, largest = (
        bound(memory_mib // count for count, memory_mib in sizes) for bound in (min, max)
    )
    same = all(count * sizes[0][1] == sizes[0][0] * memory_mib for count, memory_mib in sizes)
    remedy = "; ".join(
        f"Count={gres_lines.count(card.memory_mib or 0, 1)} for {file}" for file, card, _ in shares
    )
    if same:
        text = f"a shard is {smallest} MiB, not a GiB"
        yield findings.note("shard-size", lines[0].place, text, f"write {remedy}")
    else:
        text = f"a shard is {smallest} MiB on one card and {largest} MiB on another"
        remedy = f"write a line with its own File for each card: {remedy}"
        yield findings.problem("shard-count", lines[0].place, text, remedy)


def _percents(
    lines: list[gres.Line], shares: list[tuple[str, nvml.Device, int]]
) -> Iterator[findings.Finding]:
    if any(count != gres_lines.MPS_PER_CARD for _, _, count in shares):
        text = "mps is not counted in percent of a card"
        remedy = f"write Count={gres_lines.MPS_PER_CARD} for each card"
        yield findings.note("mps-count", lines[0].place, text, remedy)


def _by_card(
    lines: list[gres.Line], node: gres.Node, facts: machine_facts.Facts
) -> list[tuple[str, nvml.Device, int]]:
    """How many each card has; cards that the driver does not tell about are left out."""
    shares: Mapping[str, int] = {
        file: line.total // len(line.files or node.files)
        for line in lines
        for file in line.files or node.files
    }
    cards = [(file, facts.device(file), count) for file, count in shares.items()]
    return [(file, card, count) for file, card, count in cards if card and card.memory_mib]


def _candidates(sizes: list[tuple[int, int]]) -> Iterator[int]:
    """How many shards a GiB may have, given the first card's."""
    count, memory_mib = sizes[0]
    nearest = round(count * 1024 / memory_mib)
    yield from (per for per in (nearest, nearest + 1) if 0 < per <= _MOST_SHARDS_PER_GIB)


def _are_parts_of_gib(sizes: list[tuple[int, int]], per_gib: int) -> bool:
    return all(gres_lines.count(memory_mib, per_gib) == count for count, memory_mib in sizes)


def _type(line: gres.Line, facts: machine_facts.Facts) -> str:
    devices = [facts.device(file) for file in line.files]
    model = next((device.model for device in devices if device and device.model), "")
    return gres_lines.type_name(model or "")
