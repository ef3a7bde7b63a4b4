"""Which cards the plugin is told of, from Slurm's files and the driver."""

from __future__ import annotations

import pytest

from partage.core import errors
from partage.devices import nvml
from partage.slurm import card_table, gres, machine_facts, statements

GIB = 1 << 30
PLACE = statements.Place("gres.conf")


def facts(*memory_gib: int) -> machine_facts.Facts:
    """Cards whose minor numbers are the reverse of their indices."""
    count = len(memory_gib)
    devices = [
        nvml.Device(index=i, uuid=f"GPU-{i}", minor=count - 1 - i, memory_mib=gib << 10, model="A")
        for i, gib in enumerate(memory_gib)
    ]
    files = {
        f"/dev/nvidia{minor}": machine_facts.File(machine_facts.Kind.CHARACTER, minor)
        for minor in range(count)
    }
    return machine_facts.Facts(hosts=("n",), version=None, files=files, devices=tuple(devices))


def node(amounts: str, *lines: gres.Line, detected: bool = False) -> gres.Node:
    """A node of slurm.conf with lines of gres.conf."""
    return gres.Node("n", PLACE, gres.amounts(amounts), lines, detected)


def line(name: str, *files: str, kind: str = "", count: int | None = None) -> gres.Line:
    """A line of gres.conf."""
    return gres.Line(PLACE, name, kind, files, count)


def test_each_card_has_its_own_size_and_count() -> None:
    """By the minor number of its file, not by the driver's index."""
    sharing, cards = card_table.cards(
        node(
            "gpu:a:2,shard:40",
            line("gpu", "/dev/nvidia0", kind="a"),
            line("gpu", "/dev/nvidia1", kind="a"),
            line("shard", "/dev/nvidia0", count=24),
            line("shard", "/dev/nvidia1", count=16),
        ),
        facts(16, 24),
    )
    assert sharing == "shard"
    assert [(card.number, card.uuid, card.memory_bytes, card.shards) for card in cards] == [
        (0, "GPU-1", 24 * GIB, 24),
        (1, "GPU-0", 16 * GIB, 16),
    ]


def test_shards_without_files_are_spread() -> None:
    """As Slurm does it."""
    gpus = line("gpu", "/dev/nvidia0", "/dev/nvidia1", kind="a")
    for shards in ([line("shard", count=32)], []):
        _, cards = card_table.cards(node("gpu:a:2,shard:32", gpus, *shards), facts(16, 16))
        assert [card.shards for card in cards] == [16, 16]


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (node("gpu:a:1", line("gpu", "/dev/nvidia0")), "neither shards nor mps"),
        (node("gpu:1,shard:1,mps:100", line("gpu", "/dev/nvidia0")), "both shards and mps"),
        (node("gpu:1,shard:1"), "does not say which device file"),
        (node("gpu:1,shard:1", line("gpu", "/dev/nvidia0"), detected=True), "which device file"),
        (node("gpu:1,shard:1", line("gpu", "/dev/nvidia9")), "no card that the driver knows"),
        (node("gpu:2,shard:33", line("gpu", "/dev/nvidia0", "/dev/nvidia1")), "33 shards"),
        (
            node(
                "gpu:1,shard:1",
                line("gpu", "/dev/nvidia0"),
                line("shard", "/dev/nvidia1", count=1),
            ),
            "is in no line of Name=gpu",
        ),
        (
            node("gpu:2,shard:2", line("gpu", "/dev/nvidia0"), line("gpu", "/dev/nvidia0")),
            "about the same card",
        ),
    ],
)
def test_files_that_contradict_themselves_make_no_table(described: gres.Node, reason: str) -> None:
    """It is said which, and where to look."""
    with pytest.raises(errors.InputError, match=reason):
        card_table.cards(described, facts(16, 16))


def test_costs_of_contexts_are_kept_from_one_table_to_the_next() -> None:
    """A card that is full cannot be measured."""
    cards = (card_table.Card(0, "GPU-0", GIB, 300, 1), card_table.Card(1, "GPU-1", GIB, 0, 1))
    text = "".join(
        f"card {c.number} {c.uuid} {c.memory_bytes} {c.context_bytes} {c.shards}\n" for c in cards
    )
    costs = card_table.context_costs(f"partage\n{text}end\ncard x\n")
    assert costs == {"GPU-0": 300}
    devices = facts(16, 16).devices or ()
    assert card_table.devices_without_cost(cards, costs, devices) == {"A/16384": ["GPU-1"]}
