"""Which cards of this machine Slurm gives away: those that gres.conf names, by device files.

A card is known by the file's minor number. Where the files of this machine leave it open, all cards
are taken for Slurm's: a card that two give away is the worse mistake.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from partage.core import errors
from partage.devices import nvml
from partage.slurm.checks import machine_facts, settings_checks
from partage.slurm.configuration import config_files, findings, gres

_NUMBER = re.compile(r"nvidia(\d{1,4})", re.ASCII)  # how device files of cards are called


class Unclear(errors.PartageError):
    """Slurm's files cannot be read, so nobody knows which cards are Slurm's."""

    code = "bad-slurm-conf"


def own_nodes(main: Path, hosts: Sequence[str]) -> list[gres.Node]:
    """The nodes of slurm.conf that this machine is; raises Unclear if the files are damaged."""
    configuration = config_files.read(main, beside=(config_files.GRES,))
    documents = (configuration.slurm, configuration.gres)
    bad_lines = itertools.chain.from_iterable(map(settings_checks.written_well, documents))
    if finding := next(itertools.chain(configuration.findings, bad_lines), None):
        raise _unclear(finding)
    try:
        return gres.nodes(*documents, hosts)
    except gres.Malformed as error:
        written = findings.problem("bad-line", error.place, str(error), "write it as Slurm does")
        raise _unclear(written) from error


def managed(nodes: Sequence[gres.Node], devices: Sequence[nvml.Device]) -> frozenset[str]:
    """The uuids of the cards that Slurm gives away on these nodes."""
    uuids = {device.uuid for device in devices if device.uuid is not None}
    if any(map(_says_no_files, nodes)):
        return frozenset(uuids)
    files = [file for node in nodes for line in _lines(node) for file in line.files]
    numbers = set(minors(files))
    return frozenset(
        device.uuid
        for device in devices
        if device.uuid is not None and (device.minor in numbers or (files and device.minor is None))
    )


def minors(files: Sequence[str]) -> Iterator[int]:
    """Of the cards; a file that is missing has the number that its name says."""
    for name, file in machine_facts.files(files).items():
        number = _NUMBER.fullmatch(Path(name).name)
        if file.minor is not None:
            yield file.minor
        elif number:
            yield int(number[1])


def _says_no_files(node: gres.Node) -> bool:
    """Whether Slurm has cards there, and finds by itself which ones."""
    if node.detected:
        return True
    lines = node.of(gres.GPU)
    counts = any(amount.name == gres.GPU and amount.count for amount in node.amounts)
    return not all(line.files for line in lines) or (counts and not lines)


def _lines(node: gres.Node) -> list[gres.Line]:
    return node.of(gres.GPU, *gres.SHARINGS)


def _unclear(finding: findings.Finding) -> Unclear:
    where = f"{finding.file}:{finding.line}" if finding.line else finding.file
    return Unclear(
        f"{where}: {finding.problem}; so it is not known which cards Slurm gives away",
        instead="`partage slurm check` says what to write; unset SLURM_CONF if it is a mistake",
    )
