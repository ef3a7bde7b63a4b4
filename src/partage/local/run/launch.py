"""The launch: take a grant, wait for it if need be, put the fence up, become the program."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from partage.core import errors
from partage.fence.levels import catalog
from partage.local.ledger import database, session
from partage.local.machine import machine, simulated_driver
from partage.local.queue import decision
from partage.local.requests import card_access, requests
from partage.local.run import context_cost_cache, program_fence, program_start
from partage.local.state import entries, leases, location

if TYPE_CHECKING:
    from partage.local.queue import wait

_AT_ONCE_S = 5.0  # how long `--no-wait` waits for others to finish deciding


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants to run, and how."""

    command: tuple[str, ...]
    wishes: requests.Wishes
    name: str = ""
    priority: int = 0
    fence: catalog.Level | None = None  # at least; None: one that keeps what is asked for
    wait_s: float | None = None  # None: for ever; 0: not at all


class WaitDisplay(msgspec.Struct, frozen=True):
    """Shows a user their place in the queue."""

    show: Callable[[decision.Outcome], None]
    live: bool  # whether somebody looks at it all the time
    done: Callable[[], None]  # called when waiting is over, or something else is written; often


def run(
    request: Run,
    note: Callable[[str], None],
    new_display: Callable[[], WaitDisplay],
    started: Callable[[leases.Lease], None],
    gate: card_access.Gate = card_access.open_gate,
) -> None:
    """Returns only by an error: this process becomes the program.

    ``note`` prints what the user should know; ``new_display`` is called if they have to wait;
    ``started`` is called with what was granted, when nothing is left but to become the program.
    ``gate`` says which cards the program may have at all.
    """
    if program_fence.inside(os.environ) or session.fenced(os.environ):
        raise errors.InputError(
            f"this is already a program with a share ({os.environ.get('PARTAGE_NAME', '')})",
            instead="start the program as it is, or leave that share first",
        )
    requests.check(request.wishes)
    program = program_start.check(request.command[0], os.environ.get("PATH"))
    fence = program_fence.choose(program, request.fence, limited=requests.limited(request.wishes))
    if warning := program_fence.warning(program, fence):
        note(warning)
    with session.opened(os.environ) as opened:
        if not opened.state.shared:
            note(not_shared(opened.state))
        attempt = _Launch(opened, request, fence, note=note, new_display=new_display, gate=gate)
        lease, environment = attempt.granted()
    started(lease)
    program_start.become(request.command, lease, environment)


def not_shared(state: location.StateFolder) -> str:
    """What a user should know about a ledger that is not shared."""
    if simulated_driver.on():
        return f"cards are simulated; their ledger is yours alone ({state.path})"
    return (
        f"the ledger {state.path} is yours alone, and knows nothing of what others were granted; "
        '`sudo "$(command -v partage)" setup` makes one for all'
    )


