"""The cards that a job was given as a whole, as the controller tells.

Such a card is nobody else's as long as the job lives, so its user may divide it further. A part of
a card cannot be divided: a fence holds the job to it already.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from partage.devices import nvml
from partage.slurm import slurm_programs
from partage.slurm.configuration import gres
from partage.slurm.jobs import cluster_cards
from partage.slurm.node import card_table, managed_cards


def given(
    job: int,
    nodes: Sequence[gres.Node],
    devices: Sequence[nvml.Device],
    *,
    user: str,
    ask: Callable[..., str] = slurm_programs.answer,
) -> frozenset[str]:
    """The uuids of the cards that a user's job has as a whole, and that this process may open.

    The number of the job is from the name of a cgroup, and everybody may make one; so the job must
    be the user's own.
    """
    files = {node.name: card_table.files_in_order(node) for node in nodes}
    whole = [
        files[card.node][card.index]
        for card in cluster_cards.read(ask).cards
        if card.index < len(files.get(card.node, ())) and _is_whole(card, job, user)
    ]
    numbers = set(managed_cards.minors([file for file in whole if _may_open(file)]))
    return frozenset(
        device.uuid for device in devices if device.uuid is not None and device.minor in numbers
    )


def _is_whole(card: cluster_cards.Card, job: int, user: str) -> bool:
    return any((part.id, part.user, part.resource) == (job, user, gres.GPU) for part in card.jobs)


def _may_open(file: str) -> bool:
    """Whether the kernel lets this process open a card: a step may have fewer than its job."""
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        pass  # allowed, and nothing is behind it
    return True
