"""What a node offers to the kubelet in each family's words, and the fence that pods may ask for."""

from __future__ import annotations

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.core import cards, grants
from partage.dialects import (
    bound_pods,
    contract,
    grant_record,
    node_readings,
    nodes,
    pods,
    registry,
)
from partage.dialects.families import native
from partage.fence.levels import catalog
from partage.fence.store import layout
from tests.dialects import dialect_pods

NAMES = [dialect.name for dialect in registry.DIALECTS]
ALIYUN, T9K = "ack.node.gpu.schedule", "sched.tensorstack.dev/node-alloc-mode"
GPU = "nvidia.com/gpu"
# Sizes that are no multiple of any unit: what is left over of a card is of no use to anybody.
NODE = dialect_pods.node(16 * 1024 + 300, 24 * 1024 + 1000)


def offered(*spoken: str, labels: dict[str, str] | None = None, **settings: Any) -> dict[str, int]:
    """What the node offers in these dialects."""
    node = dialect_pods.node(*(card.memory_mib for card in NODE.cards), labels=labels)
    return registry.offered(node, contract.Settings(**settings), spoken)


def test_gpushare_counts_gib_or_mib() -> None:
    """As the cluster does; a unit lies on one card."""
    core = "aliyun.com/gpu-core.percentage"
    assert offered("aliyun") == {"aliyun.com/gpu-mem": 16 + 24, core: 200}
    assert offered("aliyun", memory_unit_mib=1)["aliyun.com/gpu-mem"] == 41 * 1024 + 276


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("default", set()),
        ("topology", set()),
        ("cgpu", {"aliyun.com/gpu-mem"}),
        ("share", {"aliyun.com/gpu-mem"}),
        ("mps", {"aliyun.com/gpu-mem"}),
        ("core_mem", {"aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"}),
    ],
)
def test_a_mode_of_ack_serves_its_own(mode: str, words: set[str]) -> None:
    """Whole cards where cards are whole, and shares where they are shared."""
    assert offered("aliyun", labels={ALIYUN: mode}).keys() == words
    whole = offered("nvidia", labels={ALIYUN: mode})
    assert whole == ({} if words else {GPU: 2})


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("", {"nvidia-gpu": 2, "nvidia-gpu-node": 1, "nvidia-gpu-percent": 200}),
        ("xgn", {"nvidia-gpu": 2, "nvidia-gpu-node": 1}),
        ("sgn", {"nvidia-gpu-percent": 200}),
    ],
)
def test_a_mode_of_t9k_serves_its_own(mode: str, expected: dict[str, int]) -> None:
    """A node is one node, however many cards it has."""
    amounts = offered("t9k", labels={T9K: mode} if mode else {})
    assert amounts == {f"tensorstack.dev/{name}": amount for name, amount in expected.items()}


def test_a_node_without_cards_is_no_node_of_t9k() -> None:
    """A pod that asks for the whole node wants cards."""
    empty = registry.offered(cards.Node(name="n"), contract.Settings(), ["t9k"])
    assert set(empty.values()) == {0}


