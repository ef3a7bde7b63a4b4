"""What the check says of Partage's own plugin."""

from __future__ import annotations

import pytest

from partage.slurm import machine_facts
from tests.slurm import configurations

PLUGIN = "/usr/local/lib/partage/partage_spank.so"
MACHINE = configurations.facts(files={PLUGIN: machine_facts.File(machine_facts.Kind.OTHER)})
EPILOG = "Epilog=/usr/local/lib/partage/slurm-epilog\n"


def codes(plugstack: str, *, epilog: bool = True) -> list[str]:
    """Of what is found."""
    slurm = configurations.SLURM + configurations.NODE + (EPILOG if epilog else "")
    results = configurations.checked(slurm=slurm, plugstack=plugstack, machine=MACHINE)
    return [finding.code for finding in results]


@pytest.mark.parametrize("arguments", ["", " compute=none userns=allow"])
def test_a_plugin_that_is_required_is_right(arguments: str) -> None:
    """As install writes it."""
    assert codes(f"required {PLUGIN}{arguments}\n") == []


def test_an_optional_plugin_holds_nothing() -> None:
    """A task would start although its fence failed."""
    assert codes(f"optional {PLUGIN}\n") == ["optional-plugin"]
    assert codes("optional /usr/lib/other.so\n") == []


def test_a_job_has_to_end() -> None:
    """What it used would be lost, and its fence would stay."""
    assert codes(f"required {PLUGIN}\n", epilog=False) == ["no-epilog"]
    assert codes("", epilog=False) == []
