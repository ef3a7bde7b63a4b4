"""Nodes: the cards that each family's plugin reports, and Partage's own annotation above all."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import cards, grants
from partage.dialects import bound_pods, contract, node_readings, nodes, pods
from tests.dialects import dialect_pods

GIB = 1024


def _node(
    capacity: dict[str, pods.Amount] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> nodes.Node:
    return nodes.Node(
        nodes.Metadata("n", "u", annotations or {}, labels or {}), nodes.Status(capacity or {})
    )


DISCOVERED = {
    "nvidia.com/gpu.count": "4",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.product": "Tesla-T4",
}


@pytest.mark.parametrize(
    ("capacity", "sizes"),
    [
        ({"aliyun.com/gpu-mem": "32552", "aliyun.com/gpu-count": "2"}, [16276] * 2),
        ({"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2}, [15 * GIB] * 2),
        ({"aliyun.com/gpu-mem": 141, "aliyun.com/gpu-count": 1}, [141 * GIB]),
        ({"aliyun.com/gpu-mem": "2k", "aliyun.com/gpu-count": 1}, [2000]),
        ({"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 126}, [63 * 256] * 2),
        ({"elasticgpu.io/gpu-core": 200, "elasticgpu.io/gpu-memory": 30720}, [15360] * 2),
        ({"elasticgpu.com/gpu-core": 100, "elasticgpu.com/gpu-memory": 15360}, [15360]),
        (
            {"tke.cloud.tencent.com/qgpu-core": 100, "tke.cloud.tencent.com/qgpu-memory": 31},
            [31 * GIB],
        ),
        ({"aliyun.com/gpu-mem": 30}, []),
        ({"aliyun.com/gpu-count": 2}, []),
        ({"aliyun.com/gpu-mem": 0, "aliyun.com/gpu-count": 2}, []),
        ({"aliyun.com/gpu-mem": "much", "aliyun.com/gpu-count": "-2"}, []),
        ({"aliyun.com/gpu-mem": 10**9, "aliyun.com/gpu-count": 10**6}, []),
        ({"nvidia.com/gpu": 4}, [0] * 4),
        ({"nvidia.com/gpu": 10**6}, []),
        ({"nvidia.com/gpu": "-1"}, []),
        ({}, []),
    ],
)
def test_capacity_is_divided_among_the_cards(
    capacity: dict[str, pods.Amount], sizes: list[int]
) -> None:
    """As each family's own system reads it."""
    reading = node_readings.read(_node(capacity))
    assert [card.memory_mib for card in reading.node.cards] == sizes
    assert [card.index for card in reading.node.cards] == list(range(len(sizes)))
    assert reading.problems == ()


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "tensorstack.dev/nvidia-gpu"])
def test_labels_of_gpu_feature_discovery_complete_a_number(resource: str) -> None:
    """A count alone says nothing of memory."""
    node = node_readings.read(_node({resource: 4}, labels=DISCOVERED)).node
    assert [(c.memory_mib, c.model) for c in node.cards] == [(15360, "Tesla-T4")] * 4
    assert node_readings.read(_node({}, labels=DISCOVERED)).node.cards == ()


def test_what_hami_registers_is_read_with_its_uuids_and_wins_over_a_number() -> None:
    """Its records on pods name cards by uuid."""
    devices = [
        {"id": f"GPU-{i}", "index": i, "count": 10, "devmem": 24576, "devcore": 100,
         "type": "NVIDIA A30", "numa": 1, "mode": "hami-core", "health": i != 1}
        for i in range(2)
    ]  # fmt: skip
    written = {"hami.io/node-nvidia-register": json.dumps(devices)}
    capacity: dict[str, pods.Amount] = {"aliyun.com/gpu-mem": 48, "aliyun.com/gpu-count": 2}
    node_cards = node_readings.read(_node(capacity, annotations=written)).node.cards
    assert [(c.uuid, c.memory_mib, c.healthy, c.max_tenants, c.numa) for c in node_cards] == [
        ("GPU-0", 24576, True, 10, 1),
        ("GPU-1", 24576, False, 10, 1),
    ]


