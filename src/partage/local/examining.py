"""Examining this machine: all that ``partage run`` depends on, each with a remedy.

Every examination is one function, and stands alone: one that fails, by an error or by a bug, is a
problem of its own beside the findings of the others. Nothing is made or changed, so the doctor can
be asked where everything is broken, and by users who have nothing here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from partage.core import errors
from partage.devices import nvml
from partage.local import (
    examining_cards,
    examining_ledger,
    examining_system,
    findings,
    places,
    sessions,
)

Examination = Callable[[findings.Around], Iterable[findings.Finding]]

EXAMINATIONS: tuple[tuple[str, Examination], ...] = (
    ("cards", examining_cards.cards),
    ("foreign", examining_cards.foreign),
    ("fence", examining_cards.fences),
    ("library", examining_cards.library),
    ("ledger", examining_ledger.ledger),
    ("disk", examining_ledger.disk),
    ("permissions", examining_ledger.permissions),
    ("leases", examining_ledger.leases),
    ("waiting", examining_system.waiting),
    ("processes", examining_system.processes),
    ("command", examining_system.command),
    ("share", examining_system.share),
)


def examine(
    environ: Mapping[str, str],
    *,
    shared: Path = places.SHARED,
    examinations: Iterable[tuple[str, Examination]] = EXAMINATIONS,
) -> list[findings.Finding]:
    """Everything, in the order in which it is worth putting right."""
    with contextlib.ExitStack() as stack:
        driver, first = _driver(stack, simulated=bool(environ.get(places.SIMULATION)))
        around = findings.Around(environ, driver, shared)
        rest = [
            finding
            for name, examination in examinations
            for finding in _guarded(name, examination, around)
        ]
    return [first, *rest]


def _driver(
    stack: contextlib.ExitStack, *, simulated: bool
) -> tuple[nvml.Nvml | None, findings.Finding]:
    try:
        driver = stack.enter_context(sessions.driver())
        version = driver.driver_version()
        return driver, findings.ok("driver", f"{version}, simulated" if simulated else version)
    except errors.DeviceError as error:
        return None, findings.problem("driver", error.what, error.instead)
    except Exception as error:  # noqa: BLE001 (the rest is worth telling)
        return None, _failed("driver", error)


def _guarded(
    name: str, examination: Examination, around: findings.Around
) -> Iterator[findings.Finding]:
    try:
        yield from examination(around)
    except errors.PartageError as error:
        yield findings.problem(name, error.what, _remedy(error))
    except OSError as error:
        text = f"{error.filename or name}: {error.strerror or error}"
        yield findings.problem(name, text, f"name a folder of yours in {places.VARIABLE}")
    except Exception as error:  # noqa: BLE001 (one that fails must not hide the others)
        yield _failed(name, error)


def _remedy(error: errors.PartageError) -> str:
    """What to do, for one who has asked the doctor already."""
    rest = error.instead.removeprefix("see `partage doctor`").lstrip(":; ")
    return rest or "see what is told of the disk and of permissions"


def _failed(name: str, error: Exception) -> findings.Finding:
    return findings.problem(
        name,
        f"this could not be examined ({type(error).__name__}: {error})",
        "that is a mistake in Partage: please report it with this line",
    )
