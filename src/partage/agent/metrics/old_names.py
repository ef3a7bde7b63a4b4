"""Old names: the same numbers as the systems before called them, so that dashboards go on working.

Names, labels and units are theirs, one module each. What they tell as rates is computed between two
scrapes, so the first one lacks it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from prometheus_client import core

from partage.agent import reports
from partage.agent.metrics import elastic_names, gpu_manager_names, hami_names, old_rows
from partage.core import errors

Family = Callable[[reports.Report, old_rows.Rates], Iterator[core.Metric]]

FAMILIES: dict[str, Family] = {
    "hami": hami_names.metrics,
    "elastic": elastic_names.metrics,
    "gpu-manager": gpu_manager_names.metrics,
}


def families(names: Collection[str]) -> tuple[Family, ...]:
    """What to tell for these systems."""
    unknown = sorted(set(names) - FAMILIES.keys())
    if unknown:
        raise errors.InputError(
            f"no old metric names are known for {', '.join(unknown)}",
            instead=f"choose from {', '.join(FAMILIES)}",
        )
    return tuple(family for name, family in FAMILIES.items() if name in names)