def test_the_agents_annotation_wins_over_everything() -> None:
    """It is the only one that knows cards of different sizes."""
    node_cards = (
        cards.Card(uuid="GPU-a", index=0, memory_mib=100, model="A", links=(("GPU-b", 10),)),
        cards.Card(uuid="GPU-b", index=1, memory_mib=200, healthy=False),
    )
    node = _node({"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2},
                 annotations={nodes.CARDS: nodes.encode(node_cards)})  # fmt: skip
    assert node_readings.read(node).node.cards == node_cards
    assert node_readings.read(node, unhealthy={0}).node.cards[0].healthy is False


def test_nothing_new_lands_on_a_node_whose_agent_was_ended() -> None:
    """Its kubelet would fail the pod for good; what is there stays, and so do the cards."""
    node_cards = (cards.Card(uuid="GPU-a", index=0, memory_mib=100),)
    written = {nodes.CARDS: nodes.encode(node_cards), nodes.AWAY: "2026-11-18T12:00:00+00:00"}
    node = node_readings.read(_node({}, annotations=written)).node
    assert node.cards == node_cards
    assert node.cordons == {"GPU-a": "the node's agent was ended, and no other has come yet"}


TWINS = '{"version":1,"cards":[%s,%s]}'
MANY = json.dumps(
    {"version": 1, "cards": [{"uuid": f"{i}", "index": i, "memory_mib": 1} for i in range(257)]}
)
CARD = '{"uuid":"%s","index":%d,"memory_mib":1}'


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"version": 1}', '{"version":1,"cards":[{}]}', "[" * 5000,
        '{"version":1,"cards":[{"uuid":"a","index":0,"memory_mib":-1}]}',
        TWINS % (CARD % ("a", 0), CARD % ("a", 1)),
        TWINS % (CARD % ("a", 0), CARD % ("b", 0)),
        '{"version":2,"cards":[]}',
        '{"version":1,"cards":[{"uuid":"a","index":0,"memory_mib":%s}]}' % ("9" * 30),
        '{"version":1,"cards":[{"uuid":"a","index":5000,"memory_mib":1}]}',
        '{"version":1,"cards":[{"uuid":"a","index":0,"memory_mib":1,"foreign_memory_mib":-1}]}',
        MANY,
    ],
)  # fmt: skip
def test_an_annotation_that_makes_no_sense_is_a_problem_and_no_cards(text: str) -> None:
    """Nothing is placed on what nobody understands, though the capacity may sound right."""
    capacity: dict[str, pods.Amount] = {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2}
    reading = node_readings.read(_node(capacity, annotations={nodes.CARDS: text}))
    assert reading.node.cards == ()
    assert reading.problems


@pytest.mark.parametrize(
    ("used", "counted"),
    [({"foreign_memory_mib": 101}, (100, 0)), ({"foreign_compute_percent": 1000}, (0, 100))],
)
def test_strangers_use_no_more_than_a_card_has(
    used: dict[str, int], counted: tuple[int, int]
) -> None:
    """More makes no sense: it is told, and all of the card is used."""
    card = {"uuid": "a", "index": 0, "memory_mib": 100, **used}
    text = json.dumps({"version": 1, "cards": [card]})
    reading = node_readings.read(_node({}, annotations={nodes.CARDS: text}))
    (read,) = reading.node.cards
    assert (read.foreign_memory_mib, read.foreign_compute_percent) == counted
    assert "card 0: processes outside Partage are said to use" in reading.problems[0]


