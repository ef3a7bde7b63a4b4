"""Facts: all that the checks of a cluster are made from, as it was at one moment.

A part that is None could not be read, and ``unread`` says why; an empty part was read, and nothing
is there. Of nodes and pods only those are kept that a finding may name, so that a cluster of 50,000
pods needs little memory.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping

import msgspec

from partage.admission import guard_state


class Role(enum.StrEnum):
    """Which program of Partage it is."""

    EXTENDER = "extender"
    ADMISSION = "admission"
    AGENT = "agent"
    SCHEDULER = "scheduler"  # kube-scheduler as it is, with Partage's configuration


class Installation(msgspec.Struct, frozen=True, order=True):
    """Where programs of Partage are, and how the names of their objects begin."""

    namespace: str = "kube-system"
    name: str = "partage"
    release: str = ""  # of Helm; empty: manifests were applied


class Unread(msgspec.Struct, frozen=True):
    """A part that could not be read."""

    part: str
    why: str
    remedy: str


class Clock(msgspec.Struct, frozen=True):
    """How far a clock is ahead of the API server's, and how exactly that is known."""

    owner: str  # for people: "this machine", "node gpu-1"
    ahead_s: float
    within_s: float


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment or a DaemonSet of Partage."""

    kind: str
    namespace: str
    name: str
    role: Role
    replicas: int  # how many there should be
    version: str  # as its label or its image says; empty if neither does
    installation: Installation = Installation()

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of Partage."""

    namespace: str
    name: str
    role: Role
    node: str
    ready: bool
    version: str
    created: dt.datetime | None = None

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"pod {self.namespace}/{self.name}"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Which replica of the extender leads."""

    namespace: str
    name: str
    holder: str = ""
    renewed: dt.datetime | None = None  # by the holder's clock
    written: dt.datetime | None = None  # by the API server's, in whole seconds
    duration_s: int = 0
    version: str = ""

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"Lease {self.namespace}/{self.name}"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has cards, by any sign of them."""

    name: str
    ready: bool = True
    selected: bool = False  # by a DaemonSet of the agent
    discovered: bool = False  # by the labels of NVIDIA's or the nodes' feature discovery
    published: bool = False  # by an agent, now or before
    problem: str = ""  # with what the agent published
    agent_version: str = ""
    fence: str = ""
    offered: frozenset[str] = frozenset()  # resources of dialects that pods can have there
    served: bool = False  # whether a device plugin, ours or another's, offers some of them
    indexes: frozenset[int] = frozenset()  # of its cards, as published


class Nodes(msgspec.Struct, frozen=True):
    """The nodes that have cards, and how many nodes there are in all."""

    cards: tuple[Node, ...]
    count: int


class RivalPod(msgspec.Struct, frozen=True):
    """A pod of another system's device plugin."""

    plugin: str
    resources: frozenset[str]
    pod: str
    node: str


class Waiting(msgspec.Struct, frozen=True):
    """A pod that asks for cards, at which its scheduler has not looked."""

    pod: str
    scheduler: str
    created: dt.datetime


class Damaged(msgspec.Struct, frozen=True):
    """A pod whose record makes no sense."""

    pod: str
    problem: str


class Pods(msgspec.Struct, frozen=True, kw_only=True):
    """What is worth knowing of the pods of a cluster."""

    count: int = 0
    recorded: int = 0  # bound, with a record that is understood
    replicas: tuple[Replica, ...] = ()
    rivals: tuple[RivalPod, ...] = ()
    unrecorded: tuple[str, ...] = ()  # bound, asking for cards, without a record
    newer: tuple[str, ...] = ()  # with a record of a newer version
    older: tuple[str, ...] = ()
    damaged: tuple[Damaged, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    looked: Mapping[str, dt.datetime] = {}  # when a scheduler last looked at a pod, by its name
    asking: Mapping[str, tuple[str, ...]] = {}  # pods that wait, by resources that they name
    without_cdi: Mapping[str, tuple[str, ...]] = {}  # pods that fail for it, by node


class Managed(msgspec.Struct, frozen=True):
    """A resource about which kube-scheduler asks the extender."""

    name: str
    ignored: bool  # not counted by kube-scheduler itself


class SchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """What a ConfigMap tells kube-scheduler."""

    label: str
    problem: str = ""  # why it cannot be read
    has_extender: bool = True
    ignorable: bool = False
    managed: tuple[Managed, ...] = ()


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate, and where it was read."""

    label: str
    begins: dt.datetime | None = None
    ends: dt.datetime | None = None
    problem: str = ""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration."""

    kind: str  # of the configuration
    name: str
    strict: bool  # whether requests are refused while it does not answer
    trusts: bool = True  # whether it names an authority
    matches: bool | None = None  # whether that signed what is served; None: nobody knows


class Definition(msgspec.Struct, frozen=True):
    """One of the definitions of Elastic GPU."""

    name: str
    installed: bool
    same: bool = False  # as this version would install it


class GpuObjects(msgspec.Struct, frozen=True):
    """The GPU objects that Partage made."""

    cards: frozenset[tuple[str, int]]  # node and index
    changed: dt.datetime | None  # the latest write


class Complaint(msgspec.Struct, frozen=True):
    """What an agent told of its node in an event."""

    node: str
    text: str
    taken: bool  # another plugin took its resources; else it does not serve them itself
    when: dt.datetime | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    now: dt.datetime  # the API server's time, if it is told
    version: str  # of the Partage that looks
    server_version: str = ""  # of the API server; empty if it does not tell
    unread: tuple[Unread, ...] = ()
    clocks: tuple[Clock, ...] = ()
    programs: tuple[Program, ...] | None = ()
    leases: tuple[Lease, ...] | None = ()
    endpoints: frozenset[str] | None = frozenset()  # namespace/name of pods that Services reach
    nodes: Nodes | None = Nodes((), 0)
    pods: Pods | None = Pods()
    policies: tuple[guard_state.Part, ...] = ()
    excepted: tuple[str, ...] = ()
    webhooks: tuple[Webhook, ...] | None = ()
    scheduler: tuple[SchedulerConfiguration, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    definitions: tuple[Definition, ...] | None = ()
    gpu_objects: GpuObjects | None = None
    complaints: tuple[Complaint, ...] = ()

    @property
    def release(self) -> Installation | None:
        """What Helm installed; None if it did not."""
        helms = (p.installation for p in self.programs or () if p.installation.release)
        return next(helms, None)

    @property
    def blind(self) -> bool:
        """Whether nothing of the cluster could be looked at but its API server's clock."""
        return (self.programs, self.leases, self.nodes, self.pods) == (None,) * 4
