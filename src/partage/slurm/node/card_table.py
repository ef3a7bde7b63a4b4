"""The table of cards: what the plugin of Slurm has to know of a node, before any job starts.

The plugin runs before each task and does not ask the driver. All that it needs beside what Slurm
tells is in this file: by the number that Slurm gives a card, its uuid, its memory and how many
shares of it gres.conf counts; and the files of the fence. It is text, one line for each thing,
which ``native/spank/card_table.c`` reads strictly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from partage.core import errors
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import gres

NAME = "cards"  # of the file, in the root of Slurm's tenants
FIRST_LINE = "partage-slurm-cards 1"


class Card(msgspec.Struct, frozen=True):
    """A card as Slurm and the driver know it."""

    number: int  # Slurm's, as SLURM_STEP_GPUS has it; not the one in the file's name
    uuid: str
    memory_bytes: int
    context_bytes: int = 0  # what one context costs; 0: nobody could measure it
    shares: int = 0  # of the whole card: shards, or mps, as gres.conf counts them


class Silent(msgspec.Struct, frozen=True):
    """A card of gres.conf that the driver cannot ask, as one that fell off the bus."""

    number: int
    file: str
    problem: str


class Place(msgspec.Struct, frozen=True):
    """One of the driver's files, and what stands in its place."""

    ours: Path
    target: Path
    behind: str


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """All that the plugin has to know."""

    boot: str  # of which start of the machine it is
    sharing: str  # shard or mps
    around: Path
    preload: Path
    library: Path
    cards: tuple[Card, ...]
    places: tuple[Place, ...] = ()
    silent: tuple[Silent, ...] = ()  # not told to the plugin: a job on one of them does not start


def written(table: Table) -> str:
    """As the plugin reads it."""
    places = [f"place {place.ours} {place.target} {place.behind}" for place in table.places]
    lines = [
        FIRST_LINE,
        f"boot {table.boot}",
        f"sharing {table.sharing}",
        *_paths(table),
        *places,
        *(
            f"card {c.number} {c.uuid} {c.memory_bytes} {c.context_bytes} {c.shares}"
            for c in table.cards
        ),
        "end",
    ]
    return "".join(f"{line}\n" for line in lines)


def context_costs(text: str) -> dict[str, int]:
    """What contexts cost by uuid, as an older table has it; what cannot be read is left out."""
    costs: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) == 6 and words[0] == "card" and words[4].isdecimal() and int(words[4]):
            costs[words[2]] = int(words[4])
    return costs


def cards(node: gres.Node, facts: machine_facts.Facts) -> tuple[str, tuple[Card, ...]]:
    """How a node's cards are shared, and the cards; raises an InputError for what contradicts.

    Cards that do not answer are left out, so that the jobs on the others go on.
    """
    sharing = _sharing(node)
    files = files_in_order(node)
    counts = _counts(node, sharing, files)
    missing = {card.number for card in silent(node, facts)}
    in_order = [
        _card(number, file, facts, counts[file])
        for number, file in enumerate(files)
        if number not in missing
    ]
    if not in_order:
        raise errors.DeviceError(
            "no-card",
            f"node {node.name}: no card answers ({silent(node, facts)[0].problem})",
            instead="run this again when one is back",
        )
    if len({card.uuid for card in in_order}) != len(in_order):
        raise _contradiction(node, "two lines of gres.conf are about the same card")
    return sharing, tuple(in_order)


def silent(node: gres.Node, facts: machine_facts.Facts) -> tuple[Silent, ...]:
    """Cards of a node that the driver counts and cannot ask; it does not even tell their files.

    A file that is no card's is another matter: there are no more of these than of such cards.
    """
    problems = [
        device.problem for device in facts.devices or () if device.minor is None and device.problem
    ]
    files = enumerate(files_in_order(node))
    missing = [(number, file) for number, file in files if facts.device(file) is None]
    if not 0 < len(missing) <= len(problems):
        return ()
    return tuple(Silent(number, file, "; ".join(problems)) for number, file in missing)


