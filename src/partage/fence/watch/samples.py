"""Samples: what is known of cards, processes and tenants at one moment. The watch judges by them.

The driver's numbers cannot be changed by a tenant; what its fence counts can, because the tenant
writes it. So nothing here is believed that would help only the tenant that wrote it.
"""

from __future__ import annotations

import msgspec


class Holding(msgspec.Struct, frozen=True):
    """A process on a card, as the driver says; None: it does not tell how much."""

    uuid: str
    pid: int  # as this reader's pid namespace knows it
    used_bytes: int | None


class Card(msgspec.Struct, frozen=True):
    """A card with all memory in use there; None: the driver does not tell."""

    uuid: str
    used_bytes: int | None


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A living process of a tenant; an id alone is not enough, since ids come again."""

    pid: int
    started_ticks: int
    inner_pid: int  # in its own pid namespace: what its fence knows it by
    tenant: str


class Counted(msgspec.Struct, frozen=True):
    """What the fence counts for one living process on one card."""

    inner_pid: int
    used_bytes: int


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's part of one card."""

    uuid: str
    quota_bytes: int | None  # None: as much as the card has
    context_bytes: int  # what one context costs; 0: nobody measured it
    timed: bool = False  # its part of the card's time is limited
    counted: tuple[Counted, ...] = ()


class Tenant(msgspec.Struct, frozen=True):
    """A tenant with a fence that counts."""

    name: str
    shares: tuple[Share, ...]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look: the driver is asked first, and the fences afterwards."""

    taken_s: float  # of a clock that does not jump
    cards: tuple[Card, ...]
    holdings: tuple[Holding, ...]
    processes: tuple[Process, ...]  # of tenants; those of others are not named
    tenants: tuple[Tenant, ...]