class _Launch:
    """One launch, from the request to a lease and the environment of the program."""

    def __init__(
        self,
        opened: session.Session,
        request: Run,
        fence: program_fence.Chosen,
        *,
        note: Callable[[str], None],
        new_display: Callable[[], WaitDisplay],
        gate: card_access.Gate,
    ) -> None:
        self._opened = opened
        self._request = request
        self._fence = fence
        self._note = note
        self._new_display = new_display
        self._gate = gate
        self._seen = machine.see(opened.driver)
        self._node = machine.understood(self._seen, (), opened.state).node

    def granted(self) -> tuple[leases.Lease, dict[str, str]]:
        """Join the queue, wait there if need be, and write the fence of what was granted.

        Most programs need not wait. For them nothing is loaded that belongs to waiting, and the
        kernel is not asked for a wakeup: it takes some ten milliseconds to take one down.
        """
        self._warn_of_escapes()
        asking = self._asking()
        started_s = time.monotonic()
        lease, outcome = self._join_queue(asking)
        try:
            if outcome.entry.grant is not None:
                return lease, self._written(lease, outcome.entry)
            return lease, self._waited(lease, outcome, started_s)
        except BaseException:
            decision.leave(self._opened, lease)
            raise

    def _warn_of_escapes(self) -> None:
        if self._seen.present:
            from partage.local.view import watch  # for those who do not come first

            watch.warn(self._opened, self._note)

    def _asking(self) -> decision.Asking:
        access = self._gate(self._seen.devices)
        demand = requests.demand(self._request.wishes, self._node.cards, access)
        decision.check_possible(self._node, demand, access)
        return decision.Asking(
            demand=demand,
            program=self._request.command[0],
            name=self._request.name,
            priority=self._request.priority,
        )

    def _join_queue(self, asking: decision.Asking) -> tuple[leases.Lease, decision.Outcome]:
        """A place in the queue; nobody waits for the ledger longer than they want, either."""
        wait_s = self._request.wait_s
        patience_s = database.BUSY_S if wait_s is None else wait_s or _AT_ONCE_S
        try:
            return decision.ask(
                self._opened, self._seen, asking, time.time, min(patience_s, database.BUSY_S)
            )
        except database.Busy as error:
            if patience_s >= database.BUSY_S:
                raise
            from partage.local.queue import wait

            raise wait.hindered(error) from error

    def _waited(
        self, lease: leases.Lease, outcome: decision.Outcome, started_s: float
    ) -> dict[str, str]:
        from partage.local.queue import wait

        wait_s = self._request.wait_s
        if wait_s == 0:
            raise wait.too_late(outcome)
        deadline_s = None if wait_s is None else started_s + wait_s
        with _watching(deadline_s, self._note, self._new_display()) as watch:
            entry = wait.until_granted(self._opened, lease, outcome, watch)
            self._check_still_allowed(entry)
            return wait.until_written(lambda: self._written(lease, entry), watch, time.sleep)

    def _check_still_allowed(self, entry: entries.Entry) -> None:
        """Refuse a card that somebody else has begun to give away while the program waited."""
        access = self._gate(self._seen.devices)
        uuids = {share.uuid for share in entry.container.shares} if entry.container else set()
        granted = [card for card in self._node.cards if card.uuid in uuids]
        if access.note(granted):
            raise errors.InputError(access.note(granted), instead=access.instead)

    def _written(self, lease: leases.Lease, entry: entries.Entry) -> dict[str, str]:
        """The environment of the program, when its lease and its fence are on disk."""
        with database.explained(lease.path):
            lease.write(entry)
            fenced = program_fence.put(
                self._opened.state,
                entry,
                self._fence,
                context_bytes=self._context_bytes(entry),
                inherited=os.environ,
            )
            lease.write(_with_level(entry, fenced.level))
        return program_fence.environment(entry, fenced, self._node)

    def _context_bytes(self, entry: entries.Entry) -> Mapping[str, int]:
        if entry.container is None or self._fence.level is not catalog.Level.HOOK:
            return {}
        return context_cost_cache.costs(self._opened, self._seen, entry.container)


@contextlib.contextmanager
def _watching(
    deadline_s: float | None, note: Callable[[str], None], display: WaitDisplay
) -> Iterator[wait.Watch]:
    from partage.local.queue import wait

    def warn(text: str) -> None:
        display.done()  # a terminal's lines are drawn anew, below this one
        note(text)

    try:
        yield wait.Watch(
            show=display.show,
            live=display.live,
            warn=warn,
            monotonic=time.monotonic,
            now=time.time,
            deadline_s=deadline_s,
        )
    finally:
        display.done()


def _with_level(entry: entries.Entry, level: catalog.Level) -> entries.Entry:
    """The entry with the level in force."""
    if entry.grant is None or entry.container is None:
        return entry
    container = msgspec.structs.replace(entry.container, fence=str(level))
    grant = msgspec.structs.replace(entry.grant, containers=(container,))
    return msgspec.structs.replace(entry, grant=grant)