@pytest.mark.parametrize("prefix", ["sched", "scheduler"])
@pytest.mark.parametrize(
    ("value", "count"), [("amd-gpu", 0), ("huawei-npu", 0), ("nvidia-gpu", 2), ("", 2)]
)
def test_a_node_of_another_vendor_has_no_cards(prefix: str, value: str, count: int) -> None:
    """Whatever else it says; and that it says more is a problem."""
    labels = {f"{prefix}.tensorstack.dev/accelerator": value}
    reading = node_readings.read(_node({"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2},
                                       labels=labels))  # fmt: skip
    assert len(reading.node.cards) == count
    assert bool(reading.problems) == (not count)
    assert not node_readings.read(_node({"amd.com/gpu": 8}, labels=labels)).problems


@given(st.text(max_size=200))
def test_no_text_on_a_node_raises(text: str) -> None:
    """Users who may edit a node must not be able to stop the scheduler."""
    for annotation in (nodes.CARDS, "hami.io/node-nvidia-register"):
        node_readings.read(_node(annotations={annotation: text}))


@pytest.mark.parametrize(
    ("label", "value", "is_problem"),
    [
        ("ack.node.gpu.schedule", "cpgu", True),
        ("ack.node.gpu.schedule", "cgpu", False),
        ("ack.node.gpu.placement", "packed", True),
        ("cgpu.disable.isolation", "false", False),
        ("something.else", "x", False),
    ],
)
def test_a_slip_in_the_mode_of_a_node_is_a_problem(
    label: str, value: str, is_problem: bool
) -> None:
    """Else the node would serve what its administrator wanted to keep away."""
    reading = node_readings.read(_node(labels={label: value}))
    assert bool(reading.problems) is is_problem


def _grant(*places: tuple[str, int]) -> grants.Grant:
    shares = tuple(grants.Share(uuid=uuid, index=i, memory_mib=5) for uuid, i in places)
    container = grants.ContainerGrant(name="c", shares=shares)
    return grants.Grant(pod=grants.Pod("u"), node="n", containers=(container,))


def _uuids(grant: grants.Grant) -> list[str]:
    return [share.uuid for container in grant.containers for share in container.shares]


def test_grants_move_between_indexes_and_names() -> None:
    """When an agent names the cards of a node, and when it is taken away."""
    named = cards.Node(
        name="n",
        cards=tuple(cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=9) for i in range(2)),
    )
    unnamed = cards.Node(name="n", cards=nodes.counted(2, 9))
    by_index = _grant(("index-1", 1))
    by_name = nodes.rebased(by_index, named)
    assert _uuids(by_name) == ["GPU-1"]
    assert _uuids(nodes.rebased(by_name, unnamed)) == ["index-1"]
    assert nodes.rebased(by_name, named) is by_name
    gone = _grant(("index-7", 7))
    assert nodes.rebased(gone, named) == gone


def test_a_named_card_is_never_moved_to_another_name() -> None:
    """A card that was swapped is another card, at the same index."""
    swapped = cards.Node(name="n", cards=(cards.Card(uuid="GPU-new", index=0, memory_mib=9),))
    assert _uuids(nodes.rebased(_grant(("GPU-old", 0)), swapped)) == ["GPU-old"]


def test_a_number_alone_is_a_number_of_whole_cards() -> None:
    """As somebody patched it into the status; families that know more are believed first."""
    patched = node_readings.read(_node({"nvidia.com/gpu": "2"})).node
    assert [(c.whole_only, c.index, nodes.unnamed(c)) for c in patched.cards] == [
        (True, 0, True),
        (True, 1, True),
    ]
    more: dict[str, pods.Amount] = {
        "nvidia.com/gpu": 2,
        "aliyun.com/gpu-mem": 30,
        "aliyun.com/gpu-count": 2,
    }
    assert not any(card.whole_only for card in node_readings.read(_node(more)).node.cards)


@pytest.mark.parametrize("source", ["labels", "agent"])
def test_a_whole_card_is_kept_when_its_memory_becomes_known(source: str) -> None:
    """Granted by number; then labels come, or an agent, and the extender starts anew."""
    asking = pods.Pod(
        pods.Metadata("p", "default", "uid"),
        pods.Spec((dialect_pods.container("main", {"nvidia.com/gpu": 1}),), node_name="n"),
    )
    before = node_readings.read(_node({"nvidia.com/gpu": 2})).node
    marks = dialect_pods.marks(dialect_pods.grant(asking, before, 1), asking, before)
    bound = dialect_pods.bound(asking, marks.annotations, "n")
    published = [cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=15360) for i in range(2)]
    after = node_readings.read(
        _node({"nvidia.com/gpu": 2}, labels=DISCOVERED)
        if source == "labels"
        else _node(annotations={nodes.CARDS: nodes.encode(published)})
    ).node

    granted = bound_pods.granted(bound, after, contract.Settings())

    assert isinstance(granted, grants.Grant)
    (share,) = granted.containers[0].shares
    assert (share.uuid, share.memory_mib) == (after.cards[1].uuid, 15360)
    assert bound_pods.granted(bound, before, contract.Settings()) == dialect_pods.grant(
        asking, before, 1
    )
