"""Adoptions: all that is needed to take a cluster over and to give it back, as a value.

It is made once, from the cluster as it was, and kept in the cluster before anything is changed. So
a take-over that was interrupted goes on by it, from any machine, and undoing it needs nothing else.
Each step puts things into a state that is written here, whatever they were before: doing a step
twice does nothing the second time.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.cli.cluster.adoption import objects
from partage.core import errors

VERSION = 1
MARK = "partage.dev/adopted"  # an annotation of the agent's pods in the place of a plugin's
ADOPTING = "partage.dev/adopting"  # an annotation of a node that is being moved
AGENT = "partage.dev/agent"  # the label by which the chart's agents choose nodes
NEITHER, ENABLED = "adopting", "enabled"  # its values; at the first no plugin serves the node


class Unreadable(errors.PartageError):
    """What is kept of a take-over cannot be read."""

    code = "adoption-unreadable"


class Put(msgspec.Struct, frozen=True, tag="put"):
    """An object is to be as it is here."""

    object: objects.Object


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """An object is not to be there."""

    path: str
    label: str


Change = Put | Remove


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="objects"):
    """Some objects change at once."""

    name: str
    does: str
    check: str  # for people
    undone: str  # for people: what the way back does
    forward: tuple[Change, ...]
    backward: tuple[Change, ...]
    rollouts: tuple[str, ...] = ()  # paths of Deployments that have to be ready, on both ways
    decisions: str = ""  # path of the Deployment whose answers have to agree with the cluster
    last: bool = False  # only when every node was moved


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it was before."""

    name: str
    labels: Mapping[str, str | None] = {}  # those that are changed; None: it was not there
    before: objects.Object = {}  # what told of its cards
    amounts: Mapping[str, int] = {}  # what it offered, by resource
    pods: tuple[str, ...] = ()  # uids of those that had cards


class NodeStep(msgspec.Struct, frozen=True, kw_only=True, tag="node"):
    """One node gets the agent in the place of the plugin."""

    place: Place
    labels: Mapping[str, str] = {}  # that take the plugin away; none: its pod is replaced

    @property
    def name(self) -> str:
        """Its name among the steps."""
        return f"node {self.place.name}"


class Workload(msgspec.Struct, frozen=True):
    """A DaemonSet, by its name."""

    namespace: str
    name: str


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    """A take-over."""

    version: int = VERSION
    system: str
    made_by: str  # the version of Partage
    plugin: Workload
    agent: Workload  # the same where the agent takes the plugin's name
    unit_mib: int = 1024  # of gpushare's resource
    steps: tuple[Step | NodeStep, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The nodes that it moves."""
        return tuple(step.place for step in self.steps if isinstance(step, NodeStep))


def record_name(system: str) -> str:
    """The name of the Secret that keeps a take-over from a system."""
    return f"partage-adopted-{system}"


def encode(adoption: Adoption) -> bytes:
    """As it is kept."""
    return msgspec.json.encode(adoption)


def decode(text: bytes) -> Adoption:
    """A take-over that was kept."""
    try:
        version = msgspec.json.decode(text, type=_Version).version
    except msgspec.MsgspecError as error:
        raise Unreadable(f"the record cannot be read: {error}", instead=_INSTEAD) from error
    if version != VERSION:
        raise Unreadable(
            f"the record is of version {version}, and this partage reads version {VERSION}",
            instead="use the partage that wrote it",
        )
    try:
        return msgspec.json.decode(text, type=Adoption)
    except msgspec.MsgspecError as error:
        raise Unreadable(f"the record cannot be read: {error}", instead=_INSTEAD) from error


class _Version(msgspec.Struct, frozen=True):
    version: int


_INSTEAD = "somebody changed it; apply the original system's own manifests to go back"
