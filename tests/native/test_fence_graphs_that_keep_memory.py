"""Graphs that keep what they allocate run in a share as on a card of its size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import GIB

FINE, INVALID, FULL = "0", "1", "2"
# What each launch answers (or what else is told: clients/keepers.c).
SCENARIOS = {
    "two": [FINE] * 8,
    "three": [FINE] * 12,
    "one too many": [FINE, FINE, FULL] * 4,
    "captured": [FINE] * 12,
    "not freed": [FINE] * 2 + [INVALID] * 6,
    "freed late": [FINE] * 14,
    "freed by another": [FINE] * 14,
    "updated": [FINE] * 16,
    "updated by another": [FINE] * 9 + [FULL] + [FINE] * 8,
    "uploaded": [FINE] * 16,
    "made again": [FINE] * 16,
    "beside passing": [FINE] * 8,
    "beside others": [FINE] * 8 + [FULL] + [FINE] * 9 + [FULL],
}


@pytest.fixture(scope="module")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program."""
    return fenced.compiled(tmp_path_factory.mktemp("keepers") / "keepers", "keepers.c")


@pytest.fixture
def small_card(tmp_path: Path) -> Iterator[fenced.Machine]:
    """A machine whose card is as large as the share."""
    with fenced.machine(tmp_path / "small", "1x4GiB") as made:
        yield made


def answers(
    machine: fenced.Machine, keepers: Path, scenario: str, tenant: fenced.Tenant | None = None
) -> list[str]:
    """What the program was answered."""
    environment = tenant.environment if tenant else {}
    ran = machine.run(keepers, scenario, environment=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_share_answers_as_a_card_of_its_size(
    machine: fenced.Machine, small_card: fenced.Machine, keepers: Path, scenario: str
) -> None:
    """Launch by launch, with what the program frees, changes, uploads and uses beside it."""
    tenant = machine.tenant(memory_bytes=4 * GIB)
    assert answers(small_card, keepers, scenario) == SCENARIOS[scenario]
    assert answers(machine, keepers, scenario, tenant) == SCENARIOS[scenario]
    assert tenant.usage().peak_bytes <= 4 * GIB
