"""The objects of claims as they were last seen, with what follows from them for the fleet.

Three reflectors fill it, by the sinks of :mod:`.claim_sinks`: claims, classes, ElasticGPUs. The
shares of an ElasticGPU are a grant of the fleet from the moment in which its record is seen, and
until it is gone, so nothing else can have them, whether or not a pod uses them. What has to be
looked at again is a set of names, not a queue of events: however often an object changes, it is
looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from partage.core import cards, errors, fleet, grants
from partage.dialects import contract, nodes
from partage.dialects.claims import objects, requests
from partage.scheduler.claims import claim_sinks, lifecycle


class ClaimStore:
    """What is known of claims."""

    def __init__(
        self,
        fleet: fleet.Fleet,
        *,
        settings: Callable[[], contract.Settings],
        freed: Callable[[str], None] = lambda _node: None,
        changed: Callable[[str], None] = lambda _key: None,
    ) -> None:
        self._settings = settings
        self._freed = freed  # called with the name of a node that has more room than before
        self.changed = changed  # called with a claim, by namespace/name, that pods may have by now
        self.claims = claim_sinks.Claims(self)
        self.classes = claim_sinks.Classes(self)
        self.elastic_gpus = claim_sinks.ElasticGPUs(self)
        self.due_claims: dict[str, None] = {}  # uids, the longest waiting first
        self.due_elastic_gpus: dict[str, None] = {}  # names
        self.wanted: dict[str, tuple[str, ...]] = {}  # claim's uid -> nodes for a pod that waits
        self._fleet = fleet
        self._promises: dict[str, _Promise] = {}  # by the name of an ElasticGPU

    def find(self, key: str) -> objects.ElasticGPUClaim | None:
        """A claim by ``namespace/name``."""
        uid = self.claims.uids.get(key)
        return None if uid is None else self.claims.by_uid[uid]

    def elastic_gpu_of(self, claim: objects.ElasticGPUClaim) -> objects.ElasticGPU | None:
        """What a claim names, or what was made for it or given to it."""
        by_name = self.elastic_gpus.by_name
        if claim.spec.elastic_gpu_name:
            return by_name.get(claim.spec.elastic_gpu_name)
        owned = self.elastic_gpus.owned.get(claim.metadata.uid, ())
        made = objects.elastic_gpu_name(claim.metadata.uid)
        if made in owned or not owned:  # what was made for it is found without its uid, too
            return by_name.get(made)
        return by_name[min(owned)]  # somebody may have written its uid on several

    def class_of(self, claim: objects.ElasticGPUClaim) -> objects.ElasticGPUClass | None:
        """The class that a claim names, if it is there."""
        return self.classes.by_name.get(claim.class_name)

    def bound_grant(self, claim: objects.ElasticGPUClaim) -> grants.Grant | None:
        """What a bound claim has; None while it has nothing that could be used."""
        this = self.elastic_gpu_of(claim)
        if this is None or claim.spec.elastic_gpu_name != this.metadata.name:
            return None
        ref = this.spec.claim_ref
        if ref is None or ref.uid != claim.metadata.uid or self.absence(this.metadata.name):
            return None
        return self.grant(this.metadata.name)

    def grant(self, name: str) -> grants.Grant | None:
        """The shares of an ElasticGPU that are recorded on it."""
        uid = objects.owner(name).uid
        is_own = not (self._fleet.hold_of(uid) or self._fleet.is_stand_in(uid))
        return self._fleet.grant_of(uid) if is_own else None

    def absence(self, name: str) -> str:
        """Why the shares of an ElasticGPU are not there; empty if they are, or there are none."""
        if name in self.elastic_gpus.damages:
            return f"ElasticGPU {name} is damaged ({self.elastic_gpus.damages[name]})"
        grant = self.grant(name)
        if grant is None:
            return ""
        state = self._fleet.state(grant.node)
        if state is None:
            return f"node {grant.node} is gone"
        cards_of = {card.uuid: card for card in state.node.cards}
        for share in grant.containers[0].shares if cards_of else ():
            card = cards_of.get(share.uuid)
            if card is None:
                return f"node {grant.node} has no card {share.uuid} any more"
            if not card.healthy:
                return f"card {card.index} ({card.uuid}) of node {grant.node} is unhealthy"
        return ""

    def claim_view(self, uid: str) -> lifecycle.ClaimView | None:
        """A claim, with all that its next step depends on."""
        claim = self.claims.by_uid.get(uid)
        if claim is None:
            return None
        this, gpu_class = self.elastic_gpu_of(claim), self.class_of(claim)
        foreign = gpu_class is not None and not requests.ours(gpu_class.provisioner)
        name = this.metadata.name if this is not None else ""
        request = self.asked(claim, gpu_class) if not foreign else lifecycle.Asked()
        spare, beyond = self._available(claim, this, request)
        return lifecycle.ClaimView(
            claim=claim,
            gpu_class=gpu_class,
            foreign=foreign,
            asked=request,
            elastic_gpu=this,
            absent=self.absence(name) if name else "",
            unsuited="" if this is None else self._unsuited(this, claim, request),
            spare=spare,
            beyond=beyond,
            used=bool(name and self._fleet.users(name)),
            wanted=uid in self.wanted,
        )

    def elastic_gpu_view(self, name: str) -> lifecycle.ElasticGPUView | None:
        """An ElasticGPU, with all that its next step depends on."""
        this = self.elastic_gpus.by_name.get(name)
        if this is None:
            return None
        ref = this.spec.claim_ref
        claim = self.claims.by_uid.get(ref.uid) if ref is not None else None
        return lifecycle.ElasticGPUView(
            elastic_gpu=this,
            claim=claim,
            has_shares=self.grant(name) is not None,
            damage=self.elastic_gpus.damages.get(name, ""),
            absent=self.absence(name),
            used=bool(self._fleet.users(name)),
            asked=self._asked_of(this, claim),
            waits=claim is not None and self._waits(claim),
        )

    def look_again(self, node: str = "") -> None:
        """Room appeared, or a node changed: what waits for room, or is on that node, is due."""
        for name in (*self.elastic_gpus.unallocated, *self.elastic_gpus.by_node.get(node, ())):
            self.due_elastic_gpus[name] = None
            ref = self.elastic_gpus.by_name[name].spec.claim_ref
            if ref is not None and ref.uid in self.claims.by_uid:
                self.due_claims[ref.uid] = None
        self.due_claims.update(self.claims.without_room)

    def want(self, claim: objects.ElasticGPUClaim, node_names: Collection[str]) -> None:
        """A pod that waits names a claim, and could go to these nodes."""
        uid = claim.metadata.uid
        if self.wanted.get(uid) != tuple(node_names):
            self.wanted[uid] = tuple(node_names)
            self.due_claims[uid] = None
            if (this := self.elastic_gpu_of(claim)) is not None:
                self.due_elastic_gpus[this.metadata.name] = None

    def related(self, claim: objects.ElasticGPUClaim) -> Iterator[str]:
        """The ElasticGPUs whose next step may depend on a claim."""
        owned = self.elastic_gpus.owned.get(claim.metadata.uid, ())
        yield from dict.fromkeys(filter(None, (*owned, claim.spec.elastic_gpu_name)))

    def promise(self, this: objects.ElasticGPU, claim: objects.ElasticGPUClaim) -> bool:
        """Count the shares of an ElasticGPU for the claim that gets it; False: another one does.

        That lasts as long as the object has the version that is written on: whatever has become of
        the write, a newer one says whose it is.
        """
        name = this.metadata.name
        before = self._promised(this)
        if before is not None and before.claim != claim.metadata.uid:
            return False
        self._promises[name] = _Promise(
            this.metadata.resource_version, claim.metadata.uid, claim.key
        )
        self._settle_again(name)
        return True

    def take_back(self, name: str) -> None:
        """What was promised is not written; others may have it."""
        self._promises.pop(name, None)
        self._settle_again(name)

    def _settle_again(self, name: str) -> None:
        this = self.elastic_gpus.by_name.get(name)
        if this is not None:
            self.settle(this)

    def _promised(self, this: objects.ElasticGPU) -> _Promise | None:
        promise = self._promises.get(this.metadata.name)
        is_current = promise is not None and promise.version == this.metadata.resource_version
        return promise if is_current else None

    def _recorded(self, this: objects.ElasticGPU) -> grants.Grant | grants.Damage | None:
        """The shares of an ElasticGPU, for the namespace that has them, or is about to."""
        recorded, promise = objects.recorded(this), self._promised(this)
        if promise is None or not isinstance(recorded, grants.Grant):
            return recorded
        owner = objects.owner(this.metadata.name, promise.key)
        return msgspec.structs.replace(recorded, pod=owner)

    def settle(self, this: objects.ElasticGPU) -> None:
        """Count the shares that an ElasticGPU has by its record."""
        name, uid = this.metadata.name, objects.owner(this.metadata.name).uid
        recorded = self._recorded(this)
        self.elastic_gpus.damages.pop(name, None)
        if isinstance(recorded, grants.Grant):
            self._count(recorded)
        elif recorded is not None:
            self.elastic_gpus.damages[name] = str(recorded)
            if self.grant(name) is None and (described := self._described(this)) is not None:
                self._fleet.admit(described)
        elif self._fleet.hold_of(uid) is None:
            self._fleet.release(uid)

    def _count(self, grant: grants.Grant) -> None:
        """Its cards may have other names by now; those of a node that comes later are read then."""
        state, before = self._fleet.state(grant.node), self._fleet.grant_of(grant.pod.uid)
        self._fleet.admit(grant if state is None else nodes.rebased(grant, state.node))
        if before is not None and before.pod.namespace not in ("", grant.pod.namespace):
            self._freed(grant.node)  # the total of the namespace before has room

    def forget(self, name: str) -> None:
        """An ElasticGPU is gone: so are its shares."""
        self._promises.pop(name, None)
        grant = self._fleet.release(objects.owner(name).uid)
        if grant is not None:
            self._freed(grant.node)

    def _described(self, this: objects.ElasticGPU) -> grants.Grant | None:
        """What an ElasticGPU has by its spec, which nobody can change: damage is counted, too."""
        state = self._fleet.state(this.node_name)
        try:
            demand = requests.capacity(this)
        except errors.DemandError:
            return None
        shares = tuple(
            grants.Share(
                uuid=card.uuid,
                index=card.index,
                memory_mib=card.memory_mib if demand.whole else demand.memory_mib,
                compute_percent=cards.FULL_PERCENT if demand.whole else demand.compute_percent,
                exclusive=demand.whole,
            )
            for card in (state.node.cards if state is not None else ())
            if objects.gpu_name(this.node_name, card.index) in this.gpu_names
        )
        if not shares:
            return None
        container = grants.ContainerGrant(name="", shares=shares)
        owner = objects.owner(this.metadata.name, this.claim_key)
        return grants.Grant(pod=owner, node=this.node_name, containers=(container,))

    def asked(
        self, claim: objects.ElasticGPUClaim, gpu_class: objects.ElasticGPUClass | None
    ) -> lifecycle.Asked:
        """What a claim asks for, by its class; one that names none takes what is there."""
        if gpu_class is None and claim.class_name:
            problem = lifecycle.without_class(claim)
            return lifecycle.Asked(problem=problem, reason="ClassNotFound")
        return self._read(claim, requests.ANY if gpu_class is None else gpu_class.provisioner)

    def _read(self, claim: objects.ElasticGPUClaim, provisioner: str) -> lifecycle.Asked:
        if claim.spec.elastic_gpu_name and not requests.asks(claim):
            return lifecycle.Asked()
        try:
            reading = requests.read(claim, provisioner, self._settings())
        except errors.DemandError as error:
            return lifecycle.Asked(problem=str(error))
        return lifecycle.Asked(reading.alternatives)

    def _waits(self, claim: objects.ElasticGPUClaim) -> bool:
        """Whether a claim is bound where its first pod can be, and nobody knows where that is.

        A new leader does not know it before kube-scheduler has asked about the pod again.
        """
        gpu_class = self.class_of(claim)
        if gpu_class is None or claim.metadata.uid in self.wanted:
            return False
        return gpu_class.binding_mode is objects.BindingMode.FIRST_CONSUMER

    def _asked_of(
        self, this: objects.ElasticGPU, claim: objects.ElasticGPUClaim | None
    ) -> lifecycle.Asked:
        """Of one that an administrator wrote, its capacity says it; of others, their claim."""
        if claim is not None and not this.spec.capacity:
            return self.asked(claim, self.class_of(claim))
        try:
            return lifecycle.Asked((requests.capacity(this),))
        except errors.DemandError as error:
            return lifecycle.Asked(problem=str(error))

    def _available(
        self,
        claim: objects.ElasticGPUClaim,
        this: objects.ElasticGPU | None,
        request: lifecycle.Asked,
    ) -> tuple[objects.ElasticGPU | None, str]:
        """What a claim could have that is there, or why its namespace may not have that."""
        if this is not None and self.grant(this.metadata.name) is not None:
            return None, self._beyond(this, claim)
        spares = self._spares(claim, request)
        spare = next((spare for spare in spares if not self._beyond(spare, claim)), None)
        is_beyond = this is None and spare is None and spares
        return spare, self._beyond(spares[0], claim) if is_beyond else ""

    def _spares(
        self, claim: objects.ElasticGPUClaim, request: lifecycle.Asked
    ) -> list[objects.ElasticGPU]:
        """Available ones of the claim's class that have what it asks for; those kept for it first.

        Not those that another claim is about to get.
        """
        fitting = [
            this
            for this in map(self.elastic_gpus.by_name.__getitem__, self.elastic_gpus.available)
            if this.spec.elastic_gpu_class_name == claim.class_name
            and this.claim_key in ("", claim.key)  # else it is kept for another claim
            and this.metadata.deletion_timestamp is None
            and not self._fleet.users(this.metadata.name)
            and self._is_met(this, request)
        ]
        free = [this for this in fitting if self._is_free_for(this, claim)]
        return sorted(free, key=lambda this: not this.claim_key)

    def _is_free_for(self, this: objects.ElasticGPU, claim: objects.ElasticGPUClaim) -> bool:
        promise = self._promised(this)
        return promise is None or promise.claim == claim.metadata.uid

    def _beyond(self, this: objects.ElasticGPU, claim: objects.ElasticGPUClaim) -> str:
        """Why the total of a claim's namespace has no room for an ElasticGPU; empty: it has."""
        grant = self.grant(this.metadata.name)
        if grant is None or grant.pod.namespace == claim.metadata.namespace:  # it counts already
            return ""
        owner = objects.owner(this.metadata.name, claim.key)
        excess = self._fleet.excess(msgspec.structs.replace(grant, pod=owner))
        return "" if excess is None else excess.told("this claim")

    def _is_met(self, this: objects.ElasticGPU, request: lifecycle.Asked) -> bool:
        """Whether the shares of an ElasticGPU are there, and are what somebody asks for."""
        shares, models = self._shares(this)
        return bool(shares) and requests.met(request.alternatives, shares, models)

    def _unsuited(
        self, this: objects.ElasticGPU, claim: objects.ElasticGPUClaim, request: lifecycle.Asked
    ) -> str:
        """Why an ElasticGPU is not for a claim; empty while that is not known."""
        name = this.metadata.name
        was_made = name == objects.elastic_gpu_name(claim.metadata.uid)
        if was_made and this.spec.elastic_gpu_class_name != claim.class_name:
            return f"ElasticGPU {name} is not of class {claim.class_name}"
        shares, models = self._shares(this)
        if self.class_of(claim) is None:  # how much it asks for is known all the same
            request = self._read(claim, requests.ANY)
        if not (shares and request.alternatives):
            return ""
        if requests.met(request.alternatives, shares, models):
            return ""
        return f"ElasticGPU {name} does not have what the claim asks for"

    def _shares(self, this: objects.ElasticGPU) -> tuple[tuple[grants.Share, ...], list[str]]:
        """What an ElasticGPU has on cards that are there and well, with their models."""
        name = this.metadata.name
        grant = self.grant(name)
        state = self._fleet.state(grant.node) if grant is not None else None
        if grant is None or state is None or self.absence(name):
            return (), []
        shares = grant.containers[0].shares
        models = {card.uuid: card.model for card in state.node.cards}
        if not models:  # a node that came back is there before its cards are
            return (), []
        return shares, [models[share.uuid] for share in shares]


def users(fleet: fleet.Fleet, elastic_gpu: str, *, but: str = "") -> tuple[str, ...]:
    """``namespace/name`` of the pods that have an ElasticGPU by its claim, but for one uid."""
    granted = [fleet.grant_of(uid) for uid in fleet.users(elastic_gpu) - {but}]
    pods = [grant.pod for grant in granted if grant is not None]
    return tuple(sorted(f"{pod.namespace}/{pod.name}" for pod in pods))


class _Promise(msgspec.Struct, frozen=True):
    """An ElasticGPU that is being written on, so that a claim has it."""

    version: str  # of the object that is written on
    claim: str  # its uid
    key: str
