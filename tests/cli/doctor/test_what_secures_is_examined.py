"""The guard and the certificates of a cluster are examined."""

from __future__ import annotations

import pytest

from partage.admission import guard_state
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings
from tests.cli.doctor import sound_cluster as sound

NOTE, PROBLEM = findings.Status.NOTE, findings.Status.PROBLEM
Force = guard_state.Force
JUDGE = "ValidatingWebhookConfiguration: judge.pods.partage.dev"


class TestPolicies:
    """Each policy, and what becomes possible without it."""

    @pytest.mark.parametrize(
        ("force", "text"),
        [
            (Force.OFF, "it is not installed: pods can get around"),
            (Force.UNBOUND, "nothing binds it: pods can get around"),
        ],
    )
    def test_one_that_does_not_refuse(self, force: Force, text: str) -> None:
        """How it is off, and what that means."""
        finding = sound.only(_policy("partage-guard", force))
        assert (finding.object, finding.status) == ("policy partage-guard", PROBLEM)
        assert text in finding.text

    def test_one_that_only_warns_is_a_choice(self) -> None:
        """It is noted, with how to go on; that records can be forged is never one."""
        finding = sound.only(_policy("partage-guard", Force.TOLD))
        assert finding.status is NOTE
        assert "it warns, and lets them in: pods can get around" in finding.text
        assert "guard.mode=deny" in finding.remedy
        assert sound.only(_policy("partage-records", Force.TOLD)).status is PROBLEM

    def test_the_agents_is_for_newer_clusters(self) -> None:
        """So it is noted only."""
        finding = sound.only(_policy("partage-agent", Force.OFF))
        assert finding.status is NOTE
        assert "agent-guard.yaml" in finding.remedy

    def test_that_of_claims_is_needed_where_there_are_claims(self) -> None:
        """The webhooks say the same, so it is noted."""
        facts = _policy("partage-claims", Force.OFF)
        finding = sound.only(facts)
        assert (finding.object, finding.status) == ("policy partage-claims", NOTE)
        assert "claims.yaml" in finding.remedy
        assert sound.told(sound.replace(facts, definitions=(), gpu_objects=None)) == []

    def test_namespaces_that_are_excepted(self) -> None:
        """As information, with how to end it."""
        finding = sound.only(sound.replace(sound.SOUND, excepted=("storage",)))
        assert (finding.object, finding.status) == ("namespace storage", NOTE)


class TestWebhooks:
    """What the API server asks, and whom it believes."""

    def test_none(self) -> None:
        """Each kind is noted."""
        statuses = [f.status for f in sound.told(sound.replace(sound.SOUND, webhooks=()))]
        assert statuses == [NOTE, NOTE]

    def test_one_that_was_taken_out(self) -> None:
        """The webhook is named."""
        hooks = tuple(hook for hook in sound.WEBHOOKS if "judge" not in hook.name)
        finding = sound.only(sound.replace(sound.SOUND, webhooks=hooks))
        assert (finding.object, finding.status) == (JUDGE, PROBLEM)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"strict": False}, "failurePolicy is Ignore"),
            ({"trusts": False, "matches": None}, "no caBundle"),
            ({"matches": False}, "is not the authority"),
        ],
    )
    def test_one_that_was_changed(self, change: dict[str, object], text: str) -> None:
        """What is wrong with it."""
        finding = sound.only(_hook(**change))
        assert (finding.object, finding.status) == (JUDGE, PROBLEM)
        assert text in finding.text

    def test_a_certificate_that_nobody_could_read(self) -> None:
        """Then nothing is said of whom they believe."""
        assert sound.told(_hook(matches=None)) == []

    def test_those_that_may_be_passed_over(self) -> None:
        """Advice about workloads is not worth a refusal."""
        assert any(not hook.strict for hook in sound.WEBHOOKS)


class TestCertificates:
    """How long they hold."""

    @pytest.mark.parametrize(
        ("left", "status", "text"),
        [
            ({"hours": 24}, PROBLEM, "in 24 hours"),
            ({"days": 15}, NOTE, "in 15 days"),
            ({"hours": -1}, PROBLEM, "it ended on 2026-05-01 11:00 UTC"),
        ],
    )
    def test_one_that_ends(
        self, left: dict[str, float], status: findings.Status, text: str
    ) -> None:
        """Soon, very soon, or it has."""
        facts = sound.replace(sound.SOUND, certificates=(sound.certificate(**left),))
        finding = sound.only(facts)
        assert (finding.object, finding.status) == ("Secret s: tls.crt", status)
        assert text in finding.text

    def test_one_that_has_not_begun(self) -> None:
        """A clock may be wrong."""
        late = sound.replace(sound.certificate(days=60), begins=sound.certificate(days=1).ends)
        assert "it begins on" in sound.only(sound.replace(sound.SOUND, certificates=(late,))).text

    def test_what_is_not_a_certificate(self) -> None:
        """The Secret is named."""
        broken = cluster_facts.Certificate(label="Secret s: ca.crt", problem="it is not one")
        finding = sound.only(sound.replace(sound.SOUND, certificates=(broken,)))
        assert (finding.object, finding.text) == ("Secret s: ca.crt", "it is not one")


def _policy(name: str, force: Force) -> cluster_facts.Facts:
    parts = tuple(
        guard_state.Part(part.name, force) if part.name == name else part
        for part in sound.SOUND.policies
    )
    return sound.replace(sound.SOUND, policies=parts)


def _hook(**change: object) -> cluster_facts.Facts:
    hooks = tuple(
        sound.replace(hook, **change) if "judge" in hook.name else hook for hook in sound.WEBHOOKS
    )
    return sound.replace(sound.SOUND, webhooks=hooks)
