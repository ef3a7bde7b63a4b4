"""The watch of one machine: programs that hold more of a card than their fence counts.

There is no daemon: each command that looks (``ps``, ``top``, ``run``, ``partage watch``) compares
the driver's word with the fences' (:mod:`partage.fence.watch`). A finding takes three looks over a
second, so a command that sees something odd looks again until it is clear; where nothing is
odd, which is nearly always, one look is all.

Whose a process is, is found by descent, as for everything on one machine. What left its program's
tree and its fence is a foreign process, and is shown as one. Tenants that others made (jobs of
Slurm) are looked at in the same way; whose a process is there, those who found them tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from partage.core import errors
from partage.devices import nvml
from partage.fence import processes
from partage.fence.levels import catalog
from partage.fence.store import roots
from partage.fence.watch import escapes, judgement, remedies, sampler, samples
from partage.fence.watch.escapes import Then
from partage.local.ledger import liveness, session
from partage.local.machine import machine, other_tenants
from partage.local.state import entries, location

PERIOD_S = 0.5
_HOOK = str(catalog.Level.HOOK)
_NO_OTHERS = other_tenants.OtherTenants()


class Watch:
    """Looks, and remembers what was odd."""

    def __init__(
        self,
        state: location.StateFolder,
        driver: nvml.Nvml,
        *,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._driver = driver
        self._wait = wait
        self._clock = clock
        self._programs = judgement.Judgement()
        self._others = judgement.Judgement()

    def look(
        self, living: Sequence[entries.Entry], others: other_tenants.OtherTenants = _NO_OTHERS
    ) -> tuple[escapes.Finding, ...]:
        """What these programs hold beside their fences; takes a second if something is odd."""
        self._sample(living, others)
        for _ in range(judgement.CONFIRM_SAMPLES - 1):
            if any(map(_unconfirmed, (self._programs, self._others))):
                self._wait(PERIOD_S)
                self._sample(living, others)
        return *self._programs.findings, *self._others.findings

    def do(
        self,
        then: Then,
        finding: escapes.Finding,
        living: Sequence[entries.Entry],
        others: other_tenants.OtherTenants = _NO_OTHERS,
    ) -> str:
        """Do what is to be done about a finding; what was done.

        A program's own words say which process it is, and might name another's: nobody's process
        is ended but one of the same user.
        """
        proper = remedies.proper(then, finding)
        if others.root and finding.tenant in others.tenants:
            return remedies.done(
                others.root, proper, finding, lambda now: others.whose(now) == finding.tenant
            )
        entry = next(candidate for candidate in living if candidate.tenant == finding.tenant)

        def is_tenants(now: processes.Facts) -> bool:
            own = processes.owner(now.pid) == entry.uid
            return own and machine.descended({now.pid}, (entry,)).get(now.pid) == entry.token

        return remedies.done(roots.find(self._state.fence), proper, finding, is_tenants)

    def _sample(self, living: Sequence[entries.Entry], others: other_tenants.OtherTenants) -> None:
        taken_s = self._clock()
        cards = tuple(self._cards())
        root = roots.find(self._state.fence)
        sample = sampler.taken(root, _whose(cards, living), cards, taken_s=taken_s)
        self._programs = judgement.judged(self._programs, sample)
        if others.root:
            sample = sampler.taken(others.root, others.whose, cards, taken_s=taken_s)
            self._others = judgement.judged(self._others, sample)
        else:
            self._others = judgement.Judgement()

    def _cards(self) -> Iterator[nvml.Occupancy]:
        for device in self._driver.devices():
            if device.uuid is not None and not device.problem:
                try:
                    yield self._driver.occupancy(device.uuid)
                except errors.DeviceError:
                    continue  # its health says why


def follow(
    opened: session.Session,
    then: Then,
    say: Callable[[str], None],
    note: Callable[[str], None],
    elsewhere: other_tenants.Source = other_tenants.none,
) -> NoReturn:
    """For ever: look, say what is found, once for each process, and do what is to be done.

    ``note`` gets one line before, so that the user sees that it has begun.
    """
    watch = Watch(opened.state, opened.driver)
    note(_begun(len(opened.driver.devices())))
    handled: set[samples.Process] = set()
    while True:
        living, others = liveness.look(opened.state, opened.book.all()).living, elsewhere()
        latest = escapes.gravest(watch.look(living, others))
        names = labels(living, others)
        for process in latest.keys() - handled:
            done = watch.do(then, latest[process], living, others)
            say(f"{line(latest[process], names)}; {done}")
        handled = set(latest)
        time.sleep(PERIOD_S)


def warn(opened: session.Session, say: Callable[[str], None]) -> None:
    """Look once, and say what is found; for those who come to share the cards."""
    living = liveness.look(opened.state, opened.book.all()).living
    names = labels(living)
    findings = Watch(opened.state, opened.driver).look(living)
    for finding in escapes.gravest(findings).values():
        say(line(finding, names))


def labels(
    living: Sequence[entries.Entry], others: other_tenants.OtherTenants = _NO_OTHERS
) -> dict[str, str]:
    """What people call each tenant."""
    programs = {entry.tenant: f"program {entry.name}" for entry in living}
    return programs | {name: f"job {other.job}" for name, other in others.tenants.items()}


def line(finding: escapes.Finding, names: Mapping[str, str]) -> str:
    """A finding for people, given what tenants are called."""
    return f"{names.get(finding.tenant, finding.tenant)}: {finding.text}"


def _begun(cards: int) -> str:
    number = "1 card" if cards == 1 else f"{cards} cards"
    return f"Watching {number} every {PERIOD_S} s; press Ctrl-C to stop."


def _whose(cards: Sequence[nvml.Occupancy], living: Sequence[entries.Entry]) -> sampler.Whose:
    """By descent alone: what a fence says of process ids is its tenant's word."""
    pids = {process.pid for card in cards for process in card.processes}
    owners = machine.descended(pids, living)
    names = {entry.token: entry.tenant for entry in living if _held(entry)}
    return lambda process: names.get(owners.get(process.pid, ""), "")


def _unconfirmed(judged: judgement.Judgement) -> bool:
    """Whether something is odd that has not been seen often enough."""
    return len(judged.findings) < len(judged.suspicions)


def _held(entry: entries.Entry) -> bool:
    """Whether a fence counts it."""
    return entry.container is not None and entry.container.fence == _HOOK
