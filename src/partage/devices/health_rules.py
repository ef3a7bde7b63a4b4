"""Whether a card is healthy, from what happened to it and what it tells: pure, no clock.

Two kinds of things make a card unhealthy:

- a *state* that every look at the card shows again: it does not answer, it asks to be reset, rows
  of its memory could not be remapped. It is over when a look no longer shows it.
- an *incident* that is told once: an Xid, a memory error that could not be corrected. Its end is
  not told, so it has to be found. Drivers since R565 say what it takes to recover a card,
  and "nothing" ends the incident. With others it is over when the card was reset (it was lost and
  is back, or its counters of errors began again), or when it was quiet for a time and a context can
  be made on it again. Errors of memory that are counted end by a reset only: a context says nothing
  about them.

A card judged for the first time has no past: errors counted before are not held against it.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec

# What a program did, not the card: as NVIDIA's device plugin has it.
OF_APPLICATIONS = frozenset({13, 31, 43, 45, 68, 109})
# The driver says that what it takes to recover a card has changed: every look asks for that anyway.
ANNOUNCEMENTS = frozenset({154})
MEMORY = "ECC: errors of memory that could not be corrected"
LOST = "lost: the card no longer answers"
_WORDS = {
    32: "corrupted commands on the bus",
    38: "firmware error",
    48: "memory error that could not be corrected",
    61: "microcontroller stopped",
    62: "microcontroller halted",
    63: "a memory row must be remapped",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    79: "fallen off the bus",
    92: "too many memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the card's system processor does not answer",
    120: "error in the card's system processor",
    121: "error on the link to the CPU",
    140: "unrecovered memory error",
}
_ACTIONS = {
    1: "reset the card",
    2: "reboot the node",
    3: "drain its peers",
    4: "drain and reset the card",
    5: "recover the IMEX domain",
    6: "reset its bus",
    7: "reboot the system",
}


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before a card is believed to be healthy."""

    quiet_s: float = 60.0  # without a further incident, where a context has to prove it
    settle_s: float = 2.0  # after an incident, before what the driver says of it is believed


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a card tells when it is asked; None is what it does not tell."""

    problem: str = ""  # why it, or the whole driver, does not answer
    lost: bool = False  # it does not answer because it is not there
    action: int | None = None  # what it takes to recover it, in NVML's numbers; 0 is nothing
    uncorrected: int | None = None  # errors of memory since its last reset
    rows_pending: bool = False
    rows_failed: bool = False
    context: bool | None = None  # whether a context could be made, if that was tried


class Incident(msgspec.Struct, frozen=True):
    """What happened, and when it last did."""

    reason: str
    last_s: float
    memory: bool = False  # errors of memory are part of it


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is held against a card, and what the next judgement needs."""

    incident: Incident | None = None
    state: str = ""
    lost: bool = False
    uncorrected: int | None = None  # as last told
    tried_s: float | None = None  # when a context was last tried in vain

    @property
    def reason(self) -> str:
        """Why the card is unhealthy, in few words; empty if it is healthy."""
        return self.incident.reason if self.incident else self.state


def xid_reason(code: int, ignored: AbstractSet[int] = frozenset()) -> str:
    """Why this Xid makes a card unhealthy; empty if it does not."""
    if code in OF_APPLICATIONS | ANNOUNCEMENTS | ignored:
        return ""
    return f"Xid {code}: {_WORDS[code]}" if code in _WORDS else f"Xid {code}"


def struck(verdict: Verdict, reason: str, now_s: float) -> Verdict:
    """After an incident. The latest is the one that is told."""
    before = verdict.incident
    memory = reason == MEMORY or (before is not None and before.memory)
    incident = Incident(reason, now_s, memory)
    return msgspec.structs.replace(verdict, incident=incident, tried_s=None)


def looked(verdict: Verdict, look: Look, now_s: float, patience: Patience) -> Verdict:
    """After a look at the card."""
    state = _state(look)
    if look.problem or look.lost:  # it tells nothing else
        return msgspec.structs.replace(verdict, state=state, lost=look.lost or verdict.lost)
    if _more_errors(verdict, look):
        verdict = struck(verdict, MEMORY, now_s)
    over = verdict.incident is not None and _over(verdict, verdict.incident, look, now_s, patience)
    return Verdict(
        incident=None if over else verdict.incident,
        state=state,
        uncorrected=verdict.uncorrected if look.uncorrected is None else look.uncorrected,
        tried_s=now_s if look.context is False else verdict.tried_s,
    )


def wants_context(verdict: Verdict, look: Look, now_s: float, patience: Patience) -> bool:
    """Whether to try a context on the card: only where that could end its incident."""
    incident = verdict.incident
    if incident is None or not _up_to_context(incident, look):
        return False
    last_s = max(incident.last_s, verdict.tried_s or incident.last_s)
    return not _state(look) and now_s - last_s >= patience.quiet_s


def _state(look: Look) -> str:
    """The problem that this look itself shows."""
    if look.lost:
        return LOST
    if look.problem:
        return look.problem
    if look.rows_failed:
        return "a memory row could not be remapped: replace the card"
    if look.rows_pending:
        return "a memory row must be remapped: reset the card"
    if look.action:
        action = _ACTIONS.get(look.action, f"perform recovery action {look.action}")
        return f"the driver asks to {action}"
    return ""


def _more_errors(verdict: Verdict, look: Look) -> bool:
    if verdict.uncorrected is None or look.uncorrected is None:
        return False
    return look.uncorrected > verdict.uncorrected


def _over(
    verdict: Verdict, incident: Incident, look: Look, now_s: float, patience: Patience
) -> bool:
    if look.action is not None:
        return look.action == 0 and now_s - incident.last_s >= patience.settle_s
    if _was_reset(verdict, look):
        return True
    quiet = now_s - incident.last_s >= patience.quiet_s
    return look.context is True and quiet and _up_to_context(incident, look)


def _was_reset(verdict: Verdict, look: Look) -> bool:
    """A card that comes back onto the bus, or counts from the beginning, was reset meanwhile."""
    if verdict.lost:
        return True
    if verdict.uncorrected is None or look.uncorrected is None:
        return False
    return look.uncorrected < verdict.uncorrected


def _up_to_context(incident: Incident, look: Look) -> bool:
    """Whether a context is a proof: not if the driver knows better, nor of memory that counts."""
    return look.action is None and not (incident.memory and look.uncorrected is not None)
