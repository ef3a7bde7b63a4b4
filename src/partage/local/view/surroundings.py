"""The surroundings: what else is on this machine beside ``partage run``, found by others."""

from __future__ import annotations

import msgspec

from partage.local.machine import other_tenants
from partage.local.requests import card_access


class Surroundings(msgspec.Struct, frozen=True):
    """Tenants that the ledger does not have, and cards that it does not give away."""

    tenants: other_tenants.Source = other_tenants.none
    gate: card_access.Gate = card_access.open_gate
    manager: str = ""  # who gives away the cards that the gate closes


ALONE = Surroundings()
