"""A session: the state folder, the ledger and the driver, open for one command."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping

import msgspec

from partage.core import errors
from partage.devices import nvml
from partage.fence.library import substitutes
from partage.local.ledger import ledger
from partage.local.machine import simulated_driver
from partage.local.state import location

LIMITS = "PARTAGE_LIMITS"  # a process that has it runs behind a fence


class Session(msgspec.Struct, frozen=True):
    """What a command works with."""

    state: location.StateFolder
    book: ledger.Ledger
    driver: nvml.Nvml


@contextlib.contextmanager
def opened(environ: Mapping[str, str]) -> Iterator[Session]:
    """Open everything; says what to do where there is no driver."""
    with looking(environ) as (state, driver), ledger.opened(state) as book:
        yield Session(state, book, driver)


@contextlib.contextmanager
def looking(environ: Mapping[str, str]) -> Iterator[tuple[location.StateFolder, nvml.Nvml]]:
    """All but the ledger, which those who only look can do without."""
    unfence(environ)
    simulated_driver.check(location.where(environ), environ)
    if simulated_driver.on(environ):
        location.find(environ)  # the simulated driver keeps its cards there
    with driver() as nvml_driver:
        state = location.find(environ)
        simulated_driver.claim(state, environ)
        yield state, nvml_driver


@contextlib.contextmanager
def driver() -> Iterator[nvml.Nvml]:
    """The driver; without one, the error names both ways out."""
    if simulated_driver.on():
        simulated_driver.make_state_folder(os.environ)
    with contextlib.ExitStack() as stack:
        try:
            nvml_driver = stack.enter_context(nvml.Nvml())
        except errors.DeviceError as error:
            if simulated_driver.on() and error.reason == simulated_driver.NO_FILE:
                raise simulated_driver.without_file(os.environ) from error
            raise errors.DeviceError(
                error.reason,
                f"this machine has no GPU that can be used ({error.what})",
                instead=f"{error.instead}; or try it on simulated cards: "
                "`partage --simulate 2x16GiB ...`",
            ) from error
        yield nvml_driver


def fenced(environ: Mapping[str, str]) -> bool:
    """Whether this process runs behind a fence, and so sees a share where the card is."""
    return LIMITS in environ


def unfence(environ: Mapping[str, str]) -> None:
    """Start anew without the fence, if this is a command in a program that has one."""
    if not fenced(environ):
        return
    os.execve(sys.executable, sys.orig_argv, substitutes.without(environ))
