"""What runs of Partage in a cluster is examined: a check speaks of its trouble, and only then."""

from __future__ import annotations

import datetime as dt

import pytest

from partage.cli.cluster.checks import examination
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings
from tests.cli.doctor import sound_cluster as sound

NOTE, PROBLEM = findings.Status.NOTE, findings.Status.PROBLEM
LONG_AGO = sound.NOW - dt.timedelta(minutes=5)


def test_a_sound_cluster_has_nothing_but_good_news() -> None:
    """No check speaks without a reason; so all tests of a trouble are about that trouble."""
    assert sound.told(sound.SOUND) == []
    assert _code(sound.SOUND) == 0


class TestTheExtender:
    """Who leads, and can kube-scheduler reach them."""

    def test_none_at_all(self) -> None:
        """Neither a Deployment nor a Lease."""
        programs = tuple(p for p in sound.SOUND.programs or () if p.role is not sound.Role.EXTENDER)
        facts = sound.replace(sound.SOUND, programs=programs, leases=())
        assert [(f.object, f.status) for f in sound.told(facts)] == [("extender", PROBLEM)]

    def test_one_outside_of_pods_is_as_good(self) -> None:
        """Its Lease shows that it works."""
        programs = tuple(p for p in sound.SOUND.programs or () if p.role is not sound.Role.EXTENDER)
        replicas = tuple(r for r in sound.PODS.replicas if r.role is not sound.Role.EXTENDER)
        facts = sound.replace(sound.with_pods(replicas=replicas), programs=programs)
        assert sound.told(facts) == []

    @pytest.mark.parametrize(
        "change",
        [{"written": LONG_AGO, "renewed": LONG_AGO}, {"holder": ""}, {"written": LONG_AGO}],
        ids=["not renewed", "given back", "by a clock that is ahead"],
    )
    def test_nobody_leads(self, change: dict[str, object]) -> None:
        """The Lease is named; the holder's own clock proves nothing."""
        facts = sound.replace(sound.SOUND, leases=(sound.replace(sound.LEASE, **change),))
        (finding, *_clock) = sound.told(facts)
        assert (finding.object, finding.status) == (
            "Lease kube-system/partage-extender",
            PROBLEM,
        )
        assert "no replica of the extender leads" in finding.text

    def test_a_clock_that_is_behind_takes_no_lease_away(self) -> None:
        """When the API server stored the renewal is what counts."""
        behind = sound.replace(sound.LEASE, renewed=LONG_AGO)
        assert sound.told(sound.replace(sound.SOUND, leases=(behind,))) == []

    def test_no_replica_is_ready(self) -> None:
        """The Deployment is named."""
        dead = sound.replace(sound.LEADER, ready=False)
        finding = sound.only(sound.with_pods(replicas=(dead, *sound.PODS.replicas[1:])))
        assert finding.object == "Deployment kube-system/partage-extender"
        assert "no replica is ready" in finding.text

    def test_no_service_leads_to_the_leader(self) -> None:
        """The pod is named."""
        finding = sound.only(sound.replace(sound.SOUND, endpoints=frozenset()))
        assert finding.object == "pod kube-system/partage-extender-a"

    def test_two_replicas_without_a_lease(self) -> None:
        """Each would grant the same room."""
        finding = sound.only(sound.replace(sound.SOUND, leases=()))
        assert "no Lease" in finding.text

    def test_what_could_not_be_read_is_not_judged(self) -> None:
        """Without leases, pods and workloads nothing is said of them."""
        facts = sound.replace(
            sound.SOUND, programs=None, leases=None, pods=None, nodes=None, endpoints=None
        )
        assert sound.told(facts) == []


class TestTheSchedulerOfTheChart:
    """The kube-scheduler that comes with the extender."""

    @pytest.mark.parametrize(
        ("ready", "status", "text"),
        [
            ("", PROBLEM, "no replica is ready: pods that name it stay pending"),
            ("a", NOTE, "1 of 2 replicas are ready"),
        ],
    )
    def test_replicas_that_are_not_ready(
        self, ready: str, status: findings.Status, text: str
    ) -> None:
        """Its image may not be there; no pod need wait yet for that to be told."""
        replicas = tuple(
            sound.replace(r, ready=r.name[-1] in ready) if r.role is sound.Role.SCHEDULER else r
            for r in sound.PODS.replicas
        )
        finding = sound.only(sound.with_pods(replicas=replicas))
        assert (finding.object, finding.status) == (
            "Deployment kube-system/partage-scheduler",
            status,
        )
        assert finding.text == text

    @pytest.mark.parametrize(
        ("version", "status"),
        [("1.35.9", NOTE), ("1.34.1", PROBLEM), ("1.37.0", PROBLEM), ("2.0.0", PROBLEM)],
    )
    def test_one_that_does_not_go_with_the_cluster(
        self, version: str, status: findings.Status
    ) -> None:
        """As it is when the cluster was upgraded and the chart was not."""
        finding = sound.only(_scheduled_by(version))
        assert finding.status is status
        assert f"kube-system/partage-scheduler-a ({version})" in finding.text
        assert sound.SERVER in finding.text

    @pytest.mark.parametrize("version", ["1.36.0", "", "nightly"])
    def test_one_that_does_or_says_nothing(self, version: str) -> None:
        """Another patch, an image that is named by its digest, a tag without numbers."""
        assert sound.told(_scheduled_by(version)) == []


