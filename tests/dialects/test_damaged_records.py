"""A record that makes no sense is a value that says what is wrong: no error, and no silence."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.core import grants
from partage.dialects import bound_pods, grant_record, pods
from tests.dialects import dialect_pods

INDEX = "ALIYUN_COM_GPU_MEM_IDX"
POD = "ALIYUN_COM_GPU_MEM_POD"
ALLOCATION = "scheduler.framework.gpushare.allocation"
GAIA_INDEX = "tencent.com/predicate-gpu-idx-0"
GAIA_NODE = "tencent.com/predicate-node"
ELASTIC = "elasticgpu.io/container-main"
HAMI = "hami.io/vgpu-devices-allocated"
HAMI_NODE = "hami.io/vgpu-node"

NODE = dialect_pods.node(16384, 16384, 16384)
GPUSHARE = dialect_pods.single({"aliyun.com/gpu-mem": 8})
SEVERAL = dialect_pods.single({"aliyun.com/gpu-mem": 8}, labels={"aliyun.com/gpu-count": "2"})
GAIA = dialect_pods.single({"tencent.com/vcuda-core": 200})
ELASTIC_POD = dialect_pods.single({"elasticgpu.io/gpu-memory": 300})
HAMI_POD = dialect_pods.single({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 300})
THERE = {HAMI_NODE: dialect_pods.NODE}
HERE = {GAIA_NODE: dialect_pods.NODE}

Case = tuple[pods.Pod, Mapping[str, str], str, str]

GPUSHARE_CASES: dict[str, Case] = {
    "index is text": (GPUSHARE, {INDEX: "first", POD: "8"}, INDEX, "not a plain number"),
    "index is negative": (GPUSHARE, {INDEX: "-1", POD: "8"}, INDEX, "not a plain number"),
    "index is empty": (GPUSHARE, {INDEX: "", POD: "8"}, INDEX, "not a plain number"),
    "index is a number to Unicode only": (GPUSHARE, {INDEX: "²", POD: "8"}, INDEX, "plain number"),
    "index is no card": (GPUSHARE, {INDEX: "3", POD: "8"}, INDEX, "has no card 3"),
    "index is huge": (GPUSHARE, {INDEX: "9" * 5000, POD: "8"}, INDEX, "not a plain number"),
    "no amount": (GPUSHARE, {INDEX: "0"}, POD, "missing"),
    "amount is text": (GPUSHARE, {INDEX: "0", POD: "much"}, POD, "not a plain number"),
    "amount is another": (GPUSHARE, {INDEX: "0", POD: "9"}, POD, "the containers ask for 8"),
    "more than the card": (
        dialect_pods.single({"aliyun.com/gpu-mem": 8138}),
        {INDEX: "0", POD: "8138"},
        INDEX,
        "are more than card 0 has",
    ),
    "one card for two": (SEVERAL, {INDEX: "0", POD: "8"}, INDEX, "names 1 cards"),
    "no record on a node of three cards": (
        GPUSHARE,
        {},
        grant_record.GRANT,
        "no record says which",
    ),
    "allocation is no JSON": (GPUSHARE, {ALLOCATION: "{"}, ALLOCATION, "not the expected JSON"),
    "allocation is a list": (GPUSHARE, {ALLOCATION: "[]"}, ALLOCATION, "not the expected JSON"),
    "allocation has broken text": (
        GPUSHARE,
        {ALLOCATION: '"\ud800"'},
        ALLOCATION,
        "not the expected JSON",
    ),
    "allocation is deep": (
        GPUSHARE,
        {ALLOCATION: "[" * 90_000},
        ALLOCATION,
        "not the expected JSON",
    ),
    "allocation is too long": (GPUSHARE, {ALLOCATION: " " * 300_000}, ALLOCATION, "too long"),
    "allocation of nobody": (GPUSHARE, {ALLOCATION: "{}"}, ALLOCATION, "not those that ask"),
    "allocation of an init container alone": (
        dialect_pods.pod(init=(dialect_pods.container("fetch", {"aliyun.com/gpu-mem": 8}),)),
        {ALLOCATION: "{}"},
        ALLOCATION,
        "not those that ask",
    ),
    "allocation of others": (
        GPUSHARE,
        {ALLOCATION: '{"1":{"0":8}}'},
        ALLOCATION,
        "not those that ask",
    ),
    "allocation of no card": (GPUSHARE, {ALLOCATION: '{"0":{}}'}, ALLOCATION, "asks for 8"),
    "allocation of another amount": (
        GPUSHARE,
        {ALLOCATION: '{"0":{"0":7}}'},
        ALLOCATION,
        "asks for 8",
    ),
    "allocation in unequal parts": (
        SEVERAL,
        {ALLOCATION: '{"0":{"0":6,"1":2}}'},
        ALLOCATION,
        "asks for 8",
    ),
    "allocation on one card too many": (
        GPUSHARE,
        {ALLOCATION: '{"0":{"0":4,"1":4}}'},
        ALLOCATION,
        "names 2 cards",
    ),
    "allocation on no such card": (
        GPUSHARE,
        {ALLOCATION: '{"0":{"7":8}}'},
        ALLOCATION,
        "has no card 7",
    ),
    "allocation twice on a card": (
        SEVERAL,
        {ALLOCATION: '{"0":{"1":4,"01":4}}'},
        ALLOCATION,
        "card 1 twice",
    ),
    "allocation apart": (
        dialect_pods.pod(
            dialect_pods.container("a", {"aliyun.com/gpu-mem": 8}),
            dialect_pods.container("b", {"aliyun.com/gpu-mem": 8}),
        ),
        {ALLOCATION: '{"0":{"0":8},"1":{"1":8}}'},
        ALLOCATION,
        "not on the same cards",
    ),
    "allocation and index disagree": (
        GPUSHARE,
        {ALLOCATION: '{"0":{"0":8}}', INDEX: "1"},
        INDEX,
        "is not in",
    ),
}
GAIA_CASES: dict[str, Case] = {
    "no node": (GAIA, {GAIA_INDEX: "0,1"}, GAIA_NODE, "missing"),
    "another node": (GAIA, {GAIA_INDEX: "0,1", GAIA_NODE: "b"}, GAIA_NODE, "names node 'b'"),
    "no index": (GAIA, HERE, GAIA_INDEX, "missing"),
    "one card for two": (GAIA, {**HERE, GAIA_INDEX: "0"}, GAIA_INDEX, "names 1 cards"),
    "a card twice": (GAIA, {**HERE, GAIA_INDEX: "1,1"}, GAIA_INDEX, "card 1 twice"),
    "text": (GAIA, {**HERE, GAIA_INDEX: "0,x"}, GAIA_INDEX, "not a plain number"),
    "endless": (GAIA, {**HERE, GAIA_INDEX: "0," * 100_000}, GAIA_INDEX, "twice"),
    "nothing": (GAIA, {}, grant_record.GRANT, "no record says which"),
}
ELASTIC_CASES: dict[str, Case] = {
    "no such card": (ELASTIC_POD, {ELASTIC: "5"}, ELASTIC, "has no card 5"),
    "two cards for one": (ELASTIC_POD, {ELASTIC: "0,1"}, ELASTIC, "names 2 cards"),
    "another container": (ELASTIC_POD, {ELASTIC + "x": "0"}, ELASTIC, "missing"),
    "nothing": (
        ELASTIC_POD,
        {"elasticgpu.io/assumed": "true"},
        grant_record.GRANT,
        "no record says",
    ),
}
HAMI_CASES: dict[str, Case] = {
    "nothing": (HAMI_POD, THERE, grant_record.GRANT, "no record says which"),
    "no node": (HAMI_POD, {HAMI: "GPU-0,NVIDIA,300,0:;"}, HAMI_NODE, "missing"),
    "another node": (
        HAMI_POD,
        {HAMI: "GPU-0,NVIDIA,300,0:;", HAMI_NODE: "b"},
        HAMI_NODE,
        "names node 'b'",
    ),
    "no devices": (HAMI_POD, {**THERE, HAMI: ";"}, HAMI, "not those that ask"),
    "too many containers": (HAMI_POD, {**THERE, HAMI: ";;;"}, HAMI, "lists 3 containers"),
    "unknown card": (HAMI_POD, {**THERE, HAMI: "GPU-9,NVIDIA,300,0:;"}, HAMI, "no card 'GPU-9'"),
    "another vendor": (HAMI_POD, {**THERE, HAMI: "GPU-0,DCU,300,0:;"}, HAMI, "has no"),
    "too few fields": (HAMI_POD, {**THERE, HAMI: "GPU-0,NVIDIA,300:;"}, HAMI, "plain number"),
    "memory is text": (HAMI_POD, {**THERE, HAMI: "GPU-0,NVIDIA,x,0:;"}, HAMI, "plain number"),
    "no memory": (HAMI_POD, {**THERE, HAMI: "GPU-0,NVIDIA,0,0:;"}, HAMI, "card 0 cannot have"),
    "more than the card": (
        HAMI_POD,
        {**THERE, HAMI: "GPU-0,NVIDIA,16385,0:;"},
        HAMI,
        "card 0 cannot have",
    ),
    "more than its cores": (
        HAMI_POD,
        {**THERE, HAMI: "GPU-0,NVIDIA,300,101:;"},
        HAMI,
        "card 0 cannot have",
    ),
    "two devices for one": (
        HAMI_POD,
        {**THERE, HAMI: "GPU-0,NVIDIA,300,0:GPU-1,NVIDIA,300,0:;"},
        HAMI,
        "has 2 devices",
    ),
    "one device twice": (
        dialect_pods.single({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 300}),
        {**THERE, HAMI: "GPU-0,NVIDIA,300,0:GPU-0,NVIDIA,300,0:;"},
        HAMI,
        "has 2 devices",
    ),
}
OTHER_CASES: dict[str, Case] = {
    "nvidia leaves no record": (
        dialect_pods.single({"nvidia.com/gpu": 1}),
        {},
        grant_record.GRANT,
        "no record says which",
    ),
    "two families": (
        dialect_pods.single({"nvidia.com/gpu": 1, "aliyun.com/gpu-mem": 1}),
        {INDEX: "0", POD: "1"},
        "",
        "in another dialect",
    ),
}
CASES = {
    f"{family}: {name}": case
    for family, cases in {
        "gpushare": GPUSHARE_CASES,
        "gaia": GAIA_CASES,
        "elastic": ELASTIC_CASES,
        "hami": HAMI_CASES,
        "other": OTHER_CASES,
    }.items()
    for name, case in cases.items()
}


def _damage(pod: pods.Pod) -> grants.Damage:
    grant = bound_pods.granted(pod, NODE, dialect_pods.SETTINGS)
    assert isinstance(grant, grants.Damage), grant
    return grant


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_damaged_record_is_reported_at_its_annotation(case: Case) -> None:
    """The damage names the annotation, what is wrong with it, and what to do."""
    pod, annotations, at, why = case
    damage = _damage(dialect_pods.bound(pod, annotations))
    assert at in damage.field
    assert why in damage.problem
    assert len(str(damage)) < 400
    assert damage.instead


def test_a_wrong_unit_is_suspected_where_amounts_are_too_large() -> None:
    """MiB read as GiB is the likely cause, so the damage says where to look."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 8138}, annotations={INDEX: "0", POD: "8138"})
    assert "unit of memory" in _damage(dialect_pods.bound(pod, {})).instead


