"""The fence ``mps``: limits that NVIDIA's Multi-Process Service keeps.

Each tenant has a control daemon of its own, over its own cards and no others. A fault of one client
is reported to all clients of its server, so a server that two tenants shared would let one of them
end the other's work; and a daemon has one set of defaults, so tenants that shared it would all have
the same limits.

What it holds, it holds for *each process*: a tenant with two of them can use twice its share. The
limits are the daemon's defaults, which a client can lower and not raise. A process that leaves
``CUDA_MPS_PIPE_DIRECTORY`` out of its environment is not held, unless the card's compute mode is
EXCLUSIVE_PROCESS; and whoever runs as the daemon's user can talk to it. Changes are for processes
that start afterwards. The share is a cap on the parts of the card that run its work, not a part of
its time, and nothing is guaranteed.

Written against NVIDIA's documentation and tested on a stand-in that speaks the same commands: it
has not met hardware.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from partage.core import errors
from partage.core.quantities import MIB
from partage.fence import levels, limits, mps_control

LEVEL = levels.Level.MPS
_QUIT_S = 5  # after this, servers that still run are ended


class Mps:
    """Fences that MPS keeps, one daemon for each tenant."""

    def __init__(
        self, root: Path, *, program: str = mps_control.PROGRAM, timeout_s: float = 10
    ) -> None:
        self._root = root / "mps"
        self._program, self._timeout_s = program, timeout_s

    @property
    def level(self) -> levels.Level:
        return LEVEL

    def apply(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """Start the tenant's daemon, unless it runs, and set its limits."""
        percentage, uuids = _percentage(asked), tuple(card.uuid for card in asked.cards)
        control = self._control(subject)
        if control.runs() and control.cards() == uuids:
            return _limited(control, asked, percentage)
        control.quit(_QUIT_S)
        try:
            control.start(uuids)
            return _limited(control, asked, percentage)
        except errors.FenceError:
            control.quit(_QUIT_S)
            raise

    def change(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """Set other limits, for processes that start from now on."""
        control = self._control(subject)
        if control.cards() != tuple(card.uuid for card in asked.cards):
            raise errors.FenceError(
                f"mps: tenant {subject.name} has no daemon for these cards",
                instead="a tenant keeps its cards: end it and start it anew",
            )
        return _limited(control, asked, _percentage(asked))

    def release(self, subject: levels.Subject, held: limits.Limits) -> None:
        """End the tenant's daemon and forget it."""
        self._control(subject).quit(_QUIT_S)

    def _control(self, subject: levels.Subject) -> mps_control.Control:
        """Names of tenants are long, and paths of sockets are short."""
        short = hashlib.sha256(subject.name.encode()).hexdigest()[:16]
        timeout_s = self._timeout_s
        return mps_control.Control(self._root / short, program=self._program, timeout_s=timeout_s)


def _limited(
    control: mps_control.Control, asked: limits.Limits, percentage: float
) -> levels.Applied:
    """The defaults are for servers to come; those that run are told one by one."""
    for server in ("", *(f" {pid}" for pid in control.servers())):
        default = "" if server else "default_"
        _set_percentage(control, f"{default}active_thread_percentage{server}", percentage)
        for index, card in enumerate(asked.cards):
            name = f"{default}device_pinned_mem_limit{server} {index}"
            if card.memory_bytes == limits.NO_QUOTA:
                _check_free(control, name)
            else:
                _set_memory(control, name, card.memory_bytes // MIB)
    cards = tuple(_held(card, percentage) for card in asked.cards)
    return levels.Applied(
        level=LEVEL, limits=limits.Limits(cards), environment=_environment(control, asked)
    )


def _environment(control: mps_control.Control, asked: limits.Limits) -> dict[str, str]:
    """Not CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: an entry that a client cannot use lifts all limits."""
    uuids = ",".join(card.uuid for card in asked.cards)
    return {**control.environment(), "CUDA_VISIBLE_DEVICES": uuids}


def _set_percentage(control: mps_control.Control, name: str, percentage: float) -> None:
    control.ask(f"set_{name} {percentage:g}")
    found = control.percentage(f"get_{name}")
    if found != percentage:
        raise levels.unmet(LEVEL, name, f"{percentage:g} %", f"{found:g} %")


def _set_memory(control: mps_control.Control, name: str, memory_mib: int) -> None:
    control.ask(f"set_{name} {memory_mib}M")
    found = control.amount(f"get_{name}")
    if found is None or not found.is_of(memory_mib * MIB):
        read = f"{found.memory_bytes // MIB} MiB" if found else "no amount of memory"
        raise levels.unmet(LEVEL, name, f"{memory_mib} MiB", read)


def _check_free(control: mps_control.Control, name: str) -> None:
    """There is a command to set a limit of memory, and none to take it away."""
    found = control.amount(f"get_{name}")
    if found is not None and found.memory_bytes:
        raise errors.FenceError(
            f"mps: MPS cannot lift the memory limit of a daemon that runs ({name})",
            instead="raise the limit instead, or end the tenant and start it anew",
        )


def _percentage(asked: limits.Limits) -> float:
    """The one percentage of the daemon: what the tenant may never exceed."""
    if any(card.paused for card in asked.cards):
        raise errors.FenceError("mps: MPS cannot pause a tenant", instead="use the level hook")
    if any(card.memory_bytes < MIB for card in asked.cards):
        raise errors.FenceError("mps: MPS counts whole MiB", instead="ask for 1 MiB or more")
    caps = {_cap(card) for card in asked.cards}
    if len(caps) > 1:
        raise errors.FenceError(
            f"mps: MPS has one percentage for all cards of a tenant, not {sorted(caps)}",
            instead="ask for the same share of each card, or use the level hook",
        )
    return caps.pop() / limits.MILLIONTHS_PER_PERCENT


def _cap(card: limits.CardLimits) -> int:
    if card.mode is limits.Mode.FIXED:
        return card.share_millionths
    if card.mode is limits.Mode.BURST:
        return card.ceiling_millionths
    return 100 * limits.MILLIONTHS_PER_PERCENT


def _held(card: limits.CardLimits, percentage: float) -> limits.CardLimits:
    """What is in force: whole MiB, and a cap."""
    free = card.memory_bytes == limits.NO_QUOTA
    capped = percentage < 100
    return limits.CardLimits(
        uuid=card.uuid,
        memory_bytes=card.memory_bytes if free else card.memory_bytes // MIB * MIB,
        mode=limits.Mode.FIXED if capped else limits.Mode.NONE,
        share_millionths=round(percentage * limits.MILLIONTHS_PER_PERCENT) if capped else 0,
    )
