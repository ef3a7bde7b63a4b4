"""What is written on a namespace: read exactly, or nothing more is granted and the slip is told."""

from __future__ import annotations

import pytest

from partage.core import totals
from partage.dialects import namespaces

MOST = "partage.dev/most-"


def _read(**annotations: str) -> namespaces.Reading:
    written = {f"{MOST}{name}": text for name, text in annotations.items()}
    return namespaces.read(namespaces.Namespace(namespaces.Metadata("lab", written)))


def test_all_three_or_any_of_them() -> None:
    """What is not written has no limit."""
    assert _read(cards="4", memory="64Gi", compute="400") == namespaces.Reading(
        totals.Total(cards=4, memory_mib=65536, compute_percent=400)
    )
    assert _read(memory="1500M").total == totals.Total(memory_mib=1430)
    assert _read(cards="0", memory="0").total == totals.Total(cards=0, memory_mib=0)
    assert _read() == namespaces.Reading()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("memory", "64GB", "'64GB' is not a quantity; write 64G (decimal) or 64Gi (binary)"),
        ("memory", "64", "'64' is less than one MiB; write it with its unit, such as 64Gi"),
        ("memory", "-1Gi", "'-1Gi' is less than nothing; write an amount such as 64Gi, or 0"),
        ("memory", "", "'' is not a quantity"),
        ("cards", "1.5", "'1.5' is not a number; write a whole number such as 4, or 0"),
        ("cards", "-1", "'-1' is not between 0 and 1000000; write a whole number such as 4"),
        ("cards", "4Gi", "'4Gi' is not between 0 and 1000000"),
        ("compute", "400%", "'400%' is not a number; write a whole number such as 400, or 0"),
        ("memroy", "64Gi", "a namespace has no such annotation; write partage.dev/most-memory"),
        ("gpus", "4", "a namespace has no such annotation; there are partage.dev/most-cards, "),
    ],
)
def test_a_slip_closes_the_namespace(name: str, text: str, says: str) -> None:
    """A limit that was meant must not become none; what is right beside it does not help."""
    reading = _read(**{name: text, "compute" if name == "cards" else "cards": "1"})

    assert reading.total is not None
    assert f"{MOST}{name}: {says}" in reading.total.problem
    assert f"{MOST}{name}: {says}" in reading.problem
    assert reading.problem.endswith("until then its pods get no more cards")


@pytest.mark.parametrize("name", ["partage.dev/mots-memory", "partage.dev/Most-Memory"])
def test_a_name_that_is_almost_right_is_a_slip_too(name: str) -> None:
    """Although it does not begin as a total does."""
    reading = namespaces.read(namespaces.Namespace(namespaces.Metadata("lab", {name: "1Gi"})))

    assert reading.total is not None
    said = f"{name}: a namespace has no such annotation; write partage.dev/most-memory"
    assert reading.total.problem == said


def test_other_words_of_ours_are_reported() -> None:
    """They limit nothing, and nobody can have meant a total by them."""
    written = {"partage.dev/policy": "spread", "mine": "stays", f"{MOST}cards": "1"}
    reading = namespaces.read(namespaces.Namespace(namespaces.Metadata("lab", written)))

    assert reading.total == totals.Total(cards=1)
    assert reading.problem.startswith("partage.dev/policy: a namespace has no such annotation")
