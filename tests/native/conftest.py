"""A simulated machine, a tenant with a GiB of its card, and a program of that tenant."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import fenced


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[fenced.Machine]:
    """A machine with two cards of 16 GiB."""
    with fenced.machine(tmp_path, "2x16GiB") as made:
        yield made


@pytest.fixture
def tenant(machine: fenced.Machine) -> fenced.Tenant:
    """A tenant with a GiB of the first card."""
    return machine.tenant()


@pytest.fixture
def process(tenant: fenced.Tenant) -> fenced.Process:
    """A program of the tenant, with a context."""
    return tenant.started()