def test_remedies_are_those_of_how_it_was_installed() -> None:
    """A file of deploy/ is for kube-system, and would lead a chart's webhooks astray."""
    facts = sound.replace(sound.SOUND, webhooks=sound.WEBHOOKS[1:])
    assert sound.only(facts).remedy == "kubectl apply -f deploy/admission-webhooks.yaml"
    assert sound.only(sound.by_helm(facts)).remedy == (
        "`helm upgrade mine deploy/chart/partage --namespace gpu --reset-then-reuse-values`, with "
        "admission.enabled=true"
    )


def test_an_installation_of_another_name_is_sound() -> None:
    """Lease, workloads and pods are known by what they are, not by names."""
    facts = sound.by_helm(sound.SOUND)
    assert sound.told(facts) == []
    finding = sound.only(sound.by_helm(sound.without_agent()))
    assert "`kubectl -n gpu describe daemonset sharing-agent`" in finding.remedy


class TestAdmission:
    """The webhooks behind the configurations."""

    def test_no_replica_is_ready(self) -> None:
        """Pods with cards are refused then."""
        replicas = tuple(r for r in sound.PODS.replicas if r.role is not sound.Role.ADMISSION)
        finding = sound.only(sound.with_pods(replicas=replicas))
        assert (finding.object, finding.status) == (
            "Deployment kube-system/partage-admission",
            PROBLEM,
        )

    def test_one_of_two_is_ready(self) -> None:
        """That works, and is noted."""
        replicas = tuple(r for r in sound.PODS.replicas if r.name != "partage-admission-b")
        finding = sound.only(sound.with_pods(replicas=replicas))
        assert (finding.status, finding.text) == (NOTE, "1 of 2 replicas are ready")

    def test_webhooks_that_nobody_runs(self) -> None:
        """They may run elsewhere."""
        programs = tuple(
            p for p in sound.SOUND.programs or () if p.role is not sound.Role.ADMISSION
        )
        finding = sound.only(sound.replace(sound.SOUND, programs=programs))
        assert (finding.object, finding.status) == ("admission", NOTE)


def test_no_agent_at_all() -> None:
    """No DaemonSet, and no node offers anything."""
    programs = tuple(p for p in sound.SOUND.programs or () if p.role is not sound.Role.AGENT)
    facts = sound.replace(
        sound.SOUND, programs=programs, nodes=cluster_facts.Nodes((), 3), gpu_objects=None
    )
    (finding,) = [f for f in sound.told(facts) if f.object == "agent"]
    assert finding.status is PROBLEM


class TestVersions:
    """Parts of Partage that do not go together."""

    def test_one_minor_version_apart_is_noted(self) -> None:
        """As in an upgrade; the part and both versions are named."""
        finding = sound.only(sound.with_node(agent_version="0.2.9"))
        assert finding.status is NOTE
        assert finding.object == "part agent of node g1 (0.2.9)"
        assert "0.3.1" in finding.text

    @pytest.mark.parametrize("version", ["0.1.0", "1.3.1"])
    def test_more_than_that_is_a_problem(self, version: str) -> None:
        """Nobody has tried that."""
        assert sound.only(sound.with_node(agent_version=version)).status is PROBLEM

    @pytest.mark.parametrize("version", ["0.3.7", "", "nightly"])
    def test_what_goes_together_or_says_nothing(self, version: str) -> None:
        """Another patch, an older agent that does not tell, a tag without numbers."""
        assert sound.told(sound.with_node(agent_version=version)) == []

    def test_this_command_may_be_the_odd_one(self) -> None:
        """The parts are compared with the leader, not with who looks."""
        finding = sound.only(sound.replace(sound.SOUND, version="0.1.0"))
        assert (finding.object, finding.status) == ("this command", NOTE)


def test_a_check_that_fails_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a problem of its own, and asks to be reported."""

    def broken(_facts: cluster_facts.Facts) -> list[findings.Finding]:
        raise ZeroDivisionError("of this test")

    checks = (broken, *examination.CHECKS)
    monkeypatch.setattr(examination, "CHECKS", checks)
    finding = sound.only(sound.SOUND)
    assert "ZeroDivisionError: of this test" in finding.text
    assert len(examination.examine(sound.SOUND)) > len(checks) / 2


class TestExitCodes:
    """What `helm test` and scripts see."""

    def test_a_note_is_no_problem(self) -> None:
        """Warnings do not fail."""
        facts = sound.with_node(agent_version="0.2.9")
        assert _code(facts) == 0

    def test_a_problem_is_one(self) -> None:
        """Even among much that is well."""
        facts = sound.with_node(agent_version="0.1.0")
        assert _code(facts) == 1

    def test_what_was_not_checked_does_not_fail_unless_that_is_all(self) -> None:
        """Who may see nothing at all cannot look."""
        unread = cluster_facts.Unread("pods", "forbidden", "allow list pods")
        some = sound.replace(sound.SOUND, unread=(unread,))
        assert _code(some) == 0
        assert sound.only(some).text == "not checked: forbidden"
        blind = sound.replace(some, programs=None, leases=None, nodes=None, pods=None)
        assert _code(blind) == 2


def _scheduled_by(version: str) -> cluster_facts.Facts:
    """The cluster with another kube-scheduler."""
    replicas = tuple(
        sound.replace(r, version=version) if r.role is sound.Role.SCHEDULER else r
        for r in sound.PODS.replicas
    )
    return sound.with_pods(replicas=replicas)


def _code(facts: cluster_facts.Facts) -> int:
    return examination.exit_code(facts, examination.examine(facts))
