"""Checks of a node: its device files, and that slurm.conf and gres.conf say the same of it."""

from __future__ import annotations

from collections.abc import Iterator

from partage.slurm.checks import machine_facts
from partage.slurm.configuration import findings, gres, statements


def present(
    slurm: statements.Document, nodes: list[gres.Node], facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """This machine is a node, and it has cards."""
    if slurm.statements and not nodes:
        text = f"no NodeName or NodeHostname is this machine ({facts.hosts[0]})"
        remedy = f"write NodeName={facts.hosts[0]} Gres=..., as `partage slurm gres-conf` prints it"
        yield findings.note(
            "no-node", slurm.place, f"{text}: only the settings are checked", remedy
        )


def gres_types(slurm: statements.Document, node: gres.Node) -> Iterator[findings.Finding]:
    """Slurm knows only what GresTypes names."""
    value, place = slurm.setting("GresTypes")
    named = statements.words(value)
    names = [amount.name for amount in node.amounts] + [line.name for line in node.lines]
    needed = dict.fromkeys(names)
    if missing := [name for name in needed if name not in named]:
        text = f"GresTypes does not name {' and '.join(missing)}, which node {node.name} has"
        remedy = f"write GresTypes={','.join([*named, *missing])}"
        yield findings.problem("gres-types", place, text, remedy)


def devices(node: gres.Node, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """A File is a character device; with anything else jobs run without their card."""
    for line in node.of(gres.GPU):
        for file in line.files:
            kind = facts.files.get(file, machine_facts.File(machine_facts.Kind.MISSING)).kind
            if kind is machine_facts.Kind.CHARACTER:
                continue
            text = f"{file} is {kind}: jobs get no CUDA_VISIBLE_DEVICES for it"
            remedy = _right_files(facts)
            yield findings.problem("no-device", line.place, text, remedy)


def cards(node: gres.Node, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """The cards of gres.conf are those that the driver has."""
    if facts.devices is None:
        text = f"the driver cannot be asked about its cards ({facts.no_devices})"
        remedy = "run this on the node itself: counts were not compared with the cards' memory"
        yield findings.note("cards-unknown", node.place, text, remedy)
        return
    if node.detected or not node.of(gres.GPU):
        return
    yield from _unknown(node, facts)
    minors = {facts.files[file].minor for file in node.files if file in facts.files}
    for device in facts.devices:
        if device.minor is not None and not device.mig and device.minor not in minors:
            text = f"card {device.index} (/dev/nvidia{device.minor}) is in no line"
            remedy = f"add Name=gpu with File=/dev/nvidia{device.minor}, if Slurm is to have it"
            yield findings.note("card-unused", node.of(gres.GPU)[-1].place, text, remedy)


def each_once(node: gres.Node, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """No two lines about one card, under one name or two: Slurm would give it away twice."""
    for name in (gres.GPU, *gres.SHARINGS):
        seen: dict[int | str, str] = {}
        for line in node.of(name):
            for file in line.files:
                minor = facts.files.get(file, machine_facts.File(machine_facts.Kind.MISSING)).minor
                card = file if minor is None else minor
                if card in seen:
                    text = f"{file} is the same card as {seen[card]}, and counts twice as {name}"
                    remedy = f"remove one of the two, or {_right_files(facts)}"
                    yield findings.problem("card-twice", line.place, text, remedy)
                seen.setdefault(card, file)


def agreement(node: gres.Node) -> Iterator[findings.Finding]:
    """What slurm.conf counts is what gres.conf has, for each type."""
    if node.detected or not (node.amounts or node.lines):
        return
    in_slurm, in_gres = _compared(node.amounts), _compared(node.lines)
    right = _written(node)
    if in_slurm == in_gres:
        yield from _order(node, right)
        return
    text = f"Gres of node {node.name} is {_text(node.amounts)}, and gres.conf has {right}"
    yield findings.problem("gres-differs", node.place, text, f"write Gres={right}")


def _unknown(node: gres.Node, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """A device that the driver does not have: jobs that are given it find no card."""
    for line in node.of(gres.GPU):
        for file in line.files:
            kind = facts.files.get(file, machine_facts.File(machine_facts.Kind.MISSING)).kind
            if kind is machine_facts.Kind.CHARACTER and facts.device(file) is None:
                text = f"{file} is no card of the driver, which has {len(facts.devices or ())}"
                yield findings.problem("no-card", line.place, text, _right_files(facts))


def _order(node: gres.Node, right: str) -> Iterator[findings.Finding]:
    """Slurm numbers cards by the order of types in slurm.conf."""
    orders = [
        [*dict.fromkeys(part.type.lower() for part in parts if part.name == gres.GPU)]
        for parts in (node.amounts, node.lines)
    ]
    if orders[0] != orders[1]:
        text = "the types are in another order than in gres.conf, and so are Slurm's card numbers"
        yield findings.note("type-order", node.place, text, f"write Gres={right}")


def _compared(parts: tuple[gres.Amount, ...] | tuple[gres.Line, ...]) -> dict[str, int]:
    """Sums that both files can have: what is shared has the type of its card, written or not."""
    sums: dict[str, int] = {}
    for (name, kind), count in gres.summed(parts).items():
        key = name if name in gres.SHARINGS else f"{name}:{kind}"
        sums[key] = sums.get(key, 0) + count
    return sums


def _written(node: gres.Node) -> str:
    """The sums of gres.conf as slurm.conf has them."""
    types = {line.type.lower(): line.type for line in node.lines}
    whole = [
        gres.Amount(name, types.get(kind, kind), count)
        for (name, kind), count in gres.summed(node.lines).items()
        if name not in gres.SHARINGS
    ]
    shared = [
        gres.Amount(name, "", sum(line.total for line in node.of(name)))
        for name in dict.fromkeys(line.name for line in node.of(*gres.SHARINGS))
    ]
    return _text((*whole, *shared))


def _text(amounts: tuple[gres.Amount, ...]) -> str:
    return ",".join(map(str, amounts)) or "nothing"


def _right_files(facts: machine_facts.Facts) -> str:
    minors = [device.minor for device in facts.devices or () if device.minor is not None]
    files = ", ".join(f"/dev/nvidia{minor}" for minor in sorted(minors)[:8])
    return f"write one of {files}" if files else "write the card's file, such as /dev/nvidia0"
