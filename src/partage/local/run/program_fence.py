"""The fence of a program that is about to start, and what it finds in its environment.

On one machine there are two levels: ``hook``, our library in every process of the program, and
``advisory``, where it is only told its share. ``driver`` and ``mps`` need a process that stays, to
make a cgroup or to end a daemon, and ``partage run`` leaves none behind.

The fence of a user's program is made of the user's own files: it holds programs that go wrong, not
users who want to get around it (README.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.core import cards, errors, grants
from partage.fence.levels import advisory, availability, catalog, hook
from partage.fence.levels.catalog import Level
from partage.fence.library import libpartage
from partage.fence.store import limits, roots
from partage.local.ledger import database
from partage.local.requests import requests
from partage.local.run import fence_reach
from partage.local.state import disk_problems, entries, location

LEVEL = "PARTAGE_FENCE"  # a process that has it has a share, held or only told

_NOT_HERE = "`partage run` leaves no process behind that could manage this"


class Chosen(msgspec.Struct, frozen=True):
    """The fence that a program will have."""

    level: Level  # that is put up, for the children of a program that it does not reach
    hindrance: str  # what keeps it out of the program itself

    @property
    def in_force(self) -> Level:
        """The level that the program itself is behind."""
        return Level.ADVISORY if self.hindrance else self.level


class Fenced(msgspec.Struct, frozen=True):
    """A fence that holds as soon as the program runs with the environment."""

    level: Level  # in force
    environment: dict[str, str]


def probes() -> tuple[catalog.Probe, ...]:
    """Which levels there are for a program on this machine."""
    return availability.probes(not_put_up=_NOT_HERE, remedy="")


def check(minimum: Level) -> Level:
    """The level that a program will have; refuses what is weaker than somebody wants."""
    try:
        return catalog.require(probes(), minimum)
    except errors.FenceError as error:
        raise errors.InputError(f"--fence: {error.what}", instead=error.instead) from error


def choose(program: str, minimum: Level | None, *, limited: bool) -> Chosen:
    """The fence of a program; refuses one that would run behind less than somebody wants.

    Without a minimum, limits that are asked for must be kept, by the program or at least, where the
    fence does not get into that, by its children.
    """
    level = _kept(limited=limited) if minimum is None else check(minimum)
    hindrance = fence_reach.hindrance(program) if level is Level.HOOK else ""
    if not hindrance or minimum in (None, Level.ADVISORY):
        return Chosen(level, hindrance)
    raise errors.InputError(
        f"--fence: {program} would run without its fence: {hindrance}",
        instead="start it without --fence, or start a program that can have one",
    )


def warning(program: str, chosen: Chosen) -> str:
    """Why a user cannot count on the fence of a program; empty if they can."""
    if chosen.hindrance:
        return f"the fence does not reach {program}: {chosen.hindrance}"
    if chosen.level is Level.ADVISORY:
        library = libpartage.find()
        return f"nothing keeps {program} to its share: {library.problem}; {library.remedy}"
    return ""


def put(
    state: location.StateFolder,
    entry: entries.Entry,
    chosen: Chosen,
    *,
    context_bytes: Mapping[str, int],
    inherited: Mapping[str, str],
) -> Fenced:
    """Put the fence up."""
    if entry.container is None:
        raise errors.LedgerError(f"{entry.name} has no grant yet", instead="wait for it")
    granted = limits.granted(_ordered(entry, entry.container), context_bytes=context_bytes)
    subject = catalog.Subject(name=entry.tenant)
    advice = advisory.Advisory().apply(subject, granted).environment
    if chosen.level is Level.ADVISORY:
        return Fenced(chosen.in_force, advice)
    try:
        applied = hook.Hook(roots.find(state.fence), inherited=inherited).apply(subject, granted)
    except OSError as error:
        what = f"the fence of {entry.name} cannot be written: {error.strerror or error}"
        remedy = f"{disk_problems.remedy(error)}; nothing was started"
        if database.passing(error):
            raise database.Unwritable(what, remedy=remedy) from error
        raise errors.FenceError(what, instead=remedy) from error
    return Fenced(chosen.in_force, advice | applied.environment)


def inside(environ: Mapping[str, str]) -> bool:
    """Whether this process belongs to a program that has a share."""
    return LEVEL in environ


def environment(entry: entries.Entry, fenced: Fenced, node: cards.Node) -> dict[str, str]:
    """All that the program is told."""
    if entry.grant is None or entry.container is None:
        return {}
    container = _ordered(entry, entry.container)
    uuids = ",".join(dict.fromkeys(share.uuid for share in container.shares))
    return {
        **_family(entry.grant, container, node),
        "CUDA_VISIBLE_DEVICES": uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids,
        "PARTAGE_NAME": entry.name,
        LEVEL: str(fenced.level),
        **{name: text for name, text in fenced.environment.items() if text},
    }


def _ordered(entry: entries.Entry, container: grants.ContainerGrant) -> grants.ContainerGrant:
    """With the cards in the order in which they were named: a program's first card is the first."""
    named = entry.demand.containers[0].demand.uuids
    order = {uuid: position for position, uuid in enumerate(named)}
    shares = sorted(container.shares, key=lambda share: order.get(share.uuid, len(order)))
    return msgspec.structs.replace(container, shares=tuple(shares))


def _kept(*, limited: bool) -> Level:
    levels = probes()
    level = catalog.strongest(levels)
    if level > Level.ADVISORY or not limited:
        return level
    hook_probe = next(probe for probe in levels if probe.level is Level.HOOK)
    raise errors.InputError(
        f"nothing here keeps a program to its share: {hook_probe.reason}",
        instead=f"{hook_probe.remedy}; or start it without limits in force: --fence advisory",
    )


def _family(
    grant: grants.Grant, container: grants.ContainerGrant, node: cards.Node
) -> dict[str, str]:
    if grant.dialect == requests.DIALECT:
        return {}
    from partage.local.requests import foreign_requests

    return foreign_requests.environment(grant, container, node)
