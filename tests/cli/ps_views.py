"""Short ways to make views of a machine: two cards, and the programs that are said to be there."""

from __future__ import annotations

from typing import Any

from partage.local.view import views

MIB = 1 << 20
NODE = "lab-1"
FIRST = "GPU-00000000-0000-4000-8000-000000000001"
SECOND = "GPU-00000000-0000-4000-8000-000000000002"
NOW_S = 1_700_000_000
LEDGER = "/var/lib/partage/local"


def card(index: int = 0, **more: Any) -> views.CardView:
    """A healthy card with nobody on it."""
    terms: dict[str, Any] = {
        "index": index,
        "uuid": (FIRST, SECOND)[index],
        "model": "Tesla T4",
        "memory_mib": 16384,
        "used_mib": 0,
        "utilization_percent": 0,
        "temperature_c": 40,
        "healthy": True,
        "reason": "",
        "granted_mib": 0,
        "granted_percent": 0,
        "foreign_mib": 0,
        "free_mib": 16384,
        "tenants": 0,
    }
    return views.CardView(**{**terms, **more})


def tenant(name: str = "train", **more: Any) -> views.TenantView:
    """A program with 4 GiB and 30 % of the first card."""
    terms: dict[str, Any] = {
        "token": f"token-of-{name}",
        "name": name,
        "user": "alice",
        "uid": 1000,
        "pid": 4711,
        "processes": (4711, 4712),
        "command": f"python {name}.py",
        "index": 0,
        "uuid": FIRST,
        "memory_mib": 4096,
        "exclusive": False,
        "compute_percent": 30,
        "ceiling_percent": None,
        "mode": "fixed",
        "fence": "hook",
        "granted_at": NOW_S - 330,
        "priority": 0,
        "dialect": "partage",
        "used_bytes": 3900 * MIB,
        "peak_bytes": 4096 * MIB,
        "refused": 2,
        "busy_ns": 0,
        "throttled_ns": 0,
        "launches": 9,
    }
    return views.TenantView(**{**terms, **more})


def untold(name: str, **more: Any) -> views.TenantView:
    """A program of which only the ledger tells."""
    unknown = ("processes", "command", "index", "used_bytes", "peak_bytes", "refused")
    counters = ("busy_ns", "throttled_ns", "launches")
    return tenant(name, **{**dict.fromkeys((*unknown, *counters)), "mode": "none", **more})


def waiting(name: str = "large", **more: Any) -> views.WaitingView:
    """The next in the queue."""
    terms: dict[str, Any] = {
        "place": 1,
        "token": f"token-of-{name}",
        "name": name,
        "user": "bob",
        "uid": 1001,
        "pid": 4800,
        "priority": 5,
        "asks": "1 card, 14336 MiB",
        "asked_at": NOW_S - 65,
        "reason": "card 0 has 12288 of 14336 MiB free",
    }
    return views.WaitingView(**{**terms, **more})


def foreign(**more: Any) -> views.ForeignView:
    """Somebody's notebook."""
    terms: dict[str, Any] = {
        "index": 1,
        "uuid": SECOND,
        "pid": 99,
        "user": None,
        "command": None,
        "used_bytes": 300 * MIB,
    }
    return views.ForeignView(**{**terms, **more})


def view(*tenants: views.TenantView, **more: Any) -> views.View:
    """The machine."""
    terms: dict[str, Any] = {
        "node": NODE,
        "taken_ns": NOW_S * 10**9,
        "simulated": False,
        "ledger": LEDGER,
        "shared": True,
        "cards": (card(0), card(1)),
        "tenants": tenants,
    }
    return views.View(**{**terms, **more})
