"""kube-scheduler, records and stored objects are examined, as is what can be known of clocks."""

from __future__ import annotations

import datetime as dt

import pytest

from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings
from tests.cli.doctor import sound_cluster as sound

NOTE, PROBLEM = findings.Status.NOTE, findings.Status.PROBLEM
MINUTE = dt.timedelta(minutes=1)


class TestTheScheduler:
    """Which pods it binds, looks at, and is told to ask about."""

    def test_a_pod_that_was_bound_past_the_extender(self) -> None:
        """The pod is named, and where to look."""
        finding = sound.only(sound.with_pods(unrecorded=("lab/past",)))
        assert (finding.object, finding.status) == ("pod lab/past", PROBLEM)
        assert "managedResources" in finding.remedy

    @pytest.mark.parametrize("looked", [None, sound.NOW - 3 * MINUTE])
    def test_a_pod_at_which_nobody_looks(self, looked: dt.datetime | None) -> None:
        """Its scheduler never was there, or has not done anything since the pod came."""
        finding = sound.only(_waiting(sound.NOW - 2 * MINUTE, looked))
        assert (finding.object, finding.status) == ("pod lab/p", PROBLEM)
        assert "nobody serves 'my-scheduler'" in finding.text

    @pytest.mark.parametrize(
        ("created", "looked"),
        [(sound.NOW, None), (sound.NOW - 2 * MINUTE, sound.NOW - MINUTE)],
        ids=["just made", "its scheduler works"],
    )
    def test_a_pod_that_has_to_wait_a_little(
        self, created: dt.datetime, looked: dt.datetime | None
    ) -> None:
        """A long queue is not a missing scheduler."""
        assert sound.told(_waiting(created, looked)) == []

    def test_a_resource_that_no_node_offers(self) -> None:
        """The pod would wait for ever."""
        asking = {"tensorstack.dev/nvidia-gpu": ("lab/t",), "aliyun.com/gpu-mem": ("lab/a",)}
        finding = sound.only(sound.with_pods(asking=asking))
        assert (finding.object, finding.status) == ("pod lab/t", NOTE)

    def test_a_resource_that_no_kubelet_ever_offers(self) -> None:
        """HAMi's words are for schedulers alone."""
        assert sound.told(sound.with_pods(asking={"nvidia.com/gpumem": ("lab/h",)})) == []

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"problem": "it cannot be read: x"}, "cannot be read"),
            ({"has_extender": False}, "names no extender"),
            ({"ignorable": True}, "ignorable"),
        ],
    )
    def test_a_configuration_that_lets_pods_pass(
        self, change: dict[str, object], text: str
    ) -> None:
        """The ConfigMap is named."""
        configuration = sound.replace(sound.CONFIGURATION, **change)
        finding = sound.only(sound.replace(sound.SOUND, scheduler=(configuration,)))
        assert (finding.object, finding.status) == (sound.CONFIGURATION.label, PROBLEM)
        assert text in finding.text

    def test_a_resource_about_which_nobody_is_asked(self) -> None:
        """Nodes offer it, and the configuration does not name it."""
        managed = (cluster_facts.Managed("partage.dev/cards", ignored=False),)
        configuration = sound.replace(sound.CONFIGURATION, managed=managed)
        finding = sound.only(sound.replace(sound.SOUND, scheduler=(configuration,)))
        assert (finding.object, finding.status) == ("resource aliyun.com/gpu-mem", PROBLEM)

    @pytest.mark.parametrize("published", [True, False])
    def test_a_resource_of_a_vendors_plugin(self, published: bool) -> None:
        """On nodes without an agent its plugin decides, and the extender has no say."""
        offered = sound.RESOURCES | {"nvidia.com/gpu"}
        other = sound.replace(sound.NODE, name="v1", offered=offered, published=published)
        nodes = cluster_facts.Nodes((sound.NODE, other), 3)
        facts = sound.replace(sound.SOUND, nodes=nodes, gpu_objects=None)
        objects = {finding.object for finding in sound.told(facts)}
        assert ("resource nvidia.com/gpu" in objects) is published

    @pytest.mark.parametrize(("ignored", "statuses"), [(False, [NOTE]), (True, [])])
    def test_a_resource_that_is_counted_and_not_offered(
        self, ignored: bool, statuses: list[findings.Status]
    ) -> None:
        """By kube-scheduler's own sum no node would do."""
        extra = cluster_facts.Managed("nvidia.com/gpumem", ignored)
        configuration = sound.replace(
            sound.CONFIGURATION, managed=(*sound.CONFIGURATION.managed, extra)
        )
        facts = sound.replace(sound.SOUND, scheduler=(configuration,))
        assert [finding.status for finding in sound.told(facts)] == statuses


