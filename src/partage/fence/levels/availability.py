"""Which fences can be put up on this machine, why not the others, and what to do about it.

Nothing is started or changed. A level counts as available only if Partage can put it up: that the
machine has what a level needs helps nobody as long as no command uses it.
"""

from __future__ import annotations

from partage.fence.levels.catalog import Level, Probe
from partage.fence.library import libpartage

_NOT_YET = "Partage cannot put this fence up yet"
_REMEDY = "use hook, which holds memory and compute"


def probes(
    library: libpartage.Library | None = None, *, not_put_up: str = _NOT_YET, remedy: str = _REMEDY
) -> tuple[Probe, ...]:
    """One answer for each level, from the strongest; ``not_put_up`` is why two are missing."""
    return (
        Probe(Level.DRIVER, available=False, reason=not_put_up, remedy=remedy),
        Probe(Level.MPS, available=False, reason=not_put_up, remedy=remedy),
        _hook(library or libpartage.find()),
        Probe(Level.ADVISORY, available=True),
    )


def _hook(library: libpartage.Library) -> Probe:
    available = not library.problem
    return Probe(Level.HOOK, available, reason=library.problem, remedy=library.remedy)
