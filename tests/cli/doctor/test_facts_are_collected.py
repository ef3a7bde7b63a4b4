"""Facts of a cluster: objects as they come from an API server become what checks are made from."""

from __future__ import annotations

import datetime as dt
import pathlib
import re
import ssl
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml

from partage.cli.cluster.facts import (
    certificate_facts,
    cluster_facts,
    forms,
    node_facts,
    object_facts,
    pod_facts,
    program_facts,
)
from partage.core import cards, grants
from partage.dialects import contract, grant_record, nodes
from partage.dialects.claims import definitions
from partage.services import certificates, serving_context

DEPLOY = pathlib.Path(__file__).parents[3] / "deploy"
NOW = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
SHARE = "partage.dev/memory-mib"
CARD = cards.Card(uuid="GPU-0", index=0, memory_mib=16384)
NODE = cards.Node(name="g1", cards=(CARD,))
Role = cluster_facts.Role


class TestPrograms:
    """Whose a workload is, by what it runs."""

    @pytest.mark.parametrize(
        ("file", "kind", "role"),
        [
            ("extender.yaml", "Deployment", Role.EXTENDER),
            ("admission.yaml", "Deployment", Role.ADMISSION),
            ("agent.yaml", "DaemonSet", Role.AGENT),
            ("gpushare-drop-in.yaml", "Deployment", Role.EXTENDER),
            ("gpushare-drop-in.yaml", "DaemonSet", Role.AGENT),
        ],
    )
    def test_of_our_own_manifests(self, file: str, kind: str, role: Role) -> None:
        """Also in gpushare's place; the version is the image's."""
        manifests = yaml.safe_load_all((DEPLOY / file).read_text())
        (made,) = (manifest for manifest in manifests if manifest["kind"] == kind)
        workload = msgspec.convert(made, forms.Workload)
        (program,) = program_facts.of_workload(kind, workload)
        assert (program.role, program.name) == (role, made["metadata"]["name"])
        assert re.fullmatch(r"\d+\.\d+\.\d+", program.version)

    @pytest.mark.parametrize(
        "words",
        [["partage", "doctor"], ["partage", "run", "agent"], ["other", "extender"], []],
    )
    def test_of_something_else(self, words: list[str]) -> None:
        """A word alone does not make a program."""
        assert list(program_facts.roles((_container(*words),))) == []

    def test_webhooks_in_the_extender(self) -> None:
        """One process is both."""
        container = _container("partage", "extender", "--admission", "a.toml")
        assert list(program_facts.roles((container,))) == [Role.EXTENDER, Role.ADMISSION]

    @pytest.mark.parametrize(
        ("labels", "image", "version"),
        [
            ({}, "registry:5000/partage:0.4.2@sha256:00", "0.4.2"),
            ({"app.kubernetes.io/version": "v0.5.0"}, "partage:latest", "0.5.0"),
            ({}, "partage:latest", ""),
            ({}, "registry:5000/partage", ""),
        ],
    )
    def test_versions(self, labels: dict[str, str], image: str, version: str) -> None:
        """The label of charts comes first; a tag without numbers tells nothing."""
        container = forms.Container(image=image)
        assert program_facts.version(Role.AGENT, labels, (container,)) == version

    @pytest.mark.parametrize(
        ("words", "roles"),
        [
            (["kube-scheduler", "--config=/etc/partage/scheduler-config.yaml"], [Role.SCHEDULER]),
            (["/bin/kube-scheduler", "--config=/etc/kubernetes/partage/c.yaml"], [Role.SCHEDULER]),
            (["kube-scheduler", "--config=/etc/kubernetes/scheduler.yaml"], []),
            (["kube-scheduler"], []),
        ],
    )
    def test_kube_scheduler_with_our_configuration(
        self, words: list[str], roles: list[Role]
    ) -> None:
        """That of the cluster is nobody's affair here; the version is Kubernetes' own."""
        image = "registry.k8s.io/kube-scheduler:v1.36.3"
        container = forms.Container(image=image, command=tuple(words))
        assert list(program_facts.roles((container,))) == roles
        label = {"app.kubernetes.io/version": "0.1.0"}
        assert program_facts.version(Role.SCHEDULER, label, (container,)) == "1.36.3"

    @pytest.mark.parametrize(
        ("labels", "place"),
        [
            ({}, ("gpu", "partage", "")),
            (
                {"part-of": "partage", "name": "sharing", "instance": "mine"},
                ("gpu", "sharing", ""),
            ),
            (
                {
                    "part-of": "partage",
                    "name": "sharing",
                    "instance": "mine",
                    "managed-by": "Helm",
                },
                ("gpu", "sharing", "mine"),
            ),
        ],
    )
    def test_where_it_is_installed(
        self, labels: dict[str, str], place: tuple[str, str, str]
    ) -> None:
        """By the labels of the chart; what has none has the names that the programs know."""
        written = {f"app.kubernetes.io/{name}": text for name, text in labels.items()}
        meta = forms.Metadata(name="x", namespace="gpu", labels=written)
        installation = program_facts.installation(meta)
        assert (installation.namespace, installation.name, installation.release) == place

    @pytest.mark.parametrize(
        ("owner", "image", "plugin"),
        [
            ("gpushare-device-plugin-ds", "k8s-gpushare-plugin:v2", "gpushare's device plugin"),
            ("hami-device-plugin", "projecthami/hami:v2.5", "HAMi's device plugin"),
            (
                "nvidia-device-plugin-daemonset",
                "nvcr/k8s-device-plugin:1",
                "NVIDIA's device plugin",
            ),
            ("gpu-manager-daemonset", "tkestack/gpu-manager:1", "Tencent's GPU manager"),
            ("nvdp-gpu-feature-discovery", "nvcr/k8s-device-plugin:1", ""),
            ("node-exporter", "exporter:1", ""),
        ],
    )
    def test_plugins_of_others(self, owner: str, image: str, plugin: str) -> None:
        """By the names of their DaemonSets and images; feature discovery is none."""
        pod = _pod(owner=owner, image=image)
        rival = program_facts.rival(pod)
        assert (rival.plugin if rival else "") == plugin

    def test_our_agent_under_gpushares_name(self) -> None:
        """It is not its own rival."""
        pod = _pod(
            owner="gpushare-device-plugin-ds", image="partage:1.0", words=["partage", "agent"]
        )
        assert program_facts.rival(pod) is None


