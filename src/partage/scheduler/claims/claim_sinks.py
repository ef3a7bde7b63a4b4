"""The sinks that reflectors fill with claims, classes and ElasticGPUs.

Each keeps the objects of its kind as they are, and names what has to be looked at again when one of
them changes: claims, ElasticGPUs, and claims that pods wait for. kube-scheduler asks about such a
pod again only if it is told to, so whatever could end its waiting is told here. Most statuses that
are written end nobody's waiting, and are not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from partage.dialects import grant_record
from partage.dialects.claims import objects
from partage.scheduler.claims import lifecycle

if TYPE_CHECKING:
    from partage.scheduler.claims import claim_store


class Claims:
    """The sink for claims."""

    def __init__(self, store: claim_store.ClaimStore) -> None:
        self.by_uid: dict[str, objects.ElasticGPUClaim] = {}
        self.uids: dict[str, str] = {}  # by namespace/name
        self.without_room: dict[str, None] = {}  # uids of those that were told so
        self._store = store

    def put(self, claim: objects.ElasticGPUClaim) -> None:
        uid, before = claim.metadata.uid, self.by_uid.get(claim.metadata.uid)
        self.by_uid[uid] = claim
        self.uids[claim.key] = uid
        self.without_room.pop(uid, None)
        if lifecycle.lacks_room(claim):
            self.without_room[uid] = None
        self._store.due_claims[uid] = None
        self._store.due_elastic_gpus.update(dict.fromkeys(self._store.related(claim)))
        if before is None or _may_help(before, claim):
            self._store.changed(claim.key)

    def drop(self, uid: str) -> None:
        claim = self.by_uid.pop(uid, None)
        if claim is None:
            return
        if self.uids.get(claim.key) == uid:
            del self.uids[claim.key]
        self.without_room.pop(uid, None)
        self._store.wanted.pop(uid, None)
        self._store.due_claims.pop(uid, None)
        self._store.due_elastic_gpus.update(dict.fromkeys(self._store.related(claim)))

    def keys(self) -> Collection[str]:
        return self.by_uid.keys()


class Classes:
    """The sink for classes."""

    def __init__(self, store: claim_store.ClaimStore) -> None:
        self.by_name: dict[str, objects.ElasticGPUClass] = {}
        self._store = store

    def put(self, gpu_class: objects.ElasticGPUClass) -> None:
        name = gpu_class.metadata.name
        before = self.by_name.get(name)
        self.by_name[name] = gpu_class
        if before != gpu_class:
            self._changed(name)

    def drop(self, name: str) -> None:
        self.by_name.pop(name, None)
        self._changed(name)

    def keys(self) -> Collection[str]:
        return self.by_name.keys()

    def _changed(self, name: str) -> None:
        """What was made for a claim waits for the class, too, and so may pods that would share."""
        for uid, claim in self._store.claims.by_uid.items():
            if claim.class_name == name:
                self._store.due_claims[uid] = None
                self._store.due_elastic_gpus.update(dict.fromkeys(self._store.related(claim)))
                self._store.changed(claim.key)


class ElasticGPUs:
    """The sink for ElasticGPUs."""

    def __init__(self, store: claim_store.ClaimStore) -> None:
        self.by_name: dict[str, objects.ElasticGPU] = {}
        self.owned: dict[str, dict[str, None]] = {}  # claim's uid -> names
        self.available: dict[str, None] = {}  # names
        self.unallocated: dict[str, None] = {}  # names of those that have no shares
        self.by_node: dict[str, dict[str, None]] = {}  # names
        self.damages: dict[str, str] = {}  # by name
        self._store = store

    def put(self, this: objects.ElasticGPU) -> None:
        name = this.metadata.name
        before = self.by_name.get(name)
        self._disown(name)
        self.by_name[name] = this
        self._sort(this)
        self._store.due_elastic_gpus[name] = None
        self._store.settle(this)
        if before != this:
            self._tell(before, this)

    def drop(self, name: str) -> None:
        self._disown(name)
        self.by_name.pop(name, None)
        self.damages.pop(name, None)
        self._store.due_elastic_gpus.pop(name, None)
        for uid, claim in self._store.claims.by_uid.items():
            if claim.spec.elastic_gpu_name == name:
                self._store.due_claims[uid] = None
        self._store.forget(name)

    def keys(self) -> Collection[str]:
        return self.by_name.keys()

    def _sort(self, this: objects.ElasticGPU) -> None:
        name = this.metadata.name
        if this.node_name:
            self.by_node.setdefault(this.node_name, {})[name] = None
        else:
            self.unallocated[name] = None
        if uid := _owner(this):
            self.owned.setdefault(uid, {})[name] = None
            self._store.due_claims[uid] = None
        if this.status.phase is objects.Phase.AVAILABLE:
            self.available[name] = None

    def _tell(self, before: objects.ElasticGPU | None, this: objects.ElasticGPU) -> None:
        """What is nobody's may be what claims wait for; what is a claim's, what its pods do."""
        uid = _owner(this)
        if not uid:
            self._store.due_claims.update(dict.fromkeys(self._suitors(this)))
            return
        claim = self._store.claims.by_uid.get(uid)
        is_other = before is None or _shares(before) != _shares(this)
        if claim is not None and is_other and self._store.bound_grant(claim) is not None:
            self._store.changed(claim.key)

    def _suitors(self, this: objects.ElasticGPU) -> Iterator[str]:
        """The uids of claims that have nothing yet, and name this one, or any of its class."""
        gpu_class = this.spec.elastic_gpu_class_name
        for uid, claim in self._store.claims.by_uid.items():
            named = claim.spec.elastic_gpu_name
            is_wanted = named == this.metadata.name if named else claim.class_name == gpu_class
            if is_wanted and claim.status.phase is objects.ClaimPhase.PENDING:
                yield uid

    def _disown(self, name: str) -> None:
        before = self.by_name.get(name)
        self.unallocated.pop(name, None)
        self.available.pop(name, None)
        if before is not None and before.node_name:
            self.by_node[before.node_name].pop(name, None)
        ref = before.spec.claim_ref if before is not None else None
        if ref is not None and name in self.owned.get(ref.uid, ()):
            del self.owned[ref.uid][name]
            if not self.owned[ref.uid]:
                del self.owned[ref.uid]
            self._store.due_claims[ref.uid] = None


def _may_help(before: objects.ElasticGPUClaim, claim: objects.ElasticGPUClaim) -> bool:
    """Whether a pod that waited for a claim may have it by now."""
    is_bound = claim.status.phase is objects.ClaimPhase.BOUND
    return before.spec != claim.spec or (is_bound and before.status.phase is not claim.status.phase)


def _shares(this: objects.ElasticGPU) -> tuple[object, ...]:
    """What an ElasticGPU has, and whose it is."""
    return this.spec, this.metadata.annotations.get(grant_record.GRANT)


def _owner(this: objects.ElasticGPU) -> str:
    return this.spec.claim_ref.uid if this.spec.claim_ref is not None else ""
