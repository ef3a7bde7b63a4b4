"""Fencing a program that is about to start, and what it finds in its environment.

On one machine there are two levels: ``hook``, our library in every process of the program, and
``advisory``, where it is only told its share. ``driver`` and ``mps`` need somebody who stays, to
make a cgroup or to end a daemon, and nobody does here.

The fence of one's own program is made of one's own files: it holds programs that go wrong, not
users who want to get around it (README.md).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.core import cards, errors, grants
from partage.fence import advisory, hook, levels, library, limits, roots
from partage.fence.levels import Level
from partage.local import databases, entries, places, reaching, requests

LEVEL = "PARTAGE_FENCE"  # whoever has it has a share, held or only told

_NOT_HERE = "nobody stays beside a program to look after it"


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


def probes() -> tuple[levels.Probe, ...]:
    """Which levels there are for a program on this machine."""
    found = library.find()
    return (
        levels.Probe(Level.DRIVER, available=False, reason=_NOT_HERE),
        levels.Probe(Level.MPS, available=False, reason=_NOT_HERE),
        levels.Probe(
            Level.HOOK,
            available=not found.problem,
            reason=found.problem,
            remedy=found.remedy,
        ),
        levels.Probe(Level.ADVISORY, available=True),
    )


def check(minimum: Level) -> Level:
    """The level that a program will have; refuses what is weaker than somebody wants."""
    try:
        return levels.require(probes(), minimum)
    except errors.FenceError as error:
        raise errors.InputError(f"--fence: {error.what}", instead=error.instead) from error


def choose(program: str, minimum: Level | None, *, limited: bool) -> Chosen:
    """The fence of a program; refuses one that would run behind less than somebody wants.

    Who says nothing about it and asks for limits wants them kept, by the program or at least, where
    the fence does not get into that, by its children.
    """
    level = _kept(limited=limited) if minimum is None else check(minimum)
    hindrance = reaching.hindrance(program) if level is Level.HOOK else ""
    if not hindrance or minimum in (None, Level.ADVISORY):
        return Chosen(level, hindrance)
    raise errors.InputError(
        f"--fence: {program} would run without its fence: {hindrance}",
        instead="start it without --fence, or start a program that can have one",
    )


def put(
    place: places.Place,
    entry: entries.Entry,
    chosen: Chosen,
    *,
    context_bytes: Mapping[str, int],
    inherited: Mapping[str, str],
) -> Fenced:
    """Put the fence up."""
    if entry.container is None:
        raise errors.LedgerError(f"{entry.name} has no grant yet", instead="wait for it")
    asked = limits.granted(entry.container, context_bytes=context_bytes)
    subject = levels.Subject(name=entry.tenant)
    told = advisory.Advisory().apply(subject, asked).environment
    if chosen.level is Level.ADVISORY:
        return Fenced(chosen.in_force, told)
    try:
        applied = hook.Hook(roots.find(place.fence), inherited=inherited).apply(subject, asked)
    except OSError as error:
        raised = databases.Unwritable if databases.passing(error) else errors.FenceError
        raise raised(
            f"the fence of {entry.name} cannot be written: {error.strerror or error}",
            instead="see `partage doctor`; nothing was started",
        ) from error
    return Fenced(chosen.in_force, told | applied.environment)


def inside(environ: Mapping[str, str]) -> bool:
    """Whether this process belongs to a program that has a share."""
    return LEVEL in environ


def environment(entry: entries.Entry, fenced: Fenced, node: cards.Node) -> dict[str, str]:
    """All that the program is told."""
    if entry.grant is None or entry.container is None:
        return {}
    uuids = ",".join(dict.fromkeys(share.uuid for share in entry.container.shares))
    return {
        **_family(entry.grant, entry.container, node),
        "CUDA_VISIBLE_DEVICES": uuids,
        "NVIDIA_VISIBLE_DEVICES": uuids,
        "PARTAGE_NAME": entry.name,
        LEVEL: str(fenced.level),
        **{name: text for name, text in fenced.environment.items() if text},
    }


def _kept(*, limited: bool) -> Level:
    known = probes()
    level = levels.strongest(known)
    if level > Level.ADVISORY or not limited:
        return level
    hook_probe = next(probe for probe in known if probe.level is Level.HOOK)
    raise errors.InputError(
        f"nothing here keeps a program to its share: {hook_probe.reason}",
        instead=f"{hook_probe.remedy}; or start it without limits in force: --fence advisory",
    )


def _family(
    grant: grants.Grant, container: grants.ContainerGrant, node: cards.Node
) -> dict[str, str]:
    if grant.dialect == requests.DIALECT:
        return {}
    from partage.local import translating

    return translating.environment(grant, container, node)
