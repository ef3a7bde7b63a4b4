"""What the check says of Partage's own plugin."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import libraries, parts
from partage.slurm import slurm_programs
from partage.slurm.checks import machine_facts, plugin_versions
from partage.slurm.configuration import findings
from tests.slurm import configurations, held_slurm

PLUGIN = "/usr/local/lib/partage/partage_spank.so"
MACHINE = configurations.facts(files={PLUGIN: machine_facts.File(machine_facts.Kind.OTHER)})
PROLOG, EPILOG = (f"/usr/local/lib/partage/slurm-{name}" for name in ("prolog", "epilog"))


def codes(
    plugstack: str, *, scripts: str = configurations.SCRIPTS, machine: machine_facts.Facts = MACHINE
) -> list[str]:
    """Of what is found."""
    slurm = configurations.SLURM + configurations.NODE + scripts
    results = configurations.checked(slurm=slurm, plugstack=plugstack, machine=machine)
    return [finding.code for finding in results]


@pytest.mark.parametrize("arguments", ["", " compute=none userns=allow"])
def test_a_plugin_that_is_required_is_right(arguments: str) -> None:
    """As install writes it."""
    assert codes(f"required {PLUGIN}{arguments}\n") == []


def test_an_optional_plugin_holds_nothing() -> None:
    """A task would start although its fence failed."""
    assert codes(f"optional {PLUGIN}\n") == ["optional-plugin"]


@pytest.mark.parametrize("plugstack", ["", "optional /usr/lib/other.so\n"])
def test_without_the_plugin_nothing_is_held(plugstack: str) -> None:
    """Slurm only counts; on a node without shares of cards there is nothing to hold."""
    [finding] = configurations.checked(plugstack=plugstack)
    assert (finding.code, finding.severity) == ("not-held", findings.Severity.NOTE)
    assert finding.remedy == "run `partage slurm install`"

    whole = configurations.SLURM + configurations.NODE.replace(",shard", "").replace(":32", "")
    gres = configurations.GRES.replace("NodeName=gpu7 Name=shard Count=32\n", "")
    assert configurations.checked(slurm=whole, gres=gres, plugstack=plugstack) == []


def test_a_job_has_to_end() -> None:
    """What it used would be lost, and its fence would stay."""
    assert codes(f"required {PLUGIN}\n", scripts=f"Prolog={PROLOG}\n") == ["no-epilog"]
    assert codes("", scripts="") == ["not-held"]


def test_a_node_has_to_be_prepared() -> None:
    """Jobs would not start after a restart, unless somebody else prepares the node."""
    slurm = configurations.SLURM + configurations.NODE + f"Epilog={EPILOG}\n"
    plugstack = f"required {PLUGIN}\n"

    [finding] = configurations.checked(slurm=slurm, plugstack=plugstack, machine=MACHINE)

    assert (finding.code, finding.severity) == ("no-prolog", findings.Severity.NOTE)


@pytest.mark.parametrize(("path", "code"), [(PROLOG, "no-prolog"), (EPILOG, "no-epilog")])
def test_scripts_that_are_missing(path: str, code: str) -> None:
    """slurmd would take the node out of use; a machine that is no node does not run them."""
    missing = {path: machine_facts.File(machine_facts.Kind.MISSING)}
    machine = msgspec.structs.replace(MACHINE, files={**MACHINE.files, **missing})
    elsewhere = msgspec.structs.replace(machine, hosts=("login",))

    assert codes(f"required {PLUGIN}\n", machine=machine) == [code]
    assert codes(f"required {PLUGIN}\n", machine=elsewhere) == ["no-node"]


def test_a_plugin_of_another_slurm() -> None:
    """Both versions are named; a plugin that does not tell its own is not judged."""
    machine = msgspec.structs.replace(MACHINE, built_for={PLUGIN: configurations.OLD})
    slurm = configurations.SLURM + configurations.NODE + configurations.SCRIPTS
    plugstack = f"required {PLUGIN}\n"

    [finding] = configurations.checked(slurm=slurm, plugstack=plugstack, machine=machine)

    assert (finding.code, finding.line) == ("other-slurm", 1)
    assert "is built for Slurm 22.05, and Slurm 24.11 does not load it" in finding.problem
    same = msgspec.structs.replace(machine, built_for={PLUGIN: configurations.NEW})
    assert codes(plugstack, machine=same) == []


def test_the_version_that_a_plugin_tells() -> None:
    """Ours is built for the Slurm of this machine."""
    held_slurm.need_plugin()
    plugin = (parts.LIB / "spank" / libraries.SPANK).read_bytes()

    version = plugin_versions.built_for(plugin)

    assert version is not None
    assert version == slurm_programs.version()


@given(st.binary(max_size=300))
def test_a_file_that_is_no_plugin(rest: bytes) -> None:
    """Nothing is told of it, and nothing fails."""
    assert plugin_versions.built_for(rest) is None
    assert plugin_versions.built_for(b"\x7fELF\x02\x01" + rest) is None


@given(st.data())
def test_a_damaged_plugin(data: st.DataObject) -> None:
    """A part that is anything, or an end that is missing: nothing fails."""
    held_slurm.need_plugin()
    plugin = (parts.LIB / "spank" / libraries.SPANK).read_bytes()
    table = int.from_bytes(plugin[40:48], "little")  # of its sections
    at = data.draw(st.integers(0, 64) | st.integers(table, len(plugin)))
    damage = data.draw(st.binary(min_size=1, max_size=16))

    plugin_versions.built_for(plugin[:at] + damage + plugin[at + len(damage) :])
    plugin_versions.built_for(plugin[:at])
