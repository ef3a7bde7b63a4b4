"""Checks of certificates: whether they hold, and for how long."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings

# What Partage renews itself has a month left when it does, and what cert-manager renews as well; so
# three weeks mean that somebody has to be reminded, and one that nobody was.
_SOON = dt.timedelta(days=21)
_AT_ONCE = dt.timedelta(days=7)


def certificates(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Each certificate."""
    for certificate in facts.certificates:
        yield _judged(certificate, facts.now)


def _judged(certificate: cluster_facts.Certificate, now: dt.datetime) -> findings.Finding:
    remedy = "make a new one, or check what should have renewed it"
    begins, ends = certificate.begins, certificate.ends
    if begins is None or ends is None:
        return findings.problem(certificate.label, certificate.problem, remedy)
    if ends <= now:
        return findings.problem(certificate.label, f"it ended on {_moment(ends)}", remedy)
    if begins > now:
        return findings.problem(
            certificate.label, f"it begins on {_moment(begins)} only", "check the clocks"
        )
    text = f"it ends on {_moment(ends)}, in {_left(ends - now)}"
    if ends - now < _AT_ONCE:
        return findings.problem(certificate.label, text, remedy)
    if ends - now < _SOON:
        return findings.note(certificate.label, text, remedy)
    return findings.ok(certificate.label, text)


def _moment(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _left(time: dt.timedelta) -> str:
    return f"{time.days} days" if time.days > 1 else f"{time.total_seconds() / 3600:.0f} hours"
