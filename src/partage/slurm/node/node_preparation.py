"""A node made ready for jobs: the table of cards, the fence's files, and where both are mounted.

Done as root when slurmd starts, and by the Prolog where that did not happen. To do it again does
no harm: jobs that run keep what they were started with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from partage.core import errors
from partage.devices import nvml
from partage.fence.levels import fixed_places
from partage.fence.library import libpartage, originals
from partage.fence.store import roots
from partage.slurm import slurm_programs
from partage.slurm.checks import configuration_check, machine_facts
from partage.slurm.configuration import config_files, gres, node_paths
from partage.slurm.node import card_table

LIBRARIES = Path("/var/lib/partage/lib")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LARGEST_LIST = 64 << 10  # bytes of /etc/ld.so.preload


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are; the defaults are those of a real node."""

    root: Path = node_paths.ROOT
    libraries: Path = LIBRARIES
    around: Path = Path(fixed_places.AROUND)
    preload: Path = Path(fixed_places.PRELOAD)


def own_node(
    configuration: config_files.Configuration, name: str, devices: Sequence[nvml.Device]
) -> tuple[gres.Node, machine_facts.Facts]:
    """The node that this machine is; ``name`` is needed only where it is several."""
    facts = configuration_check.facts_for(
        configuration,
        hosts=machine_facts.hosts(),
        version=slurm_programs.version(),
        devices=tuple(devices),
        no_devices="",
    )
    if not configuration.slurm.statements and configuration.findings:
        finding = configuration.findings[0]
        raise errors.InputError(finding.problem, instead=finding.remedy)
    nodes = _nodes(configuration, facts)
    chosen = [node for node in nodes if name in ("", node.name)]
    if len(chosen) != 1:
        names = ", ".join(node.name for node in nodes) or "none"
        raise errors.InputError(
            f"slurm.conf has no node that is this machine (its nodes here: {names})"
            if not chosen
            else f"this machine is several nodes of Slurm ({names})",
            instead="name the right one with --node",
        )
    return chosen[0], facts


def prepare(
    configuration: config_files.Configuration,
    devices: Sequence[nvml.Device],
    *,
    node: str,
    places: Places,
    measure: Callable[[str], int | None],
    environ: Mapping[str, str],
) -> card_table.Table:
    """Make everything that a job needs; ``measure`` says what a context costs on a card."""
    own, facts = own_node(configuration, node, devices)
    sharing, cards = card_table.cards(own, facts)
    try:
        root = roots.prepare(places.root)
        library = fixed_places.installed(libpartage.find(), places.libraries)
        libpartage.check(library)
        table = card_table.Table(
            boot=BOOT_ID.read_text().strip(),
            sharing=sharing,
            around=fixed_places.around(places.libraries),
            preload=root.path / fixed_places.LIST,
            library=library.path,
            places=_driver_places(places.libraries, environ),
            cards=card_table.with_costs(cards, _costs(root, cards, devices, measure)),
            silent=card_table.silent(own, facts),
        )
        _make_mount_points(places)
        _write(table.preload, _loaders_list(places.preload))
        _write(root.path / card_table.NAME, card_table.written(table))
    except OSError as error:
        raise errors.FenceError(
            f"{error.filename or places.root} cannot be written ({error.strerror})",
            instead="run this as root, and check that its file system has room",
        ) from error
    return table


def _nodes(
    configuration: config_files.Configuration, facts: machine_facts.Facts
) -> list[gres.Node]:
    try:
        return gres.nodes(configuration.slurm, configuration.gres, facts.hosts)
    except gres.Malformed as error:
        raise errors.InputError(
            f"{error.place.file}:{error.place.line}: {error}",
            instead="see `partage slurm check` for what to write",
        ) from error


def _driver_places(folder: Path, environ: Mapping[str, str]) -> tuple[card_table.Place, ...]:
    """The driver's files on this node: what programs find by name leads to the fence."""
    ours = fixed_places.substituted(libpartage.find(), folder)
    drivers = originals.find(environ)
    return tuple(
        card_table.Place(ours[name], drivers[name].resolve(), originals.BEHIND[name])
        for name in originals.BEHIND
        if name in ours and name in drivers
    )


def _costs(
    root: roots.Root,
    cards: Sequence[card_table.Card],
    devices: Sequence[nvml.Device],
    measure: Callable[[str], int | None],
) -> dict[str, int]:
    """What is known from before is kept: a card that a job fills has no room to measure in."""
    try:
        costs = card_table.context_costs((root.path / card_table.NAME).read_text())
    except OSError:
        costs = {}
    for uuids in card_table.devices_without_cost(cards, costs, devices).values():
        costs |= dict.fromkeys(uuids, measure(uuids[0]) or 0)
    return costs


def _make_mount_points(places: Places) -> None:
    """Files can be mounted only where something is; on the node itself both stay empty."""
    places.around.mkdir(mode=0o755, exist_ok=True)
    if not places.preload.exists():
        places.preload.touch(mode=0o644)
        places.preload.chmod(0o644)


def _loaders_list(preload: Path) -> str:
    """The fence before what programs of the node load anyway."""
    with preload.open("rb") as file:
        present = file.read(_LARGEST_LIST).decode(errors="surrogateescape")
    return f"{fixed_places.INSIDE}/{libpartage.NAME}\n{present}"


def _write(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text, errors="surrogateescape")
    scratch.chmod(0o644)
    scratch.replace(path)