RECORD = grant_record.encode(dialect_pods.grant(GPUSHARE, NODE, 0))
OWN_CASES = {
    "no JSON": ("{", "not the expected JSON"),
    "no version": ("{}", "not the expected JSON"),
    "a later version": (RECORD.replace('"version":1', '"version":2'), "its version is '2'"),
    "an absurd version": (
        RECORD.replace('"version":1', '"version":' + "1" * 4000),
        "its version is",
    ),
    "another pod": (RECORD.replace("uid-1", "uid-2"), "belongs to another pod, 'uid-2'"),
    "another node": (RECORD.replace('"node-a"', '"node-b"'), "for another node, 'node-b'"),
    "another container": (RECORD.replace('"main"', '"side"'), "not those of the pod"),
    "another role": (RECORD.replace('"app"', '"init"'), "not those of the pod"),
    "negative memory": (RECORD.replace("8192", "-8192"), "out of range"),
    "absurd memory": (RECORD.replace("8192", "8" * 30), "out of range"),
    "too much compute": (RECORD.replace('compute_percent":0', 'compute_percent":101'), "range"),
    "negative index": (RECORD.replace('"index":0', '"index":-1'), "out of range"),
    "no uuid": (RECORD.replace("GPU-0", ""), "out of range"),
    "an endless uuid": (RECORD.replace("GPU-0", "G" * 200), "out of range"),
    "an absurd ceiling": (RECORD.replace('ceiling_percent":0', 'ceiling_percent":900'), "ceiling"),
    "deep": ('{"version":1,"x":' + "[" * 90_000, "nested too deeply"),
    "too long": (RECORD + " " * 300_000, "too long"),
}