class TestNodes:
    """Which nodes have cards, by any sign."""

    def test_one_with_an_agent(self) -> None:
        """Its version, its fence and its cards are as published."""
        text = nodes.encode((CARD,), "580.1", "0.7.0")
        labels = {"partage.dev/fence": "hook", "partage.dev/agent": "enabled"}
        node = _node({nodes.CARDS: text}, labels, {"partage.dev/cards": "1", "nvidia.com/gpu": 0})
        read = node_facts.described(node, [{"partage.dev/agent": "enabled"}])
        assert read == cluster_facts.Node(
            name="g1",
            selected=True,
            published=True,
            agent_version="0.7.0",
            fence="hook",
            offered=frozenset({"partage.dev/cards"}),
            served=True,
            indexes=frozenset({0}),
        )

    def test_an_older_agent_does_not_tell_its_version(self) -> None:
        """Its annotation is read all the same, and so is one with more than this version knows."""
        older = '{"version":1,"cards":[],"driver":"535"}'
        assert node_facts.described(_node({nodes.CARDS: older}), ()).agent_version == ""
        newer = '{"version":1,"cards":[],"driver":"535","agent":"9.9","more":{}}'
        assert node_facts.described(_node({nodes.CARDS: newer}), ()).agent_version == "9.9"

    def test_what_stays_when_an_agent_is_gone(self) -> None:
        """An agent writes an amount of memory itself, and no kubelet takes it back."""
        read = node_facts.described(_node(allocatable={"partage.dev/memory-mib": "16384"}), ())
        assert read.offered
        assert not read.served

    def test_an_annotation_of_a_later_version(self) -> None:
        """What is wrong is told."""
        read = node_facts.described(_node({nodes.CARDS: '{"version":2,"cards":[]}'}), ())
        assert "only version 1 is supported" in read.problem

    def test_one_that_feature_discovery_knows(self) -> None:
        """And one without any sign is not kept."""
        readings = node_facts.Readings(())
        readings.put(_node(labels={"feature.node.kubernetes.io/pci-10de.present": "true"}))
        readings.put(_node())
        assert [node.discovered for node in readings.all().cards] == [True]
        assert readings.all().count == 2


