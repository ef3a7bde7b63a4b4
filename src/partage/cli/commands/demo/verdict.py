"""The verdict: which promises were kept, judged by what one run of ``partage demo`` saw.

The story (:mod:`partage.cli.commands.demo.steps`) writes down facts and does not judge them; pure
functions judge them here. A promise about something that did not happen was not kept.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping

import msgspec

from partage.core.quantities import MIB
from partage.local.view import views

OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
KILLED = -signal.SIGKILL  # the exit code that subprocess makes of it

_NOT_SEEN = "the demo did not come that far"
_FULL_PERCENT = 100


class Promise(msgspec.Struct, frozen=True):
    """One promise, and whether it was kept in this run."""

    name: str
    kept: bool
    text: str


class Excess(msgspec.Struct, frozen=True):
    """A tenant or a card had too much, in one view."""

    promise: str
    text: str


class Allocation(msgspec.Struct, frozen=True):
    """An allocation past a share, and what the driver said."""

    name: str
    asked_mib: int
    share_mib: int
    code: str


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A program waited, another one ended, and the first got its share; times since 1970."""

    waiter: str
    holder: str
    asked_s: float
    left_s: float  # when the holder was asked to end, or was killed
    granted_s: float
    ran_s: float  # when the waiter's first kernels had run
    same_card: bool


class Exit(msgspec.Struct, frozen=True):
    """How a program ended, beside the process that was started as ``partage run``."""

    code: int
    command_pid: int
    program_pid: int


class Facts(msgspec.Struct, kw_only=True):
    """What was seen; None is what did not happen."""

    simulated: bool = False
    views: int = 0
    excesses: tuple[Excess, ...] = ()
    exclusive: str | None = ""  # the program that asked for a whole card; None: none could
    allocation: Allocation | None = None
    went_on: Mapping[str, int] | None = None  # kernels of the others since then
    ended: Turn | None = None
    killed: Turn | None = None
    exits: Mapping[str, Exit] = {}
    left: tuple[str, ...] | None = None  # the programs that are still in the ledger at the end


def excesses(view: views.View, foreign_mib: Mapping[str, int]) -> Iterator[Excess]:
    """What is too much in a view.

    Foreign processes count as far as they were there before (memory by uuid): those that come later
    and take what was granted do not ask Partage.
    """
    for card in view.cards:
        tenants = [tenant for tenant in view.tenants if tenant.uuid == card.uuid]
        before_mib = min(card.foreign_mib, foreign_mib.get(card.uuid, 0))
        granted_mib = sum(tenant.memory_mib for tenant in tenants) + before_mib
        percent = sum(tenant.compute_percent for tenant in tenants)
        if granted_mib > card.memory_mib or percent > _FULL_PERCENT:
            text = f"card {card.index}: {granted_mib} of {card.memory_mib} MiB, {percent} %"
            yield Excess("capacity", text)
        if len(tenants) > 1 and any(tenant.exclusive for tenant in tenants):
            names = ", ".join(tenant.name for tenant in tenants)
            yield Excess("exclusive", f"card {card.index} has {names}")
    for tenant in view.tenants:
        if (tenant.used_bytes or 0) > tenant.memory_mib * MIB:
            text = f"{tenant.name} uses {tenant.used_bytes} bytes of {tenant.memory_mib} MiB"
            yield Excess("share", text)


def judged(facts: Facts) -> tuple[Promise, ...]:
    """All promises, in the order of the story."""
    promises = (
        _seen(facts, "capacity", "no card was given more than it has"),
        _seen(facts, "share", "no program used more than its share"),
        _exclusive(facts),
        _out_of_memory(facts.allocation),
        _neighbours(facts.went_on),
        _waited(facts.ended),
        _killed(facts.killed),
        _became(facts),
        _left(facts.left),
    )
    return tuple(promise for promise in promises if promise is not None)


def _seen(facts: Facts, name: str, text: str) -> Promise:
    """What must hold in every view."""
    wrong = [excess.text for excess in facts.excesses if excess.promise == name]
    if wrong:
        return Promise(name, False, f"{text}: {wrong[0]}")
    return Promise(name, facts.views > 0, f"{text} (checked {facts.views} times)")


def _exclusive(facts: Facts) -> Promise | None:
    if facts.exclusive is None:
        return None
    text = "a whole card was shared with nobody"
    if not facts.exclusive:
        return Promise("exclusive", False, f"{text}: {_NOT_SEEN}")
    return _seen(facts, "exclusive", f"{text}: {facts.exclusive}")


def _out_of_memory(allocation: Allocation | None) -> Promise:
    text = "a program that allocates past its share gets CUDA's out-of-memory"
    if allocation is None:
        return Promise("out-of-memory", False, f"{text}: {_NOT_SEEN}")
    kept = allocation.code == OUT_OF_MEMORY and allocation.asked_mib > allocation.share_mib
    amounts = f"{allocation.asked_mib} of {allocation.share_mib} MiB"
    return Promise(
        "out-of-memory", kept, f"{text}: {allocation.name} asked {amounts}, {allocation.code}"
    )


def _neighbours(went_on: Mapping[str, int] | None) -> Promise:
    text = "the other programs went on"
    if not went_on:
        return Promise("neighbours", False, f"{text}: {_NOT_SEEN}")
    counts = ", ".join(f"{name} {kernels}" for name, kernels in went_on.items())
    return Promise("neighbours", min(went_on.values()) > 0, f"{text}: kernels since: {counts}")


def _waited(turn: Turn | None) -> Promise:
    text = "a program without room waits, and runs when there is room"
    if turn is None:
        return Promise("waiting", False, f"{text}: {_NOT_SEEN}")
    times = (
        f"{turn.waiter} waited {turn.left_s - turn.asked_s:.1f} s for {turn.holder} to end, "
        f"and ran {_ms(turn.left_s, turn.ran_s)} later"
    )
    return Promise("waiting", _in_order(turn), f"{text}: {times}")


def _killed(turn: Turn | None) -> Promise:
    text = "the share of a killed program goes to the next in the queue"
    if turn is None:
        return Promise("killed", False, f"{text}: {_NOT_SEEN}")
    times = (
        f"{turn.waiter} got it {_ms(turn.left_s, turn.granted_s)} after `kill -9` of "
        f"{turn.holder}, and ran after {_ms(turn.left_s, turn.ran_s)}"
    )
    return Promise("killed", _in_order(turn), f"{text}: {times}")


def _in_order(turn: Turn) -> bool:
    """Whether the share was granted where it became free, and not before."""
    in_time = turn.asked_s <= turn.left_s <= turn.granted_s <= turn.ran_s
    return in_time and turn.same_card


def _became(facts: Facts) -> Promise:
    text = "no wrapper stays: the command becomes the program, and has its exit code"
    exits, killed = facts.exits, facts.killed.holder if facts.killed else None
    same = all(exit_.command_pid == exit_.program_pid for exit_ in exits.values())
    codes = all(exit_.code == (KILLED if name == killed else 0) for name, exit_ in exits.items())
    shown = ", ".join(f"{name} {exit_.code}" for name, exit_ in exits.items())
    kept = bool(exits) and same and codes
    return Promise("program", kept, f"{text}: {shown or _NOT_SEEN}")


def _left(left: tuple[str, ...] | None) -> Promise:
    text = "no share is left behind"
    if left is None:
        return Promise("left", False, f"{text}: {_NOT_SEEN}")
    return Promise("left", not left, f"{text}: {', '.join(left)}" if left else text)


def _ms(since_s: float, until_s: float) -> str:
    return f"{1000 * (until_s - since_s):.0f} ms"
