"""Binds: the life of each bind, from the hold to what became of it.

::

               hold                    send                  accepted
    (nothing) ──────▶ Held ─────────────────────▶ Sent ────────────────────▶ Bound
                      ▲  │                        │  ▲                         ▲
                      │  │ withdrawn, expired     │  │ send (the same grant)   │
                      │  ▼             unanswered │  │                         │ seen: has a node
                      │ Ended                     ▼  │                         │
                      └────────────────────── InDoubt ─────────────────────────┘
                        seen: no node, and newer      └── gone ──▶ Ended

A Binding without an answer may have happened, and may happen yet. Only the pod knows, so only what
the pod says (:class:`Seen`, :class:`Gone`) leads out of :class:`InDoubt`: the table of transitions
(:func:`step`) has no other way, whoever calls it and in whatever order.

A pod that has no node yet may still get one from a Binding that is on its way. That ends by a
version: each Binding names the version of the pod that it was made for, and the API server applies
it only while the pod has that version. A pod without a node at a newer version is therefore proof
that nothing that was sent can happen any more.

Time is an argument, and nothing here does I/O. What follows from a transition for the fleet is in
one place (:meth:`Binds._enter`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from partage.core import demands, errors, grants, refusals
from partage.dialects import pods, registry
from partage.scheduler import mirror as mirrors

# An API server gives up on a request after a minute. Where versions cannot be compared, or the pod
# never changes and may not be changed, a pod that has no node after this time gets none.
LAST_RESORT_S = 90.0
_FRESH_S = 60.0  # for so long a lag that was seen says something about now


class Held(msgspec.Struct, frozen=True):
    """Reserved, and nothing was sent that could still happen."""

    grant: grants.Grant
    pod: pods.Pod


class Sent(msgspec.Struct, frozen=True):
    """A Binding is on its way. ``version`` is the newest that any Binding of the pod named."""

    grant: grants.Grant
    pod: pods.Pod
    version: int
    doubted_since: float | None = None  # since when an earlier Binding has no answer


class InDoubt(msgspec.Struct, frozen=True):
    """Nobody knows whether the pod is bound; if it is, then with this grant."""

    grant: grants.Grant
    pod: pods.Pod
    version: int
    since: float


class Bound(msgspec.Struct, frozen=True):
    """The pod has its node: the end."""


class Ended(msgspec.Struct, frozen=True):
    """The pod has nothing, and nothing that was sent can change that: the end."""


Life = Held | Sent | InDoubt


class Send(msgspec.Struct, frozen=True):
    """A Binding is about to be sent that names this version of the pod."""

    version: int


class Accepted(msgspec.Struct, frozen=True):
    """The API server says that it bound the pod."""


class Declined(msgspec.Struct, frozen=True):
    """The Binding was not applied: it was never sent, or the API server says so."""


class Unanswered(msgspec.Struct, frozen=True):
    """No answer came, or one that leaves open whether the Binding was applied."""

    at: float


class Withdrawn(msgspec.Struct, frozen=True):
    """The hold is not wanted any more: it expired, or the pod was refused."""


class Seen(msgspec.Struct, frozen=True):
    """What the pod says of itself, in whatever way its word came here."""

    node: str
    version: int
    asked_at: float  # when it was asked; what it says is not older


class Gone(msgspec.Struct, frozen=True):
    """There is no pod with this uid any more."""


Event = Send | Accepted | Declined | Unanswered | Withdrawn | Seen | Gone


def step(life: Life, event: Event) -> Life | Bound | Ended:
    """What a life is after an event; what does not concern it changes nothing."""
    match event:
        case Gone():
            return Ended()
        case Seen(node=node) if node:
            return Bound()
    match life:
        case Held():
            return _held(life, event)
        case Sent():
            return _sent(life, event)
        case InDoubt():
            return _in_doubt(life, event)


def _held(life: Held, event: Event) -> Life | Ended:
    match event:
        case Send(version=version):
            return Sent(life.grant, life.pod, version)
        case Withdrawn():
            return Ended()
        case _:
            return life


def _sent(life: Sent, event: Event) -> Life | Bound:
    match event:
        case Accepted():
            return Bound()
        case Declined() if life.doubted_since is None:
            return Held(life.grant, life.pod)
        case Declined() if life.doubted_since is not None:  # this one; an earlier one may happen
            return InDoubt(life.grant, life.pod, life.version, life.doubted_since)
        case Unanswered(at=at):
            return InDoubt(life.grant, life.pod, life.version, at)
        case _:
            return life


def _in_doubt(life: InDoubt, event: Event) -> Life:
    match event:
        case Send(version=version):
            both = (version, life.version)
            newest = max(both) if all(both) else 0  # 0: one of them can happen at any version
            return Sent(life.grant, life.pod, newest, life.since)
        case Seen() if _rules_out(event, life):
            return Held(life.grant, life.pod)
        case _:
            return life


def _rules_out(seen: Seen, doubt: InDoubt) -> bool:
    """Whether a pod that has no node proves that nothing that was sent can happen any more."""
    newer = 0 < doubt.version < seen.version
    return newer or seen.asked_at - doubt.since > LAST_RESORT_S


class Binds:
    """All lives that go on, and what they mean for the fleet."""

    def __init__(
        self, mirror: mirrors.Mirror, *, clock: Callable[[], float], hold_s: float
    ) -> None:
        self._mirror = mirror
        self._clock = clock
        self._hold_s = hold_s
        self._lives: dict[str, Life] = {}  # by the pod's uid
        self._doubts: dict[str, None] = {}  # uids of those in doubt, the longest first
        self._echoes: dict[str, float] = {}  # uid -> when it was bound; the watch has not said so
        self._lag_s = self._lag_at = 0.0  # of the last one that the watch said, and when that was
        mirror.witness = self

    def of(self, uid: str) -> Life | None:
        """The life of a pod's bind, if there is one that goes on."""
        return self._lives.get(uid)

    def doubts(self) -> list[InDoubt]:
        """All that nobody knows about."""
        lives = (self._lives[uid] for uid in self._doubts)
        return [life for life in lives if isinstance(life, InDoubt)]

    @property
    def unsettled(self) -> bool:
        """Whether anything was sent that may yet happen."""
        return any(not isinstance(life, Held) for life in self._lives.values())

    def hold(
        self, pod: pods.Pod, demand: demands.PodDemand, node: str
    ) -> grants.Grant | refusals.Refusal:
        """Reserve what a pod needs on a node, in place of what it held; a refusal ends the hold."""
        fleet, uid = self._mirror.fleet, pod.metadata.uid
        if not isinstance(self._lives.get(uid), Held | None):
            raise errors.LedgerError(
                f"pod {pod.metadata.namespace}/{pod.metadata.name} may be bound already",
                instead="wait until the pod itself says what became of it",
            )
        before = fleet.hold_of(uid)
        held = fleet.hold(pod.identity, demand, node, expires_at=self._clock() + self._hold_s)
        if isinstance(held, refusals.Refusal):
            self.happen(uid, Withdrawn())
            return held
        self._lives[uid] = Held(held.grant, registry.trimmed(pod))
        if before is not None and before.grant.node != node:
            self._mirror.freed(before.grant.node)
        return held.grant

    def lift(self, uid: str) -> str:
        """Take a pod's hold away, to choose anew; the node it was on, or nothing."""
        if not isinstance(self._lives.get(uid), Held):
            return ""
        del self._lives[uid]
        grant = self._mirror.fleet.release(uid)
        return "" if grant is None else grant.node

    def send(self, uid: str, node: str, version: int) -> grants.Grant | None:
        """A Binding to a node is about to be sent: what it has to say, which is what is reserved.

        None if nothing is reserved there any more. While a bind waited for its turn, the pod may
        have been asked about again, and hold another node or nothing.
        """
        life = self._lives.get(uid)
        if isinstance(life, Held):
            now = self._mirror.fleet.hold_of(uid)  # its cards may have other names by now
            life = None if now is None else Held(now.grant, life.pod)
        if not isinstance(life, Held | InDoubt) or life.grant.node != node:
            return None
        self._enter(uid, step(life, Send(version)))
        return life.grant

    def happen(self, uid: str, event: Event) -> Life | Bound | Ended | None:
        """Something happened to a pod; None if no bind of it goes on."""
        life = self._lives.get(uid)
        if life is None:
            return None
        after = step(life, event)
        if after is not life:
            self._enter(uid, after)
        if isinstance(event, Accepted) and isinstance(after, Bound):
            self._echoes[uid] = self._clock()
        return after

    def seen(self, pod: pods.Pod) -> None:
        """The pod says something, of itself or by whoever passes its word on.

        When it was asked is not known, so a word that came by itself proves nothing by its age.
        """
        uid = pod.metadata.uid
        if uid in self._lives:
            self.happen(uid, Seen(pod.spec.node_name, pod.metadata.version, -math.inf))
        elif uid in self._echoes and pod.spec.node_name:
            self._lag_at = self._clock()
            self._lag_s = self._lag_at - self._echoes.pop(uid)

    def gone(self, uid: str) -> None:
        """The pod is gone."""
        self._echoes.pop(uid, None)
        self.happen(uid, Gone())

    @property
    def echo_lag_s(self) -> float:
        """How far the watch of pods is behind, by what it says of pods that were bound here."""
        now = self._clock()
        past_s = self._lag_s if now - self._lag_at < _FRESH_S else 0.0
        return max(past_s, now - next(iter(self._echoes.values()), now))

    def expire(self) -> None:
        """End the holds whose time has come."""
        for grant in self._mirror.fleet.expire(self._clock()):
            self._lives.pop(grant.pod.uid, None)  # only a Held has an end: see _enter
            self._mirror.freed(grant.node)

    def __iter__(self) -> Iterator[Life]:
        return iter(self._lives.values())

    def _enter(self, uid: str, life: Life | Bound | Ended) -> None:
        """Let the fleet follow a transition."""
        fleet = self._mirror.fleet
        self._doubts.pop(uid, None)
        match life:
            case Held():
                fleet.extend(uid, self._clock() + self._hold_s)
                self._mirror.freed(life.grant.node)  # whoever was told to wait for it may ask again
            case Sent():
                fleet.extend(uid, math.inf)
            case InDoubt():
                self._doubts[uid] = None
            case Bound() if fleet.grant_of(uid) is not None:
                fleet.confirm(uid)
            case Ended():
                self._mirror.release(uid)
        if isinstance(life, Bound | Ended):
            del self._lives[uid]
        else:
            self._lives[uid] = life
