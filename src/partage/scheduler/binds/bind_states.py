"""The states of each bind, from the hold to what became of it, and the events between them.

::

               hold                    send                  accepted
    (nothing) ──────▶ Held ─────────────────────▶ Sent ────────────────────▶ Bound
                      ▲  │                        │  ▲                         ▲
                      │  │ withdrawn, expired     │  │ send (the same grant)   │
                      │  ▼             unanswered │  │                         │ seen: has a node
                      │ Ended                     ▼  │                         │
                      └────────────────────── InDoubt ─────────────────────────┘
                        seen: no node, and newer      └── gone ──▶ Ended

A Binding without an answer may have happened, and may happen yet. Only the pod itself shows it, so
only what the API server says of the pod (:class:`Seen`, :class:`Gone`) leads out of
:class:`InDoubt`: the table of transitions (:func:`step`) has no other way, for any caller and in
any order. What an answer of the API server means for a bind is decided here, too
(:func:`outcome`).

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
from partage.kube import errors as kube_errors
from partage.scheduler.mirror import mirror as mirrors

# An API server gives up on a request after a minute. Where versions cannot be compared, or the pod
# never changes and may not be changed, a pod that has no node after this time gets none.
LAST_RESORT_S = 90.0
_FRESH_S = 60.0  # for so long a lag that was seen says something about now
_DECLINED = frozenset({400, 401, 403, 413, 422, 429})  # answers before anything was written


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
    """It is not known whether the pod is bound; if it is, then with this grant."""

    grant: grants.Grant
    pod: pods.Pod
    version: int
    since: float


class Bound(msgspec.Struct, frozen=True):
    """The pod has its node: the end."""


class Ended(msgspec.Struct, frozen=True):
    """The pod has nothing, and nothing that was sent can change that: the end."""


State = Held | Sent | InDoubt


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
    """The pod as the API server shows it, whether it was asked for or came by the watch."""

    node: str
    version: int
    asked_at: float  # when it was asked for; what it shows is not older


class Gone(msgspec.Struct, frozen=True):
    """There is no pod with this uid any more."""


Event = Send | Accepted | Declined | Unanswered | Withdrawn | Seen | Gone


def outcome(error: BaseException, at: float) -> Declined | Unanswered:
    """What became of a Binding that ended in an error."""
    if isinstance(error, kube_errors.Unreachable):
        declined = not error.sent
    elif isinstance(error, kube_errors.ApiError):
        declined = error.status in _DECLINED
    else:
        # Errors of ours come before it is sent. A stop says nothing about what the server did.
        ours = isinstance(error, errors.PartageError)
        declined = ours and not isinstance(error, kube_errors.KubeError)
    return Declined() if declined else Unanswered(at)


def step(state: State, event: Event) -> State | Bound | Ended:
    """The state after an event; an event that does not concern a state leaves it as it is."""
    match event:
        case Gone():
            return Ended()
        case Seen(node=node) if node:
            return Bound()
    match state:
        case Held():
            return _held(state, event)
        case Sent():
            return _sent(state, event)
        case InDoubt():
            return _in_doubt(state, event)


def _held(state: Held, event: Event) -> State | Ended:
    match event:
        case Send(version=version):
            return Sent(state.grant, state.pod, version)
        case Withdrawn():
            return Ended()
        case _:
            return state


def _sent(state: Sent, event: Event) -> State | Bound:
    match event:
        case Accepted():
            return Bound()
        case Declined() if state.doubted_since is None:
            return Held(state.grant, state.pod)
        case Declined() if state.doubted_since is not None:  # this one; an earlier one may happen
            return InDoubt(state.grant, state.pod, state.version, state.doubted_since)
        case Unanswered(at=at):
            return InDoubt(state.grant, state.pod, state.version, at)
        case _:
            return state


def _in_doubt(state: InDoubt, event: Event) -> State:
    match event:
        case Send(version=version):
            both = (version, state.version)
            newest = max(both) if all(both) else 0  # 0: one of them can happen at any version
            return Sent(state.grant, state.pod, newest, state.since)
        case Seen() if _rules_out(event, state):
            return Held(state.grant, state.pod)
        case _:
            return state


def _rules_out(seen: Seen, doubt: InDoubt) -> bool:
    """Whether a pod that has no node proves that nothing that was sent can happen any more."""
    newer = 0 < doubt.version < seen.version
    return newer or seen.asked_at - doubt.since > LAST_RESORT_S


class Binds:
    """All binds that go on, and what they mean for the fleet."""

    def __init__(
        self, mirror: mirrors.Mirror, *, clock: Callable[[], float], hold_s: float
    ) -> None:
        self._mirror = mirror
        self._clock = clock
        self._hold_s = hold_s
        self._states: dict[str, State] = {}  # by the pod's uid
        self._doubts: dict[str, None] = {}  # uids of those in doubt, the longest first
        self._echoes: dict[str, float] = {}  # uid -> when it was bound; not seen by the watch yet
        self._lag_s = self._lag_at = 0.0  # of the last one that the watch saw, and when that was
        mirror.pods.witness = self

    def of(self, uid: str) -> State | None:
        """The state of a pod's bind, if there is one that goes on."""
        return self._states.get(uid)

    def placed_on(self, uid: str) -> str:
        """The node that a pod is bound to, or may be; empty if it can still go anywhere."""
        state = self._states.get(uid)
        if isinstance(state, Sent | InDoubt):
            return state.grant.node
        return self._mirror.bound_node(uid)

    def doubts(self) -> list[InDoubt]:
        """All whose outcome is not known."""
        states = (self._states[uid] for uid in self._doubts)
        return [state for state in states if isinstance(state, InDoubt)]

    @property
    def unsettled(self) -> bool:
        """Whether anything was sent that may yet happen."""
        return any(not isinstance(state, Held) for state in self._states.values())

    def hold(
        self, pod: pods.Pod, demand: demands.PodDemand, node: str
    ) -> grants.Grant | refusals.Refusal:
        """Reserve what a pod needs on a node, in place of what it held; a refusal ends the hold."""
        fleet, uid = self._mirror.fleet, pod.metadata.uid
        self._check_open(pod)
        before = fleet.hold_of(uid)
        held = fleet.hold(pod.identity, demand, node, expires_at=self._clock() + self._hold_s)
        if isinstance(held, refusals.Refusal):
            self.happen(uid, Withdrawn())
            return held
        self._states[uid] = Held(held.grant, registry.trimmed(pod))
        if before is not None and before.grant.node != node:
            self._mirror.freed(before.grant.node)
        return held.grant

    def reserve(self, pod: pods.Pod, grant: grants.Grant) -> None:
        """Reserve for a pod what its claims have, in place of what it held."""
        self._check_open(pod)
        self._mirror.fleet.reserve(grant, expires_at=self._clock() + self._hold_s)
        self._states[grant.pod.uid] = Held(grant, registry.trimmed(pod))

    def lift(self, uid: str) -> str:
        """Take a pod's hold away, to choose anew; the node it was on, or nothing."""
        if not isinstance(self._states.get(uid), Held):
            return ""
        del self._states[uid]
        grant = self._mirror.fleet.release(uid)
        return "" if grant is None else grant.node

    def send(self, uid: str, node: str, version: int) -> grants.Grant | None:
        """A Binding to a node is about to be sent; the grant that it has to carry.

        That is what is reserved at this moment, or None if nothing is reserved there any more:
        while a bind waited for its turn, the pod may have been filtered again, and hold another
        node or nothing.
        """
        state = self._states.get(uid)
        if isinstance(state, Held):
            now = self._mirror.fleet.hold_of(uid)  # its cards may have other names by now
            state = None if now is None else Held(now.grant, state.pod)
        if not isinstance(state, Held | InDoubt) or state.grant.node != node:
            return None
        self._enter(uid, step(state, Send(version)))
        return state.grant

    def happen(self, uid: str, event: Event) -> State | Bound | Ended | None:
        """Something happened to a pod; None if no bind of it goes on."""
        state = self._states.get(uid)
        if state is None:
            return None
        after = step(state, event)
        if after is not state:
            self._enter(uid, after)
        if isinstance(event, Accepted) and isinstance(after, Bound):
            self._echoes[uid] = self._clock()
        return after

    def seen(self, pod: pods.Pod) -> None:
        """The watch or kube-scheduler shows a pod.

        How old that is cannot be known, so it proves nothing by its age.
        """
        uid = pod.metadata.uid
        if uid in self._states:
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
        """How far the watch of pods is behind, measured on pods that were bound here."""
        now = self._clock()
        past_s = self._lag_s if now - self._lag_at < _FRESH_S else 0.0
        return max(past_s, now - next(iter(self._echoes.values()), now))

    def expire(self) -> None:
        """End the holds whose time has come."""
        for grant in self._mirror.fleet.expire(self._clock()):
            self._states.pop(grant.pod.uid, None)  # only a Held has an end: see _enter
            self._mirror.freed(grant.node)

    def __iter__(self) -> Iterator[State]:
        return iter(self._states.values())

    def _check_open(self, pod: pods.Pod) -> None:
        if not isinstance(self._states.get(pod.metadata.uid), Held | None):
            raise errors.LedgerError(
                f"pod {pod.metadata.namespace}/{pod.metadata.name} may be bound already",
                instead="wait until the API server shows what became of it",
            )

    def _enter(self, uid: str, state: State | Bound | Ended) -> None:
        """Let the fleet follow a transition."""
        fleet = self._mirror.fleet
        self._doubts.pop(uid, None)
        match state:
            case Held():
                fleet.extend(uid, self._clock() + self._hold_s)
                self._mirror.freed(state.grant.node)  # pods that were refused may fit now
            case Sent():
                fleet.extend(uid, math.inf)
            case InDoubt():
                self._doubts[uid] = None
            case Bound() if fleet.grant_of(uid) is not None:
                fleet.confirm(uid)
            case Ended():
                self._mirror.release(uid)
        if isinstance(state, Bound | Ended):
            del self._states[uid]
        else:
            self._states[uid] = state
