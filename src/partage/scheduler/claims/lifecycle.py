"""The life of a claim, and of the ElasticGPU that it is bound to: which write comes next.

::

    claim        Pending ───────────────────────▶ Bound ◀──▶ Lost (what it has is gone)
                    │ created                        ▲
    ElasticGPU   Pending ──allocated──▶ Available ───┴─▶ Bound ──claim is gone──▶ Released, or gone
                                                         ▲▼ node or card is gone, and comes back
                                                       Failed

Everything is computed from the objects as they are, and every answer is one write that carries the
version of what it was computed from. So a controller that is killed between two writes, or whose
answer is lost, is followed by one that computes the same next write, and two that overlap can only
make each other's writes fail.

The object for a claim is created *before* its shares are decided, without any; its name follows
from the claim's uid, so it cannot be made twice. The shares are written on it afterwards, and that
write holds only for the version of the object that was seen. A new leader changes the version of
every object without shares, or without a claim, before it decides anything
(:meth:`.controller.Controller.settle`): then nothing that its predecessor sent can still take room
that the new leader gives away.
"""

from __future__ import annotations

import msgspec

from partage.core import demands
from partage.dialects.claims import objects


class Create(msgspec.Struct, frozen=True):
    """Make the ElasticGPU for a claim, without shares."""

    claim: objects.ElasticGPUClaim
    gpu_class: objects.ElasticGPUClass


class Allocate(msgspec.Struct, frozen=True):
    """Decide the shares of an ElasticGPU that has none, and write them on it."""

    elastic_gpu: objects.ElasticGPU
    alternatives: tuple[demands.Demand, ...]


class Ascertain(msgspec.Struct, frozen=True):
    """Find out what became of a write to an ElasticGPU that nobody has answered."""

    name: str


class Name(msgspec.Struct, frozen=True):
    """Write on a claim which ElasticGPU it has."""

    claim: objects.ElasticGPUClaim
    elastic_gpu: str


class Assign(msgspec.Struct, frozen=True):
    """Write on an ElasticGPU whose it is."""

    elastic_gpu: objects.ElasticGPU
    claim: objects.ElasticGPUClaim


class Protect(msgspec.Struct, frozen=True):
    """Let an object be deleted only when we agree, or agree."""

    target: objects.ElasticGPUClaim | objects.ElasticGPU
    protected: bool


class SetClaim(msgspec.Struct, frozen=True):
    """Write what became of a claim."""

    claim: objects.ElasticGPUClaim
    phase: objects.ClaimPhase
    reason: str
    message: str = ""


class SetElasticGPU(msgspec.Struct, frozen=True):
    """Write what became of an ElasticGPU."""

    elastic_gpu: objects.ElasticGPU
    phase: objects.Phase
    reason: str = ""
    message: str = ""


class Delete(msgspec.Struct, frozen=True):
    """Delete an ElasticGPU whose claim is gone."""

    elastic_gpu: objects.ElasticGPU


Action = Create | Allocate | Ascertain | Name | Assign | Protect | SetClaim | SetElasticGPU | Delete


class Asked(msgspec.Struct, frozen=True):
    """What a claim asks for, or why that cannot be read."""

    alternatives: tuple[demands.Demand, ...] = ()
    problem: str = ""
    reason: str = "Invalid"  # the problem in one word


