"""A session: the place, the ledger and the driver of this machine, open for one command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping

import msgspec

from partage.core import errors
from partage.devices import nvml
from partage.fence import substitutes
from partage.local import ledger, places, simulating

LIMITS = "PARTAGE_LIMITS"  # whoever has it runs behind a fence


class Session(msgspec.Struct, frozen=True):
    """What a command works with."""

    place: places.Place
    book: ledger.Ledger
    driver: nvml.Nvml


@contextlib.contextmanager
def opened(environ: Mapping[str, str]) -> Iterator[Session]:
    """Open everything; says what to do where there is no driver."""
    with looking(environ) as (place, driver), ledger.opened(place) as book:
        yield Session(place, book, driver)


@contextlib.contextmanager
def looking(environ: Mapping[str, str]) -> Iterator[tuple[places.Place, nvml.Nvml]]:
    """All but the ledger, which those who only look can do without."""
    unfence(environ)
    simulating.check(places.where(environ), environ)
    if simulating.on(environ):
        places.find(environ)  # the simulated driver keeps its cards there
    with driver() as found:
        place = places.find(environ)
        simulating.claim(place, environ)
        yield place, found


@contextlib.contextmanager
def driver() -> Iterator[nvml.Nvml]:
    """The driver, or both ways out where there is none."""
    if simulating.on():
        simulating.furnish(os.environ)
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(nvml.Nvml())
        except errors.DeviceError as error:
            if simulating.on() and error.reason == simulating.NO_FILE:
                raise simulating.without_file(os.environ) from error
            raise errors.DeviceError(
                error.reason,
                f"this machine has no GPU that can be used ({error.what})",
                instead=f"{error.instead}; or try it on simulated cards: "
                "`partage --simulate 2x16GiB ...`",
            ) from error
        yield found


def fenced(environ: Mapping[str, str]) -> bool:
    """Whether this process runs behind a fence, and so sees a share where the card is."""
    return LIMITS in environ


def unfence(environ: Mapping[str, str]) -> None:
    """Start anew without the fence, if this is a command in a program that has one."""
    if not fenced(environ):
        return
    os.execve(sys.executable, sys.orig_argv, substitutes.without(environ))