def files_in_order(node: gres.Node) -> list[str]:
    """The device files of a node's cards, in the order by which Slurm numbers the cards.

    It goes by the order of types in slurm.conf, and among the same type by that of gres.conf; the
    numbers in the files' names have no part in it.
    """
    if not node.files or node.detected:
        raise errors.InputError(
            f"node {node.name}: gres.conf does not say which device file each card is",
            instead="write the lines that `partage slurm gres-conf` prints, with AutoDetect=off",
        )
    types = [amount.type.lower() for amount in node.amounts if amount.name == gres.GPU]
    types += [line.type.lower() for line in node.of(gres.GPU)]
    return [
        file
        for kind in dict.fromkeys(types)
        for line in node.of(gres.GPU)
        for file in line.files
        if line.type.lower() == kind
    ]


def _paths(table: Table) -> list[str]:
    paths = {"around": table.around, "preload": table.preload, "library": table.library}
    places = [path for place in table.places for path in (place.ours, place.target)]
    for path in (*paths.values(), *places):
        if re.search(r"\s", str(path)):
            raise errors.InputError(
                f"the path {path} has a blank, and the plugin of Slurm cannot read that",
                instead="choose folders without blanks (--root, --library-folder)",
            )
    return [f"{name} {path}" for name, path in paths.items()]


def _sharing(node: gres.Node) -> str:
    names = {amount.name for amount in node.amounts} | {line.name for line in node.lines}
    sharings = [name for name in gres.SHARINGS if name in names]
    if len(sharings) != 1:
        what = "both shards and mps" if sharings else "neither shards nor mps"
        raise _contradiction(node, f"it has {what}")
    return sharings[0]


def _counts(node: gres.Node, sharing: str, files: Sequence[str]) -> dict[str, int]:
    """Of each card; a line that names no file is spread over all."""
    counts = dict.fromkeys(files, 0)
    lines = [(line.files or tuple(files), line.total) for line in node.of(sharing)]
    if not lines:
        total = sum(amount.count for amount in node.amounts if amount.name == sharing)
        lines = [(tuple(files), total)]
    for sharers, total in lines:
        if total % len(sharers):
            raise _contradiction(
                node, f"{total} {sharing} do not go evenly over {len(sharers)} cards"
            )
        for file in sharers:
            if file not in counts:
                raise _contradiction(node, f"{file} has {sharing} and is in no line of Name=gpu")
            counts[file] += total // len(sharers)
    if without := [file for file, count in counts.items() if not count]:
        raise _contradiction(node, f"{without[0]} has no shards")
    return counts


def _card(number: int, file: str, facts: machine_facts.Facts, shares: int) -> Card:
    device = facts.device(file)
    if device is None or device.uuid is None or not device.memory_mib:
        raise errors.InputError(
            f"{file} in gres.conf is no card that the driver knows"
            + (f" ({facts.no_devices})" if facts.no_devices else ""),
            instead="compare gres.conf with `partage slurm gres-conf`",
        )
    return Card(number, device.uuid, device.memory_mib * MIB, shares=shares)


def with_costs(table_cards: Iterable[Card], costs: dict[str, int]) -> tuple[Card, ...]:
    """The cards with what a context costs on each."""
    return tuple(
        msgspec.structs.replace(card, context_bytes=costs.get(card.uuid, 0)) for card in table_cards
    )


def devices_without_cost(
    table_cards: Iterable[Card], costs: dict[str, int], devices: Sequence[nvml.Device]
) -> dict[str, list[str]]:
    """Cards whose contexts have to be measured, by model and size: one of each is enough."""
    kinds: dict[str, list[str]] = {}
    models = {device.uuid: f"{device.model}/{device.memory_mib}" for device in devices}
    for card in table_cards:
        if card.uuid not in costs:
            kinds.setdefault(models[card.uuid], []).append(card.uuid)
    return kinds


def _contradiction(node: gres.Node, what: str) -> errors.InputError:
    return errors.InputError(
        f"node {node.name}: {what}", instead="see `partage slurm check` for what to write"
    )
