"""Metrics page: sums over the series of a page, as programs of Kubernetes write it."""

from __future__ import annotations

import re

_LABEL = re.compile(r'(\w+)="([^"]*)"')


def total(page: str, name: str, **labels: str) -> float:
    """The sum of all series of a name that have these labels, whatever others they have."""
    series = re.compile(rf"^{re.escape(name)}(?:\{{(.*)\}})? (\S+)$", re.MULTILINE)
    return sum(
        float(value)
        for written, value in series.findall(page)
        if labels.items() <= dict(_LABEL.findall(written)).items()
    )