class ClaimView(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, and all that its next step depends on."""

    claim: objects.ElasticGPUClaim
    gpu_class: objects.ElasticGPUClass | None = None
    foreign: bool = False  # the class is another controller's
    asked: Asked = Asked()
    elastic_gpu: objects.ElasticGPU | None = None  # that it names, or that was made for it
    absent: str = ""  # why its shares are not there: the node or a card is gone
    unsuited: str = ""  # why its shares are not what the claim asks for, as far as is known
    spare: objects.ElasticGPU | None = None  # an available one that has what it asks for
    beyond: str = ""  # why its namespace may not have what is there
    used: bool = False  # a pod has it
    wanted: bool = False  # a pod that waits names it


class ElasticGPUView(msgspec.Struct, frozen=True, kw_only=True):
    """An ElasticGPU, and all that its next step depends on."""

    elastic_gpu: objects.ElasticGPU
    claim: objects.ElasticGPUClaim | None = None  # with the uid that it names
    has_shares: bool = False
    damage: str = ""  # why its shares cannot be read
    absent: str = ""  # why they are not there
    used: bool = False
    asked: Asked = Asked()
    waits: bool = False  # its claim is bound where a pod can be, and no pod asks for it


def next_for_claim(view: ClaimView) -> Action | None:
    """The next write for a claim; None: it is as it should be."""
    claim = view.claim
    protected = objects.CLAIM_FINALIZER in claim.metadata.finalizers
    if claim.metadata.deletion_timestamp is not None:
        return Protect(claim, protected=False) if protected and not view.used else None
    if view.foreign:
        return None
    if not protected:
        return Protect(claim, protected=True)
    if claim.spec.elastic_gpu_name:
        return _named(view)
    return _unnamed(view)


def next_for_elastic_gpu(view: ElasticGPUView) -> Action | None:
    """The next write for an ElasticGPU; None: it is as it should be."""
    this = view.elastic_gpu
    protected = objects.ELASTIC_GPU_FINALIZER in this.metadata.finalizers
    if this.metadata.deletion_timestamp is not None:
        kept = view.used or _is_bound(this, view.claim)
        return Protect(this, protected=False) if protected and not kept else None
    if not protected:
        return Protect(this, protected=True)
    if _is_orphan(view):
        return _orphaned(view)
    if view.claim is not None and view.claim.spec.elastic_gpu_name not in ("", this.metadata.name):
        return _superseded(view, view.claim)
    if view.damage:
        return _set(this, objects.Phase.FAILED, "Damaged", view.damage)
    if not view.has_shares:
        return _unallocated(view)
    if view.absent:
        return _set(this, objects.Phase.FAILED, "Unavailable", view.absent)
    if _is_bound(this, view.claim):
        return _set(this, objects.Phase.BOUND)
    owned = this.spec.claim_ref is not None and this.spec.claim_ref.uid
    return _set(this, objects.Phase.PENDING if owned else objects.Phase.AVAILABLE)


def condition(claim: objects.ElasticGPUClaim) -> objects.Condition | None:
    """What was last said about whether a claim has what it asks for."""
    return next((c for c in claim.status.conditions if c.type == BOUND), None)


def lacks_room(claim: objects.ElasticGPUClaim) -> bool:
    """Whether it was last said that there is no room for what a claim asks for."""
    said = condition(claim)
    return said is not None and said.reason == NO_ROOM


def _named(view: ClaimView) -> Action | None:
    claim, this = view.claim, view.elastic_gpu
    name = claim.spec.elastic_gpu_name
    if this is None:
        text = f"there is no ElasticGPU {name}"
        was_bound = claim.status.phase is not objects.ClaimPhase.PENDING
        phase = objects.ClaimPhase.LOST if was_bound else objects.ClaimPhase.PENDING
        return _say(claim, phase, "NotFound", text)
    ref = this.spec.claim_ref
    if ref is None or not ref.uid:
        return _say_or_assign(view, this)
    if ref.uid != claim.metadata.uid:
        text = f"ElasticGPU {name} belongs to claim {ref.key}"
        return _say(claim, objects.ClaimPhase.PENDING, "Taken", text)
    if view.absent:
        return _say(claim, objects.ClaimPhase.LOST, "Unavailable", view.absent)
    if view.unsuited and claim.status.phase is objects.ClaimPhase.PENDING:
        return _say(claim, objects.ClaimPhase.PENDING, "Unsuited", view.unsuited)
    return _say(claim, objects.ClaimPhase.BOUND, "Bound")


def _say_or_assign(view: ClaimView, this: objects.ElasticGPU) -> Action | None:
    """Take an object that is nobody's, once its shares are there."""
    reserved = this.spec.claim_ref.key if this.spec.claim_ref is not None else ""
    if reserved not in ("", view.claim.key):
        text = f"ElasticGPU {this.metadata.name} is kept for claim {reserved}"
        return _say(view.claim, objects.ClaimPhase.PENDING, "Taken", text)
    if view.unsuited:
        return _say(view.claim, objects.ClaimPhase.PENDING, "Unsuited", view.unsuited)
    if this.status.phase is objects.Phase.AVAILABLE and not this.metadata.deletion_timestamp:
        return _assign(view, this)
    text = f"ElasticGPU {this.metadata.name} is {str(this.status.phase).lower()}"
    return _say(view.claim, objects.ClaimPhase.PENDING, "NotAvailable", text)


def _assign(view: ClaimView, this: objects.ElasticGPU) -> Action | None:
    """Shares that are there count in the total of the namespace, as those that are made."""
    if view.beyond:
        return _say(view.claim, objects.ClaimPhase.PENDING, NO_ROOM, view.beyond)
    return Assign(this, view.claim)


def _unnamed(view: ClaimView) -> Action | None:
    claim, this = view.claim, view.elastic_gpu
    if this is not None:
        return _made(view, this)
    if view.asked.problem:
        return _say(claim, objects.ClaimPhase.PENDING, view.asked.reason, view.asked.problem)
    if view.spare is not None:
        return Assign(view.spare, claim)
    if view.gpu_class is None and view.beyond:
        return _say(claim, objects.ClaimPhase.PENDING, NO_ROOM, view.beyond)
    if view.gpu_class is None:
        return _say(claim, objects.ClaimPhase.PENDING, "ClassNotFound", without_class(claim))
    waits = view.gpu_class.binding_mode is objects.BindingMode.FIRST_CONSUMER
    if waits and not view.wanted:
        return _say(claim, objects.ClaimPhase.PENDING, WAITS, _WAITS_TEXT)
    return Create(claim, view.gpu_class)


def _made(view: ClaimView, this: objects.ElasticGPU) -> Action | None:
    """What was made for the claim, or assigned to it, becomes its own when it has shares."""
    claim = view.claim
    if this.metadata.deletion_timestamp is not None:
        text = f"ElasticGPU {this.metadata.name} is being deleted"
        return _say(claim, objects.ClaimPhase.PENDING, "NotAvailable", text)
    ref = this.spec.claim_ref
    if ref is None or ref.uid != claim.metadata.uid:
        return _taken_away(view, this)
    is_empty = this.status.phase is objects.Phase.PENDING and not this.spec.capacity
    # What was made for it gives way to what is there, and to what it asks for by now.
    if _is_made_for(this, claim) and (view.unsuited or (is_empty and view.spare is not None)):
        return Delete(this)
    if view.unsuited:
        return _say(claim, objects.ClaimPhase.PENDING, "Unsuited", view.unsuited)
    if is_empty:
        reason = this.status.reason or "Provisioning"
        return _say(claim, objects.ClaimPhase.PENDING, reason, this.status.message)
    return Name(claim, this.metadata.name)


def _taken_away(view: ClaimView, this: objects.ElasticGPU) -> Action | None:
    """Somebody removed the claim from what was made for it; the name is in use all the same."""
    claim, owner = view.claim, this.spec.claim_ref
    if owner is not None and (owner.uid or owner.key not in ("", claim.key)):
        text = f"ElasticGPU {this.metadata.name}, which was made for it, belongs to {owner.key}"
        return _say(claim, objects.ClaimPhase.PENDING, "Taken", text)
    return _assign(view, this if view.spare is None else view.spare)


def _is_made_for(this: objects.ElasticGPU, claim: objects.ElasticGPUClaim) -> bool:
    return this.metadata.name == objects.elastic_gpu_name(claim.metadata.uid)


def without_class(claim: objects.ElasticGPUClaim) -> str:
    """Why a claim cannot have anything made for it."""
    if claim.class_name:
        return f"there is no ElasticGPUClass {claim.class_name}"
    return "it names no class, and no ElasticGPU that is available has what it asks for"


def _unallocated(view: ElasticGPUView) -> Action | None:
    this = view.elastic_gpu
    if view.asked.problem:
        return _set(this, objects.Phase.PENDING, view.asked.reason, view.asked.problem)
    if view.waits:  # a new leader knows of no pod yet, and what was said before may be so still
        was_refused = this.status.reason == NO_ROOM
        return None if was_refused else _set(this, objects.Phase.PENDING, WAITS, _WAITS_TEXT)
    return Allocate(this, view.asked.alternatives)


def _is_bound(this: objects.ElasticGPU, claim: objects.ElasticGPUClaim | None) -> bool:
    return claim is not None and claim.spec.elastic_gpu_name == this.metadata.name


def _is_orphan(view: ElasticGPUView) -> bool:
    """Whether it was a claim's that is gone; a name without a uid only keeps it for that claim."""
    ref = view.elastic_gpu.spec.claim_ref
    return ref is not None and bool(ref.uid) and view.claim is None


def _superseded(view: ElasticGPUView, claim: objects.ElasticGPUClaim) -> Action | None:
    """Its claim has another one, by its own choice: what was made for it is not needed."""
    this = view.elastic_gpu
    if _is_made_for(this, claim):
        return None if view.used else Delete(this)
    text = (
        f"claim {claim.key} has ElasticGPU {claim.spec.elastic_gpu_name}; remove spec.claimRef to "
        "give this one to another claim"
    )
    return _set(this, objects.Phase.PENDING, "ClaimHasAnother", text)


def _orphaned(view: ElasticGPUView) -> Action | None:
    """A claim that is gone leaves an object without shares for nobody: that goes, too."""
    this = view.elastic_gpu
    kept = this.spec.reclaim_policy is objects.ReclaimPolicy.RETAIN and view.has_shares
    if not kept:
        return None if view.used else Delete(this)
    text = "its claim is gone; delete it, or remove spec.claimRef to give it to another claim"
    return _set(this, objects.Phase.RELEASED, "ClaimGone", text)


def _set(
    this: objects.ElasticGPU, phase: objects.Phase, reason: str = "", message: str = ""
) -> SetElasticGPU | None:
    status = this.status
    same = (status.phase, status.reason, status.message) == (phase, reason, message)
    return None if same else SetElasticGPU(this, phase, reason, message)


def _say(
    claim: objects.ElasticGPUClaim, phase: objects.ClaimPhase, reason: str, message: str = ""
) -> SetClaim | None:
    last = condition(claim)
    before = (last.reason, last.message) if last is not None else None
    same = claim.status.phase is phase and before == (reason, message)
    return None if same else SetClaim(claim, phase, reason, message)


BOUND = "Bound"  # the condition of a claim: whether it has what it asks for
WAITS = "WaitForFirstConsumer"
NO_ROOM = "NoRoom"
_WAITS_TEXT = "it is bound when a pod names it"
