"""Checks of clocks, as far as they can be compared with the API server's.

Partage does not depend on equal clocks: each holder of a lease counts by its own. Certificates,
tokens and people who read logs do.
"""

from __future__ import annotations

from collections.abc import Iterator

from partage.cli.cluster.checks import groups
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings

_NOTED_S = 5.0
_WRONG_S = 300.0
_REMEDY = "let a time service set it (chrony, systemd-timesyncd)"


def clocks(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Clocks that are surely off; a slow answer is no proof of that."""
    off = {clock.owner: _text(clock) for clock in facts.clocks if _surely_s(clock) > _NOTED_S}
    wrong = {clock.owner for clock in facts.clocks if _surely_s(clock) > _WRONG_S}
    for owners, make in ((wrong, groups.problem), (off.keys() - wrong, groups.note)):
        if owners:
            names = [f"of {owner} ({off[owner]})" for owner in owners]
            text = "it differs from the API server's: certificates and tokens may be refused"
            yield make("clock", names, text, _REMEDY)
    if facts.clocks and not off:
        count = groups.counted(len(facts.clocks), "clock")
        yield findings.ok("clocks", f"{count} within {_NOTED_S:.0f} s of the API server's")


def _surely_s(clock: cluster_facts.Clock) -> float:
    return max(0.0, abs(clock.ahead_s) - clock.within_s)


def _text(clock: cluster_facts.Clock) -> str:
    return f"{abs(clock.ahead_s):.0f} s {'ahead' if clock.ahead_s > 0 else 'behind'}"
