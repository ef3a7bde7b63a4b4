"""What pods ask for, with memory counted in the unit that the cluster uses."""

from __future__ import annotations

import msgspec

from partage.core import demands
from partage.dialects import contract, memory_units, pods, templates


class PodRequests:
    """Reads the requests of pods; what was read once is remembered."""

    def __init__(self, unit: memory_units.Unit) -> None:
        self._unit = unit
        self._templates = templates.Templates()

    @property
    def settings(self) -> contract.Settings:
        """The dialects' settings, with the unit of memory that the cluster counts in."""
        return self._unit.settings

    def read(self, pod: pods.Pod) -> templates.Reading:
        """What a pod asks for, its load included; or what is wrong with its request."""
        return self._templates.reading(pod, self._unit.settings)

    def demand(self, pod: pods.Pod, cards_by: str = "") -> demands.PodDemand | None:
        """What a pod asks for; raises DemandError.

        ``cards_by`` is the policy that chooses its cards if the pod names none itself.
        """
        request = self.read(pod)
        if request.wrong is not None:
            raise request.error or request.wrong
        demand = request.demand
        if demand is None or demand.cards_by or not cards_by:
            return demand
        return msgspec.structs.replace(demand, cards_by=cards_by)