@pytest.mark.parametrize(("text", "why"), OWN_CASES.values(), ids=OWN_CASES)
def test_our_own_record_can_be_damaged_too(text: str, why: str) -> None:
    """A damaged record of ours is reported, and no other annotation is believed instead."""
    assert text != RECORD
    damage = _damage(dialect_pods.bound(GPUSHARE, {grant_record.GRANT: text, INDEX: "0", POD: "8"}))
    assert damage.field == "metadata.annotations[partage.dev/grant]"
    assert why in damage.problem
    assert len(str(damage)) < 400


def test_our_own_record_names_each_container_and_card_once() -> None:
    """Repeated containers, repeated cards and containers without cards are damage."""
    grant = dialect_pods.grant(GPUSHARE, NODE, 0)
    (container,) = grant.containers
    replace = msgspec.structs.replace
    for containers in (
        (container, container),
        (replace(container, shares=container.shares * 2),),
        (replace(container, shares=()),),
    ):
        text = grant_record.encode(replace(grant, containers=containers))
        _damage(dialect_pods.bound(GPUSHARE, {grant_record.GRANT: text}))


ANNOTATIONS = [INDEX, POD, ALLOCATION, GAIA_INDEX, GAIA_NODE, ELASTIC, HAMI, HAMI_NODE]
ANNOTATIONS += [
    grant_record.GRANT,
    "hami.io/vgpu-devices-to-allocate",
    "tencent.com/vcuda-core-limit",
]
PIECES = st.sampled_from(
    [
        *("0", "1", "8", "300", "9" * 20, "1e999", "-", ",", ":", ";", "{", "}", "[", '"'),
        *("GPU-0", "NVIDIA", "main", dialect_pods.NODE, "uid-1", "version", "containers", "null"),
        "\ud800",
        "²",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.lists(PIECES, max_size=20).map("".join),
    st.sampled_from(
        [RECORD, '{"0":{"0":8}}', "GPU-0,NVIDIA,300,0:;", dialect_pods.NODE, "0", "0,1", "8"]
    ),
    st.integers(0, len(RECORD)).map(lambda cut: RECORD[:cut] + RECORD[cut + 1 :]),
)


@settings(max_examples=400)
@given(
    pod=st.sampled_from([GPUSHARE, SEVERAL, GAIA, ELASTIC_POD, HAMI_POD]),
    annotations=st.dictionaries(st.sampled_from(ANNOTATIONS), TEXTS, max_size=5),
)
def test_whatever_is_written_a_pod_is_read(pod: pods.Pod, annotations: dict[str, str]) -> None:
    """No text raises, and a bound pod that asks for cards always has a grant or a damage."""
    grant = bound_pods.granted(dialect_pods.bound(pod, annotations), NODE, dialect_pods.SETTINGS)
    assert isinstance(grant, grants.Grant | grants.Damage)
    if isinstance(grant, grants.Grant):
        for container in grant.containers:
            assert container.shares
            assert all(0 <= share.memory_mib <= 1 << 32 for share in container.shares)