class TestRecords:
    """Records that this version does not understand."""

    def test_one_of_a_newer_version(self) -> None:
        """An older reader says what it does not know."""
        finding = sound.only(sound.with_pods(newer=("lab/new",)))
        assert (finding.object, finding.status) == ("pod lab/new", PROBLEM)
        assert f"{sound.VERSION} does not know" in finding.text

    def test_one_of_an_older_version(self) -> None:
        """It has to be placed again."""
        finding = sound.only(sound.with_pods(older=("lab/old",)))
        assert "placed again" in finding.remedy

    def test_damaged_ones(self) -> None:
        """One is quoted, and all are named."""
        damaged = tuple(cluster_facts.Damaged(f"lab/{i}", "no JSON") for i in range(9))
        finding = sound.only(sound.with_pods(damaged=damaged))
        assert finding.object == "9 pods"
        assert "(lab/0: no JSON)" in finding.text
        assert finding.text.endswith("lab/4 and 4 more")


class TestClaims:
    """Definitions and GPU objects."""

    def test_definitions_of_another_version(self) -> None:
        """All are named, and how to renew them."""
        older = tuple(sound.replace(d, same=False) for d in sound.SOUND.definitions or ())
        finding = sound.only(sound.replace(sound.SOUND, definitions=older))
        assert (finding.object, finding.status) == ("4 definitions", NOTE)
        assert "deploy/claims.yaml" in finding.remedy

    def test_a_definition_that_is_missing(self) -> None:
        """The others are there."""
        first, *rest = sound.SOUND.definitions or ()
        missing = sound.replace(first, installed=False, same=False)
        finding = sound.only(sound.replace(sound.SOUND, definitions=(missing, *rest)))
        assert (finding.object, finding.status) == (f"definition {first.name}", PROBLEM)

    def test_no_definitions_at_all(self) -> None:
        """Claims are not needed."""
        none = tuple(sound.replace(d, installed=False) for d in sound.SOUND.definitions or ())
        facts = sound.replace(sound.SOUND, definitions=none, gpu_objects=None)
        assert sound.told(facts) == []

    @pytest.mark.parametrize(
        ("cards", "text"),
        [
            ({("g1", 0)}, "are missing"),
            ({("g1", 0), ("g1", 1), ("old", 0)}, "it has none"),
        ],
    )
    def test_gpu_objects_of_other_cards(self, cards: set[tuple[str, int]], text: str) -> None:
        """The picture is not of this cluster any more; the node is named."""
        objects = cluster_facts.GpuObjects(frozenset(cards), sound.NOW)
        finding = sound.only(sound.replace(sound.SOUND, gpu_objects=objects))
        assert finding.status is NOTE
        assert text in finding.text


class TestClocks:
    """Only what can be known."""

    @pytest.mark.parametrize(
        ("ahead_s", "status"), [(-9.0, NOTE), (12.0, NOTE), (-301.0, PROBLEM), (4000.0, PROBLEM)]
    )
    def test_a_clock_that_is_off(self, ahead_s: float, status: findings.Status) -> None:
        """Whose it is, and by how much."""
        finding = sound.only(_clock(ahead_s, 0.5))
        way = "ahead" if ahead_s > 0 else "behind"
        assert finding.object == f"clock of node g1 ({abs(ahead_s):.0f} s {way})"
        assert finding.status is status

    @pytest.mark.parametrize(("ahead_s", "within_s"), [(4.0, 0.5), (30.0, 28.0)])
    def test_a_clock_that_may_be_right(self, ahead_s: float, within_s: float) -> None:
        """A slow answer proves nothing."""
        assert sound.told(_clock(ahead_s, within_s)) == []


def _clock(ahead_s: float, within_s: float) -> cluster_facts.Facts:
    clock = cluster_facts.Clock("node g1", ahead_s, within_s)
    return sound.replace(sound.SOUND, clocks=(clock,))


def _waiting(created: dt.datetime, looked: dt.datetime | None) -> cluster_facts.Facts:
    pod = cluster_facts.Waiting("lab/p", "my-scheduler", created)
    return sound.with_pods(waiting=(pod,), looked={"my-scheduler": looked} if looked else {})
