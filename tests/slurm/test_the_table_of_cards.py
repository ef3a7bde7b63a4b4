"""Which cards the plugin is told of, from Slurm's files and the driver."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import errors
from partage.devices import nvml
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import gres, statements
from partage.slurm.node import card_table

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
    assert [(card.number, card.uuid, card.memory_bytes, card.shares) for card in cards] == [
        (0, "GPU-1", 24 * GIB, 24),
        (1, "GPU-0", 16 * GIB, 16),
    ]


def test_shards_without_files_are_spread() -> None:
    """As Slurm does it."""
    gpus = line("gpu", "/dev/nvidia0", "/dev/nvidia1", kind="a")
    for shards in ([line("shard", count=32)], []):
        _, cards = card_table.cards(node("gpu:a:2,shard:32", gpus, *shards), facts(16, 16))
        assert [card.shares for card in cards] == [16, 16]


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (node("gpu:a:1", line("gpu", "/dev/nvidia0")), "neither shards nor mps"),
        (node("gpu:1,shard:1,mps:100", line("gpu", "/dev/nvidia0")), "both shards and mps"),
        (node("gpu:1,shard:1"), "does not say which device file"),
        (node("gpu:1,shard:1", line("gpu", "/dev/nvidia0"), detected=True), "which device file"),
        (node("gpu:1,shard:1", line("gpu", "/dev/nvidia9")), "no card that the driver knows"),
        (
            node("gpu:2,shard:33", line("gpu", "/dev/nvidia0", "/dev/nvidia1")),
            "33 shard do not go evenly over 2 cards",
        ),
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


def with_lost(before: machine_facts.Facts, index: int) -> machine_facts.Facts:
    """The same machine, and one card fell off the bus."""
    lost = nvml.Device(index=index, problem="it is lost")
    devices = [lost if device.index == index else device for device in before.devices or ()]
    return msgspec.structs.replace(before, devices=tuple(devices))


def test_a_card_that_does_not_answer_is_left_out() -> None:
    """The driver does not even tell its file; the numbers of the others stay."""
    gpus = line("gpu", *(f"/dev/nvidia{minor}" for minor in range(3)), kind="a")
    described, after = node("gpu:a:3,shard:48", gpus), with_lost(facts(16, 16, 16), 1)
    _, cards = card_table.cards(described, after)
    assert [(card.number, card.uuid) for card in cards] == [(0, "GPU-2"), (2, "GPU-0")]
    [silent] = card_table.silent(described, after)
    assert (silent.number, silent.file) == (1, "/dev/nvidia1")
    assert "it is lost" in silent.problem


def test_a_lost_card_does_not_excuse_a_file_of_no_card() -> None:
    """With more such files than lost cards, nobody knows which file is wrong."""
    described = node("gpu:3,shard:3", line("gpu", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia9"))
    with pytest.raises(errors.InputError, match="no card that the driver knows"):
        card_table.cards(described, with_lost(facts(16, 16), 1))


def test_costs_of_contexts_are_kept_from_one_table_to_the_next() -> None:
    """A card that is full cannot be measured."""
    cards = (card_table.Card(0, "GPU-0", GIB, 300, 1), card_table.Card(1, "GPU-1", GIB, 0, 1))
    text = "".join(
        f"card {c.number} {c.uuid} {c.memory_bytes} {c.context_bytes} {c.shares}\n" for c in cards
    )
    costs = card_table.context_costs(f"partage\n{text}end\ncard x\n")
    assert costs == {"GPU-0": 300}
    devices = facts(16, 16).devices or ()
    assert card_table.devices_without_cost(cards, costs, devices) == {"A/16384": ["GPU-1"]}