class TestPods:
    """What is kept of pods."""

    def test_one_with_a_record(self) -> None:
        """It is counted and forgotten."""
        facts = _tallied(_pod(limits=_SHARE, grant=True))
        assert (facts.count, facts.recorded) == (1, 1)
        assert facts == cluster_facts.Pods(count=1, recorded=1)

    def test_one_without(self) -> None:
        """It was bound past the extender."""
        assert _tallied(_pod(limits=_SHARE)).unrecorded == ("lab/p",)

    @pytest.mark.parametrize(("node", "unrecorded"), [("g1", ("lab/p",)), ("other", ())])
    def test_one_that_a_vendors_plugin_serves(self, node: str, unrecorded: tuple[str, ...]) -> None:
        """On nodes without an agent nobody records anything for these."""
        pod = _pod(limits={"nvidia.com/gpu": 1}, node=node)
        assert _tallied(pod).unrecorded == unrecorded

    @pytest.mark.parametrize(
        ("text", "field"),
        [
            ('{"version":2}', "newer"),
            ('{"version":0}', "older"),
            ("{", "damaged"),
            ("7", "damaged"),
        ],
    )
    def test_one_whose_record_is_not_understood(self, text: str, field: str) -> None:
        """Of another version, or of none."""
        pod = _pod(limits=_SHARE, annotations={grant_record.GRANT: text})
        (kept,) = getattr(_tallied(pod), field)
        assert "lab/p" in str(kept)

    def test_one_that_waits(self) -> None:
        """With what it names, and for whom."""
        facts = _tallied(_pod(limits=_SHARE, node="", scheduler="mine"))
        assert facts.waiting == (cluster_facts.Waiting("lab/p", "mine", NOW),)
        assert facts.asking[SHARE] == ("lab/p",)

    def test_one_at_which_a_scheduler_has_looked(self) -> None:
        """Then the scheduler works, and the pod only waits."""
        pod = _pod(limits=_SHARE, node="", conditions={"PodScheduled": "False"})
        facts = _tallied(pod)
        assert facts.waiting == ()
        assert facts.looked == {"default-scheduler": NOW}

    def test_one_that_has_ended(self) -> None:
        """It has nothing any more."""
        assert _tallied(_pod(limits=_SHARE, phase="Succeeded")) == cluster_facts.Pods(count=1)

    def test_one_that_asks_for_nothing(self) -> None:
        """Most pods of a cluster."""
        assert _tallied(_pod()) == cluster_facts.Pods(count=1)

    def test_one_for_which_the_runtime_has_no_cdi(self) -> None:
        """By what the kubelet says of its container."""
        message = "CDI device injection failed: unresolvable CDI devices partage.dev/card=x"
        facts = _tallied(_pod(limits=_SHARE, grant=True, waiting=message))
        assert facts.without_cdi == {"g1": ("lab/p",)}


class TestCertificates:
    """From Secrets, or from who shows them."""

    def test_when_one_ends(self) -> None:
        """Of a bundle, the first."""
        authority, made = _served()
        read = certificate_facts.read("x", authority.certificate_pem + made.certificate_pem)
        assert read.ends == NOW + dt.timedelta(days=90)
        assert certificate_facts.read("x", b"nothing").problem

    def test_who_signed_it(self) -> None:
        """One of the authorities of a bundle has to."""
        authority, made = _served()
        other = _served()[0].certificate_pem
        both = other + authority.certificate_pem
        assert certificate_facts.signed(made.certificate_pem, both) is True
        assert certificate_facts.signed(made.certificate_pem, other) is False
        assert certificate_facts.signed(made.certificate_pem, b"") is None

    async def test_what_is_shown(self) -> None:
        """A server on loopback shows it to whoever connects."""
        import asyncio

        _, made = _served()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving_context.load(context, made.certificate_pem, made.key_pem)
        server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            pem = await certificate_facts.served("127.0.0.1", port)
        assert pem is not None
        assert certificate_facts.read("x", pem).ends == NOW + dt.timedelta(days=90)
        assert await certificate_facts.served("127.0.0.1", port) is None


