"""The watch of one machine: programs that hold more of a card than their fence counts.

There is no daemon: whoever looks (``ps``, ``top``, the next ``run``, ``partage watch``) compares
the driver's word with the fences' (:mod:`partage.fence.watch`). A finding takes three looks over a
second, so whoever sees something odd looks again until it is clear; where nothing is odd, which is
nearly always, one look is all.

Whose a process is, is found by descent, as for everything on one machine. What left its program's
tree and its fence is a foreign process, and is shown as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn

from partage.core import errors
from partage.devices import nvml
from partage.fence import levels, roots
from partage.fence import processes as kernel
from partage.fence.watch import facts, judgement, remedies, samples
from partage.fence.watch.facts import Then
from partage.local import entries, machine, places, processes, sessions, sweeping

PERIOD_S = 0.5
_HOOK = str(levels.Level.HOOK)


class Watch:
    """Looks, and remembers what was odd."""

    def __init__(
        self,
        place: places.Place,
        driver: nvml.Nvml,
        *,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place
        self._driver = driver
        self._wait = wait
        self._clock = clock
        self._known = judgement.Judgement()

    def look(self, living: Sequence[entries.Entry]) -> tuple[facts.Finding, ...]:
        """What these programs hold beside their fences; takes a second if something is odd."""
        self._sample(living)
        for _ in range(judgement.CONFIRM_SAMPLES - 1):
            if len(self._known.findings) < len(self._known.suspicions):
                self._wait(PERIOD_S)
                self._sample(living)
        return self._known.findings

    def do(self, then: Then, finding: facts.Finding, living: Sequence[entries.Entry]) -> str:
        """Do what is to be done about a finding; what was done.

        A program's own words say which process it is, and might name another's: nobody's process
        is ended but one of the same user.
        """
        entry = next(each for each in living if each.tenant == finding.tenant)

        def is_tenants(now: kernel.Facts) -> bool:
            own = processes.owner(now.pid) == entry.uid
            return own and machine.descended({now.pid}, (entry,)).get(now.pid) == entry.token

        proper = remedies.proper(then, finding)
        return remedies.done(roots.find(self._place.fence), proper, finding, is_tenants)

    def _sample(self, living: Sequence[entries.Entry]) -> None:
        taken_s = self._clock()
        cards = tuple(self._cards())
        pids = {process.pid for card in cards for process in card.processes}
        owners = machine.descended(pids, living)  # what a fence says of pids is its tenant's word
        names = {entry.token: entry.tenant for entry in living if _held(entry)}

        def whose(found: kernel.Facts) -> str:
            return names.get(owners.get(found.pid, ""), "")

        root = roots.find(self._place.fence)
        sample = samples.taken(root, whose, cards, taken_s=taken_s)
        self._known = judgement.judged(self._known, sample)

    def _cards(self) -> Iterator[nvml.Occupancy]:
        for device in self._driver.devices():
            if device.uuid is not None and not device.problem:
                try:
                    yield self._driver.occupancy(device.uuid)
                except errors.DeviceError:
                    continue  # its health says why


def follow(here: sessions.Session, then: Then, say: Callable[[str], None]) -> NoReturn:
    """For ever: look, say what is found, once for each process, and do what is to be done."""
    watch = Watch(here.place, here.driver)
    handled: set[facts.Process] = set()
    while True:
        living = sweeping.look(here.place, here.book.all()).living
        found = facts.gravest(watch.look(living))
        names = {entry.tenant: entry.name for entry in living}
        for process in found.keys() - handled:
            done = watch.do(then, found[process], living)
            say(f"{told(found[process], names)}; {done}")
        handled = set(found)
        time.sleep(PERIOD_S)


def warn(here: sessions.Session, say: Callable[[str], None]) -> None:
    """Look once, and say what is found; for those who come to share the cards."""
    living = sweeping.look(here.place, here.book.all()).living
    names = {entry.tenant: entry.name for entry in living}
    findings = Watch(here.place, here.driver).look(living)
    for finding in facts.gravest(findings).values():
        say(told(finding, names))


def told(finding: facts.Finding, names: Mapping[str, str]) -> str:
    """A finding for people; the names of programs are by tenant."""
    return f"program {names.get(finding.tenant, finding.tenant)}: {finding.text}"


def _held(entry: entries.Entry) -> bool:
    """Whether a fence counts it."""
    return entry.container is not None and entry.container.fence == _HOOK
