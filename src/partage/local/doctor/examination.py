"""The examination of this machine: all that ``partage run`` depends on, each with a remedy.

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
from partage.local.doctor import card_checks, findings, ledger_checks, system_checks
from partage.local.ledger import session
from partage.local.state import disk_problems, location
from partage.local.view import surroundings

Examination = Callable[[findings.Context], Iterable[findings.Finding]]

EXAMINATIONS: tuple[tuple[str, Examination], ...] = (
    ("cards", card_checks.cards),
    ("foreign", card_checks.foreign),
    ("managed", card_checks.managed),
    ("fence", card_checks.fences),
    ("library", card_checks.library),
    ("cuda", card_checks.cuda),
    ("ledger", ledger_checks.ledger),
    ("disk", ledger_checks.disk),
    ("permissions", ledger_checks.permissions),
    ("leases", ledger_checks.leases),
    ("waiting", system_checks.waiting),
    ("processes", system_checks.processes),
    ("command", system_checks.command),
    ("share", system_checks.share),
)


def examine(
    environ: Mapping[str, str],
    *,
    shared: Path = location.SHARED,
    beside: surroundings.Surroundings = surroundings.ALONE,
    examinations: Iterable[tuple[str, Examination]] = EXAMINATIONS,
) -> list[findings.Finding]:
    """Everything, in the order in which it is worth putting right."""
    with contextlib.ExitStack() as stack:
        driver, first = _driver(stack, simulated=bool(environ.get(location.SIMULATION)))
        context = findings.Context(environ, driver, shared, beside)
        rest = [
            finding
            for name, examination in examinations
            for finding in _guarded(name, examination, context)
        ]
    return [first, *rest]


def _driver(
    stack: contextlib.ExitStack, *, simulated: bool
) -> tuple[nvml.Nvml | None, findings.Finding]:
    try:
        driver = stack.enter_context(session.driver())
        version = driver.driver_version()
        return driver, findings.ok("driver", f"{version}, simulated" if simulated else version)
    except errors.DeviceError as error:
        return None, findings.problem("driver", error.what, error.instead)
    except Exception as error:  # noqa: BLE001 (the rest is worth telling)
        return None, findings.failed("driver", error)


def _guarded(
    name: str, examination: Examination, context: findings.Context
) -> Iterator[findings.Finding]:
    try:
        yield from examination(context)
    except errors.PartageError as error:
        remedy = error.remedy if isinstance(error, disk_problems.Unusable) else error.instead
        yield findings.problem(name, error.what, remedy)
    except OSError as error:
        text = f"{error.filename or name}: {error.strerror or error}"
        yield findings.problem(name, text, f"name a folder of yours in {location.VARIABLE}")
    except Exception as error:  # noqa: BLE001 (one that fails must not hide the others)
        yield findings.failed(name, error)
