"""The objects of Elastic GPU: classes, claims, and what claims are bound to.

They follow PersistentVolume, PersistentVolumeClaim and StorageClass. Several spellings of the same
fields are in circulation; the structs read them all, and the properties say what is meant. The
webhook stores one spelling, but a controller must not depend on that: objects may be older than
the webhook, or have come in while it was down.

The shares of an ElasticGPU are a Grant, recorded on it as on a pod. The grant's owner is called
``elasticgpu/<name>`` where a pod has its uid. Its capacity, its node and its cards stand in the
object's spec, too, for people; a record that differs from them was edited, and is a Damage.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from partage.core import cards, errors, grants
from partage.dialects import contract, grant_record, pods, records, registry, rules
from partage.dialects.claims import amounts

GROUP = "elasticgpu.io"
VERSION = "v1alpha1"  # the one that is stored
OLD_VERSION = "v1alpha"  # of published examples; the same objects
API_VERSION = f"{GROUP}/{VERSION}"
_ROOT = f"/apis/{GROUP}/{VERSION}"
CLASSES_PATH = f"{_ROOT}/elasticgpuclasses"
CLAIMS_PATH = f"{_ROOT}/elasticgpuclaims"  # of all namespaces
ELASTIC_GPUS_PATH = f"{_ROOT}/elasticgpus"
GPUS_PATH = f"{_ROOT}/gpus"

CLAIM_FINALIZER = f"{GROUP}/egpuc-protection"  # while pods use the claim
ELASTIC_GPU_FINALIZER = f"{GROUP}/egpu-protection"  # while a claim is bound to the object
PROVISIONED_BY = f"{GROUP}/provisioned-by"  # an annotation: what made the object

# What capacities are written in, whatever words a claim uses.
CORE, MEMORY, CARDS = f"{GROUP}/gpu-core", f"{GROUP}/gpu-memory", "nvidia.com/gpu"


class BindingMode(enum.StrEnum):
    """When a claim is bound."""

    IMMEDIATE = "Immediate"
    FIRST_CONSUMER = "WaitForFirstConsumer"


class ReclaimPolicy(enum.StrEnum):
    """What becomes of an ElasticGPU whose claim is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


class ClaimPhase(enum.StrEnum):
    """How far a claim is."""

    PENDING = "Pending"
    BOUND = "Bound"
    LOST = "Lost"  # what it was bound to is gone


class Phase(enum.StrEnum):
    """How far an ElasticGPU is."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    BOUND = "Bound"
    RELEASED = "Released"  # its claim is gone, and it is kept
    FAILED = "Failed"


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Who an object is, and what was written on it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None
    resource_version: str = ""
    generation: int = 0


class Condition(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One thing that is so, or not."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class ElasticGPUClass(msgspec.Struct, frozen=True, rename="camel"):
    """A way in which shares for claims are made."""

    metadata: Metadata = Metadata()
    provisioner: str = ""
    parameters: Mapping[str, str] = {}
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.DELETE
    egpu_binding_mode: BindingMode | None = msgspec.field(default=None, name="egpuBindingMode")
    other_binding_mode: BindingMode | None = msgspec.field(default=None, name="eGPUBindingMode")
    shared: bool = False  # whether several pods may use one claim at a time

    @property
    def binding_mode(self) -> BindingMode:
        """When its claims are bound, in whichever spelling."""
        return self.egpu_binding_mode or self.other_binding_mode or BindingMode.IMMEDIATE


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What is claimed."""

    resources: pods.Resources = pods.Resources()
    elastic_gpu_name: str = msgspec.field(default="", name="elasticGPUName")
    elastic_gpu_class_name: str | None = msgspec.field(default=None, name="elasticGPUClassName")
    egpu_class_name: str | None = None
    storage_class_name: str | None = None

    @property
    def class_names(self) -> dict[str, str]:
        """The class by each spelling that is used, the canonical one first."""
        written = {
            "elasticGPUClassName": self.elastic_gpu_class_name,
            "egpuClassName": self.egpu_class_name,
            "storageClassName": self.storage_class_name,
        }
        return {field: name for field, name in written.items() if name is not None}


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a claim."""

    phase: ClaimPhase = ClaimPhase.PENDING
    capacity: Mapping[str, pods.Amount] = {}
    node_name: str = ""
    conditions: tuple[Condition, ...] = ()


class ElasticGPUClaim(msgspec.Struct, frozen=True, rename="camel"):
    """What somebody wants to have, for pods to come."""

    metadata: Metadata = Metadata()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``, as a Demand names it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def class_name(self) -> str:
        """The class, in whichever spelling; empty: it wants an object that is there already."""
        return next(iter(self.spec.class_names.values()), "")


class QGPU(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A share of one card."""

    gpu_name: str = ""
    device_name: str = ""
    paths: tuple[str, ...] = ()