class TestStoredObjects:
    """Leases, events, definitions, and a scheduler's configuration."""

    def test_a_clock_by_a_lease(self) -> None:
        """What its holder wrote, beside when it was stored."""
        lease = cluster_facts.Lease(
            namespace="", name="g1", renewed=NOW + dt.timedelta(seconds=12.5), written=NOW
        )
        (clock,) = object_facts.clocks([(lease, "node g1")])
        assert (clock.ahead_s, clock.within_s) == (12.0, 0.5)

    def test_a_lease_of_which_nobody_knows_when_it_was_stored(self) -> None:
        """Nothing can be said of its clock."""
        lease = cluster_facts.Lease(namespace="", name="g1", renewed=NOW)
        assert list(object_facts.clocks([(lease, "node g1")])) == []

    def test_the_last_word_of_an_agent_counts(self) -> None:
        """What it took back is not told; nor is an older complaint than the last."""
        events = [
            _event("g1", "RegistrationTaken", "taken", 1),
            _event("g1", "RegisteredAnew", "back", 2),
            _event("g2", "RegisteredAnew", "back", 1),
            _event("g2", "RegistrationTaken", "taken", 2),
            _event("g2", "ResourceNotServed", "another serves it", 1),
        ]
        complaints = object_facts.latest_complaints(events)
        assert {(c.node, c.text, c.taken) for c in complaints} == {
            ("g2", "taken", True),
            ("g2", "another serves it", False),
        }

    def test_the_configuration_that_is_shipped(self) -> None:
        """As a text of a ConfigMap, beside others."""
        text = (DEPLOY / "scheduler-config.yaml").read_text()
        read = object_facts.configuration("x", {"readme": "hello", "config.yaml": text})
        assert (read.problem, read.has_extender, read.ignorable) == ("", True, False)
        assert cluster_facts.Managed("nvidia.com/gpumem", ignored=True) in read.managed

    @pytest.mark.parametrize("text", ["[", "extenders: 7", "kind: Pod"])
    def test_a_configuration_that_is_none(self, text: str) -> None:
        """What is wrong is told."""
        assert object_facts.configuration("x", {"config.yaml": text}).problem

    def test_definitions_are_compared_by_what_they_define(self) -> None:
        """What the API server adds makes no difference, a column does."""
        made = definitions.all_of_them()[0]["spec"]
        stored = {**made, "conversion": {"strategy": "None"}}
        assert object_facts.compared(stored) == object_facts.compared(made)
        other = [{**version, "additionalPrinterColumns": []} for version in made["versions"]]
        assert object_facts.compared({"versions": other}) != object_facts.compared(made)


_SHARE: Mapping[str, Any] = {"partage.dev/cards": 1, SHARE: 1024}


def _container(*words: str) -> forms.Container:
    return forms.Container(image="registry/any:1", args=tuple(words))


def _pod(
    *,
    limits: Mapping[str, Any] | None = None,
    node: str = "g1",
    annotations: Mapping[str, str] | None = None,
    grant: bool = False,
    scheduler: str = "default-scheduler",
    conditions: Mapping[str, str] | None = None,
    phase: str = "Pending",
    owner: str = "",
    image: str = "x",
    words: list[str] | None = None,
    waiting: str = "",
) -> forms.Pod:
    """A pod as an API server tells of it."""
    container = {"name": "main", "image": image, "args": words or []}
    state = {"waiting": {"reason": "x", "message": waiting}} if waiting else {}
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "lab",
                "uid": "u",
                "creationTimestamp": NOW,
                "annotations": {**(annotations or {}), **(_grant() if grant else {})},
                "ownerReferences": [{"kind": "DaemonSet", "name": owner, "controller": True}],
            },
            "spec": {
                "nodeName": node,
                "schedulerName": scheduler,
                "containers": [{**container, "resources": {"limits": dict(limits or {})}}],
            },
            "status": {
                "phase": phase,
                "containerStatuses": [{"state": state}],
                "conditions": [
                    {"type": kind, "status": status, "lastTransitionTime": NOW}
                    for kind, status in (conditions or {}).items()
                ],
            },
        },
        forms.Pod,
    )


def _grant() -> dict[str, str]:
    share = grants.Share(uuid="GPU-0", index=0, memory_mib=1024)
    granted = grants.Grant(
        pod=grants.Pod("u", "lab", "p"),
        node="g1",
        containers=(grants.ContainerGrant(name="main", shares=(share,)),),
        dialect="partage",
    )
    return {grant_record.GRANT: grant_record.encode(granted)}


def _tallied(pod: forms.Pod) -> cluster_facts.Pods:
    tally = pod_facts.Tally({"g1": NODE}, {"g1"}, contract.Settings())
    tally.put(pod)
    return tally.all()


def _node(
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, Any] | None = None,
) -> forms.Node:
    return msgspec.convert(
        {
            "metadata": {
                "name": "g1",
                "annotations": dict(annotations or {}),
                "labels": dict(labels or {}),
            },
            "status": {
                "allocatable": dict(allocatable or {}),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        forms.Node,
    )


def _event(node: str, reason: str, message: str, second: int) -> forms.Event:
    when = NOW + dt.timedelta(seconds=second)
    return forms.Event(forms.Involved(node), reason, message, when)


def _served() -> tuple[certificates.Pair, certificates.Pair]:
    """An authority, and a certificate that it signed."""
    authority = certificates.authority("partage", NOW)
    return authority, certificates.serving(["a.svc"], authority, NOW)