def test_tencent_counts_percent_and_its_units() -> None:
    """qGPU in GiB, gpu-manager in blocks of 256 MiB."""
    prefix = "tke.cloud.tencent.com/qgpu"
    assert offered("qgpu") == {
        f"{prefix}-core": 200,
        f"{prefix}-core-greedy": 200,
        f"{prefix}-memory": 40,
    }
    assert offered("gaia") == {"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 65 + 99}


def test_elastic_gpu_is_offered_under_both_domains() -> None:
    """Pods of either may come."""
    memory_mib = sum(card.memory_mib for card in NODE.cards)
    assert offered("elastic") == {
        "elasticgpu.io/gpu-core": 200,
        "elasticgpu.io/gpu-memory": memory_mib,
        "elasticgpu.com/gpu-core": 200,
        "elasticgpu.com/gpu-memory": memory_mib,
    }


def test_our_own_words_count_seats() -> None:
    """A number of cards may go with a share of each, so cards are counted by who can sit there."""
    assert offered("partage") == {
        "partage.dev/cards": 2 * layout.SEATS,
        "partage.dev/memory-percent": 200,
        "partage.dev/compute-percent": 200,
    }


def test_hami_and_nvidia_share_a_word() -> None:
    """Where both are spoken the larger amount counts, in whatever order they are named."""
    assert offered("nvidia") == {GPU: 2}
    assert offered("hami") == {GPU: 20}
    assert offered("hami", hami_split=4) == {GPU: 8}
    assert offered("hami", "nvidia") == offered("nvidia", "hami") == {GPU: 20}
    assert offered("nvidia", "hami", labels={ALIYUN: "cgpu"}) == {GPU: 20}


def test_only_what_is_spoken_is_offered() -> None:
    """A cluster has one or two families, and the kubelet need not count by the others."""
    alone = {name: offered(name) for name in NAMES}
    assert all(alone.values())
    merged: dict[str, int] = {}
    for amounts in alone.values():
        for word, amount in amounts.items():
            merged[word] = max(amount, merged.get(word, 0))
    assert offered(*NAMES) == merged
    assert offered() == offered("unknown") == {}


def test_every_word_that_kubelets_see_is_offered() -> None:
    """A container that asks for what nobody offers would wait for ever."""
    words = {word for dialect in registry.DIALECTS for word in dialect.resources}
    unseen = {"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"}
    unseen.add("nvidia.com/priority")  # of HAMi: only its scheduler counts by them
    assert offered(*NAMES).keys() | registry.reported(NODE, NAMES).keys() >= words - unseen


def test_what_is_written_into_the_nodes_status_without_a_plugin() -> None:
    """gpushare's number of cards; and our own MiB, which would be too many IDs."""
    memory_mib = sum(card.memory_mib for card in NODE.cards)
    assert registry.reported(NODE, ["aliyun"]) == {"aliyun.com/gpu-count": 2}
    assert registry.reported(NODE, ["partage"]) == {"partage.dev/memory-mib": memory_mib}
    assert registry.reported(NODE, ["t9k", "nvidia", "hami", "qgpu", "gaia", "elastic"]) == {}


@hypothesis.given(
    st.integers(1, 16), st.integers(2048, 80 * 1024), st.sampled_from(["aliyun", "elastic", "gaia"])
)
def test_what_is_offered_is_read_as_the_same_cards(count: int, memory_mib: int, name: str) -> None:
    """Tools and schedulers that know only the node's capacity see the cards that there are."""
    node = dialect_pods.node(*[memory_mib] * count)
    amounts = registry.offered(node, contract.Settings(), [name]) | registry.reported(node, [name])
    status = nodes.Status({word: str(amount) for word, amount in amounts.items()})
    node_cards = node_readings.read(nodes.Node(nodes.Metadata("n"), status)).node.cards

    unit_mib = {"aliyun": 1024, "elastic": 1, "gaia": 256}[name]
    assert [card.memory_mib for card in node_cards] == [memory_mib // unit_mib * unit_mib] * count


ASKING: dict[str, dict[str, pods.Amount]] = {
    "partage": {"partage.dev/cards": 1, "partage.dev/memory-mib": 100},
    "aliyun": {"aliyun.com/gpu-mem": 1},
    "qgpu": {"tke.cloud.tencent.com/qgpu-core": 5, "tke.cloud.tencent.com/qgpu-memory": 1},
    "gaia": {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4},
    "elastic": {"elasticgpu.io/gpu-memory": 100},
    "claims": {"partage.dev/claim": 1},
    "t9k": {"tensorstack.dev/nvidia-gpu-percent": 30},
    "hami": {GPU: 1, "nvidia.com/gpumem": 100},
    "nvidia": {GPU: 1},
}


def asking(name: str, **annotations: str) -> pods.Pod:
    """A pod of a dialect; some ask by an annotation, too."""
    claim = {"elasticgpu.io/egpuc-main": "c"} if name == "claims" else {}
    return dialect_pods.single(ASKING[name], annotations={**claim, **annotations})


class TestFences:
    """A pod of any dialect may say which fence is the weakest that will do."""

    def test_the_words_are_the_levels(self) -> None:
        """From the strongest to the weakest."""
        by_strength = sorted(catalog.Level, reverse=True)
        assert list(native.FENCES) == [level.value for level in by_strength]

    def test_no_dialect_is_missing_here(self) -> None:
        """A new one has to be added."""
        assert list(ASKING) == NAMES

    @pytest.mark.parametrize("name", NAMES)
    def test_a_pod_of_any_dialect_may_name_one(self, name: str) -> None:
        """It changes nothing about what the pod asks for."""
        plain = dialect_pods.demand(asking(name))
        assert plain.dialect == name
        for level in native.FENCES:
            pod = asking(name, **{native.FENCE: level})
            assert native.fence(pod) == level
            assert dialect_pods.demand(pod) == plain

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("wrong", ["", "none", "Hook", "hook "])
    def test_a_slip_is_refused(self, name: str, wrong: str) -> None:
        """A user who wants a fence must not get none because of a letter."""
        error = dialect_pods.refusal(asking(name, **{native.FENCE: wrong}))
        assert error.field == "metadata.annotations[partage.dev/fence]"
        assert error.instead == "write driver or mps or hook or advisory"

    def test_a_pod_that_does_not_say_takes_any(self) -> None:
        """So do pods that want no card."""
        assert native.fence(dialect_pods.single({})) == ""
        stray = dialect_pods.single({}, annotations={native.FENCE: "wrong"})
        assert registry.demand(stray, dialect_pods.SETTINGS) is None

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("fence", ["hook", "none"])
    def test_a_record_with_the_fence_in_force_is_what_the_pod_asked_for(
        self, name: str, fence: str
    ) -> None:
        """The agent adds it when the container was started; nothing else may change by it."""
        pod = asking(name)
        given = dialect_pods.grant(pod, NODE, 1)
        held = msgspec.structs.replace(
            given,
            containers=tuple(msgspec.structs.replace(c, fence=fence) for c in given.containers),
        )
        annotations = dialect_pods.marks(given, pod, NODE).annotations
        for grant in (given, held):
            written = {**annotations, grant_record.GRANT: grant_record.encode(grant)}
            granted = bound_pods.granted(
                dialect_pods.bound(pod, written), NODE, dialect_pods.SETTINGS
            )
            assert isinstance(granted, grants.Grant), granted
            assert granted == grant

    def test_a_record_of_before_has_no_fence(self) -> None:
        """Pods that were placed by an older Partage run on."""
        pod = dialect_pods.single(ASKING["aliyun"])
        text = grant_record.encode(dialect_pods.grant(pod, NODE, 1)).replace(',"fence":""', "")
        assert "fence" not in text
        grant = bound_pods.granted(
            dialect_pods.bound(pod, {grant_record.GRANT: text}), NODE, dialect_pods.SETTINGS
        )
        assert grant == dialect_pods.grant(pod, NODE, 1)