class PhysicalGPU(msgspec.Struct, frozen=True, rename="camel"):
    """Whole cards."""

    gpu_names: tuple[str, ...] = ()


class GPUShare(msgspec.Struct, frozen=True, rename="camel"):
    """A share of one card."""

    gpu_name: str = ""


class ClaimRef(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Whose an ElasticGPU is; ``uid`` decides, as another claim may get the same name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    kind: str = ""
    api_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``; empty if it names nobody."""
        return f"{self.namespace}/{self.name}" if self.name else ""


class _Requirement(msgspec.Struct, frozen=True):
    key: str = ""
    operator: str = "In"
    values: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, rename="camel"):
    match_expressions: tuple[_Requirement, ...] = ()
    match_fields: tuple[_Requirement, ...] = ()


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[_Term, ...] = ()


class NodeAffinity(msgspec.Struct, frozen=True):
    """Where an ElasticGPU is."""

    required: _Selector = _Selector()


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What an ElasticGPU is."""

    capacity: Mapping[str, pods.Amount] = {}
    q_gpu: QGPU | None = msgspec.field(default=None, name="qGPU")
    physical_gpu: PhysicalGPU | None = msgspec.field(default=None, name="physicalGPU")
    gpu_share: GPUShare | None = msgspec.field(default=None, name="gpuShare")
    claim_ref: ClaimRef | None = None
    node_affinity: NodeAffinity = NodeAffinity()
    elastic_gpu_class_name: str = msgspec.field(default="", name="elasticGPUClassName")
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.RETAIN


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What became of an ElasticGPU."""

    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()


class ElasticGPU(msgspec.Struct, frozen=True, rename="camel"):
    """Cards, or a share of one, that exist for a claim."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def node_name(self) -> str:
        """The one node that it is on; empty if the affinity does not name one."""
        terms = self.spec.node_affinity.required.node_selector_terms
        if len(terms) != 1:
            return ""
        named = [
            requirement.values[0]
            for requirement in (*terms[0].match_fields, *terms[0].match_expressions)
            if requirement.key in _NODE_KEYS
            and requirement.operator == "In"
            and len(requirement.values) == 1
        ]
        return named[0] if named else ""

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The GPU objects of its cards, whichever source it has."""
        spec = self.spec
        if spec.physical_gpu is not None:
            return spec.physical_gpu.gpu_names
        source = spec.q_gpu or spec.gpu_share
        return (source.gpu_name,) if source is not None and source.gpu_name else ()

    @property
    def claim_key(self) -> str:
        """``namespace/name`` of the claim that has it, or had it; empty: nobody's."""
        return self.spec.claim_ref.key if self.spec.claim_ref is not None else ""


_NODE_KEYS = ("metadata.name", "kubernetes.io/hostname")


def claim_path(namespace: str, name: str, subresource: str = "") -> str:
    """Where a claim is."""
    return _path(f"{_ROOT}/namespaces/{namespace}/elasticgpuclaims", name, subresource)


def elastic_gpu_path(name: str, subresource: str = "") -> str:
    """Where an ElasticGPU is."""
    return _path(ELASTIC_GPUS_PATH, name, subresource)


def elastic_gpu_name(claim_uid: str) -> str:
    """The name of what is made for a claim: known before it is made."""
    return f"egpu-{claim_uid}"


def gpu_name(node: str, index: int) -> str:
    """The name of a card's GPU object."""
    return f"{node}-{index:02d}"


def owner(name: str, claim_key: str = "") -> grants.Pod:
    """Whose the grant of an ElasticGPU is; names are for people, and those are the claim's."""
    namespace, _, claim = claim_key.partition("/")
    return grants.Pod(grants.elastic_gpu_uid(name), namespace, claim or name)


def owned_name(uid: str) -> str:
    """The ElasticGPU whose grant it is; empty: it is a pod's."""
    owner = grants.OF_ELASTIC_GPU
    return uid.removeprefix(owner) if uid.startswith(owner) else ""


def capacity(grant: grants.Grant) -> dict[str, str]:
    """What a grant comes to, as an object tells it."""
    shares = [share for container in grant.containers for share in container.shares]
    whole = {CARDS: str(len(shares))} if any(share.exclusive for share in shares) else {}
    core = sum(share.compute_percent for share in shares)
    memory_mib = sum(share.memory_mib for share in shares)
    amounts = {CORE: str(core) if core else "", MEMORY: f"{memory_mib}Mi" if memory_mib else ""}
    return whole | {resource: text for resource, text in amounts.items() if text}


def unallocated(claim: ElasticGPUClaim, gpu_class: ElasticGPUClass) -> dict[str, Any]:
    """The ElasticGPU that is made for a claim, before its shares are decided."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticGPU",
        "metadata": {
            "name": elastic_gpu_name(claim.metadata.uid),
            "annotations": {PROVISIONED_BY: gpu_class.provisioner},
            "finalizers": [ELASTIC_GPU_FINALIZER],
        },
        "spec": {
            "claimRef": claim_ref(claim),
            "elasticGPUClassName": gpu_class.metadata.name,
            "reclaimPolicy": str(gpu_class.reclaim_policy),
        },
    }


def allocated(elastic_gpu: ElasticGPU, grant: grants.Grant) -> dict[str, Any]:
    """What is written on an ElasticGPU when its shares are decided, in one step with them.

    What an administrator wrote stays as it is: it cannot be changed, and the shares are that.
    """
    spec = elastic_gpu.spec
    provisioner = elastic_gpu.metadata.annotations.get(PROVISIONED_BY, "")
    has_source = spec.q_gpu or spec.physical_gpu or spec.gpu_share
    return {
        "metadata": {"annotations": {grant_record.GRANT: grant_record.encode(grant)}},
        "spec": {
            **({} if spec.capacity else {"capacity": capacity(grant)}),
            **({} if has_source else _source(provisioner, grant)),
            **({} if elastic_gpu.node_name else {"nodeAffinity": _on(grant.node)}),
        },
    }


def claim_ref(claim: ElasticGPUClaim) -> dict[str, str]:
    """How an ElasticGPU names its claim."""
    meta = claim.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "ElasticGPUClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
    }


def bound_status(elastic_gpu: ElasticGPU) -> dict[str, Any]:
    """What the status of a claim says of the object to which it is bound."""
    return {
        "phase": str(ClaimPhase.BOUND),
        "capacity": dict(elastic_gpu.spec.capacity),
        "nodeName": elastic_gpu.node_name,
    }


def recorded(elastic_gpu: ElasticGPU) -> grants.Grant | grants.Damage | None:
    """The shares of an ElasticGPU by its record; None if it has none, as before it is made.

    The record must be what the spec says. The schema lets nobody change a capacity, a source or an
    affinity, so a difference means that the annotation was edited.
    """
    text = elastic_gpu.metadata.annotations.get(grant_record.GRANT)
    if text is None:
        return None
    try:
        if len(text) > records.MOST_TEXT:
            raise _unreadable(f"it is too long ({len(text)} characters)")
        record = grant_record.read(text)
        grant = grant_record.as_grant(
            record, owner(elastic_gpu.metadata.name, elastic_gpu.claim_key)
        )
        _compare(elastic_gpu, grant, record.uid)
    except records.Unreadable as unreadable:
        return msgspec.structs.replace(unreadable.damage, instead=_REPAIR)
    return grant


def is_given(elastic_gpu: ElasticGPU) -> bool:
    """Whether it has shares, and a claim has it."""
    ref = elastic_gpu.spec.claim_ref
    return ref is not None and bool(ref.uid) and recorded(elastic_gpu) is not None


_REPAIR = (
    "put back the annotation as it was, or delete the ElasticGPU once no pod uses it, so that its "
    "claim is lost and can be made anew"
)


def _compare(elastic_gpu: ElasticGPU, grant: grants.Grant, uid: str) -> None:
    if uid != grant.pod.uid:
        raise _unreadable(f"it belongs to another object, {rules.shown(uid)}")
    if len(grant.containers) != 1 or grant.containers[0].elastic_gpu:
        raise _unreadable("it is not the record of one share")
    if grant.node != elastic_gpu.node_name:
        problem = f"it is for node {rules.shown(grant.node)}, and spec.nodeAffinity names another"
        raise _unreadable(problem)
    if not _amounts_to(grant, elastic_gpu.spec.capacity):
        raise _unreadable("it differs from spec.capacity")
    names = tuple(gpu_name(grant.node, share.index) for share in grant.containers[0].shares)
    if elastic_gpu.gpu_names and names != elastic_gpu.gpu_names:
        raise _unreadable("its cards are not those of the object's source")


def _amounts_to(grant: grants.Grant, written: Mapping[str, pods.Amount]) -> bool:
    """Whether a grant is what a capacity says, in whichever words.

    That cards are whole is told by their number or by their percentage; what they have besides may
    be left out.
    """
    numbers, recorded = _numbers(written), _numbers(capacity(grant))
    count = recorded.get(_CARDS)
    if count is None:
        return numbers == recorded
    whole = {_CARDS: count, _COMPUTE: count * cards.FULL_PERCENT}
    same = all(recorded.get(counted) == number for counted, number in numbers.items())
    return same and recorded | whole == recorded and not numbers.keys().isdisjoint(whole)


_CARDS, _COMPUTE = contract.Counted.CARDS, contract.Counted.COMPUTE


def _numbers(written: Mapping[str, pods.Amount]) -> dict[contract.Counted, Fraction]:
    """The amounts of a capacity by what they count; none if one of them cannot be read."""
    numbers: dict[contract.Counted, Fraction] = {}
    for resource, amount in written.items():
        measure = registry.measures().get(resource)
        try:
            if measure is not None:
                numbers[measure.counted] = amounts.read(resource, amount, measure).number
        except errors.DemandError:
            return {}
    return numbers


def _unreadable(problem: str) -> records.Unreadable:
    return records.Unreadable(grant_record.GRANT, problem)


def _source(provisioner: str, grant: grants.Grant) -> dict[str, Any]:
    """One of the fields that describe what an ElasticGPU is; whole cards are always the same."""
    shares = grant.containers[0].shares
    names = [gpu_name(grant.node, share.index) for share in shares]
    if shares[0].exclusive:
        return {"physicalGPU": {"gpuNames": names}}
    given = registry.provisioners().get(provisioner)
    if given is not None and given.source == "qGPU":
        return {"qGPU": {"gpuName": names[0], "deviceName": shares[0].uuid}}
    return {"gpuShare": {"gpuName": names[0]}}


def _on(node: str) -> dict[str, Any]:
    named = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"required": {"nodeSelectorTerms": [{"matchFields": [named]}]}}


def _path(collection: str, name: str, subresource: str) -> str:
    return "/".join(filter(None, (collection, name, subresource)))
