"""The wire: the JSON that kube-scheduler and an extender exchange.

The structs of kube-scheduler have no JSON names of their own, so keys are capitalised; and Go reads
them in any letter case, so clients write them in any. The usual spelling is decoded directly. Only
if something that must be there is missing are the keys looked at once more, ignoring case.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, TypeVar

import msgspec

from partage.core import errors
from partage.dialects import pods

Form = TypeVar("Form", bound=msgspec.Struct)


class WireError(errors.InputError):
    """A body that cannot be read."""

    code = "bad-body"


class NodeList(msgspec.Struct, frozen=True):
    """Whole nodes, from a scheduler that is not configured with nodeCacheCapable."""

    items: tuple[msgspec.Raw, ...] = ()


class PreferringSpec(pods.Spec, frozen=True, rename="camel"):
    """What a pod runs and where, and which nodes it prefers."""

    affinity: msgspec.Raw = msgspec.Raw(b"null")
    topology_spread_constraints: msgspec.Raw = msgspec.Raw(b"null")


class NominatedStatus(pods.Status, frozen=True, rename="camel"):
    """What was last said of a pod, and where it was nominated to."""

    nominated_node_name: str = ""


class PreferringPod(pods.Pod, frozen=True, rename="camel"):
    """A pod that may prefer some nodes, for reasons that are kube-scheduler's to judge."""

    spec: PreferringSpec = PreferringSpec()
    status: NominatedStatus = NominatedStatus()

    @property
    def prefers(self) -> bool:
        """Whether it says anything about the nodes that it prefers."""
        spec = self.spec
        return bytes(spec.affinity) != b"null" or bytes(spec.topology_spread_constraints) != b"null"


class Args(msgspec.Struct, frozen=True, rename="pascal"):
    """The arguments of filter and prioritize; names in the order they were sent."""

    pod: PreferringPod | None = None
    nodes: NodeList | None = None
    node_names: list[str] | None = None


class SetArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """The same, with names as a set: that is quicker where their order does not matter."""

    pod: PreferringPod | None = None
    nodes: NodeList | None = None
    node_names: set[str] | None = None


class FilterResult(msgspec.Struct, frozen=True, rename="pascal", kw_only=True):
    """The answer of filter."""

    nodes: Mapping[str, Any] | None = None
    node_names: list[str] | None = None
    failed_nodes: Mapping[str, str] | None = None
    failed_and_unresolvable_nodes: Mapping[str, str] | None = None
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """A node's score, 0 to 10."""

    host: str
    score: int


class BindingArgs(
    msgspec.Struct,
    frozen=True,
    rename={
        "pod_uid": "PodUID",
        "pod_name": "PodName",
        "pod_namespace": "PodNamespace",
        "node": "Node",
    },
):
    """The arguments of bind."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = ""
    node: str = ""


class BindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer of bind."""

    error: str = ""


class MetaPod(msgspec.Struct, frozen=True, rename={"uid": "UID"}):
    """A victim by its uid."""

    uid: str = ""


class MetaVictims(
    msgspec.Struct, frozen=True, rename={"pods": "Pods", "violations": "NumPDBViolations"}
):
    """The victims on one node, and how many disruption budgets they violate."""

    pods: tuple[MetaPod, ...] = ()
    violations: int = 0


class Victims(
    msgspec.Struct, frozen=True, rename={"pods": "Pods", "violations": "NumPDBViolations"}
):
    """The same with whole pods."""

    pods: tuple[pods.Pod, ...] = ()
    violations: int = 0


class PreemptionArgs(msgspec.Struct, frozen=True, rename="pascal"):
    """The arguments of preempt."""

    pod: pods.Pod | None = None
    node_name_to_victims: dict[str, Victims] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer of preempt."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class _Named(msgspec.Struct, frozen=True):
    """A node, as far as its name goes."""

    class Metadata(msgspec.Struct, frozen=True):
        """Where the name is."""

        name: str = ""

    metadata: Metadata = Metadata()


encode = msgspec.json.encode


def decode(decoder: msgspec.json.Decoder[Form], body: bytes, *required: str) -> Form:
    """A body of a known form; ``required`` are the fields of which one must be there."""
    try:
        read = decoder.decode(body)
        if any(getattr(read, field) for field in required):
            return read
        return decoder.decode(_renamed(body, msgspec.structs.fields(decoder.type)))
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"the body cannot be read: {str(error)[:200]}") from None
    except RecursionError:
        raise WireError("the body cannot be read: it is nested too deeply") from None


def asked_names(args: Args | SetArgs) -> Set[str] | None:
    """The names of the nodes that are asked about; None if there are none; raises WireError."""
    if isinstance(args.node_names, set):
        return args.node_names
    if args.node_names is not None:
        return set(args.node_names)
    return None if args.nodes is None else set(names(args.nodes))


def names(nodes: NodeList) -> list[str]:
    """The names of whole nodes, in order; raises WireError."""
    try:
        return [_NAMED.decode(item).metadata.name for item in nodes.items]
    except (msgspec.MsgspecError, ValueError) as error:
        raise WireError(f"a node cannot be read: {str(error)[:200]}") from None


_NAMED = msgspec.json.Decoder(_Named)


def _renamed(body: bytes, fields: tuple[msgspec.structs.FieldInfo, ...]) -> bytes:
    """The body with its keys spelled as the fields are."""
    spellings = {field.encode_name.lower(): field.encode_name for field in fields}
    entries = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({spellings.get(k.lower(), k): v for k, v in entries.items()})
