"""What is remembered of a pod's like is what reading the pod would give."""

from __future__ import annotations

import itertools
import re
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.core import demands, errors
from partage.dialects import contract, grant_record, pods, registry, spread_groups, templates
from partage.dialects.families import aliyun, elastic, gaia, hami, hami_records, native, qgpu, t9k

_RESOURCES = sorted({name for dialect in registry.DIALECTS for name in dialect.resources})
_NUMBERS: tuple[pods.Amount, ...] = (1, 0, 4, 1.0, 4.5, 10**30, float("nan"), float("inf"))
_AMOUNTS = st.sampled_from((*"124x", "", "40", "100", "4Gi", "0", "null", *_NUMBERS))
_ANY = st.dictionaries(st.sampled_from([*_RESOURCES, "cpu", "memory"]), _AMOUNTS, max_size=3)

_REQUESTS: tuple[dict[str, str], ...] = (
    {aliyun.MEMORY: "4", "cpu": "1"},
    {native.MEMORY: "1024", native.COMPUTE: "30"},
    {native.CARDS: "1"},
    {gaia.CORE: "20", gaia.MEMORY: "4"},
    {qgpu.CORE: "20", qgpu.MEMORY: "4"},
    {hami.CARDS: "1", hami.MEMORY: "1000"},
    {"cpu": "1"},
)
_ALLOWED = st.sampled_from(_REQUESTS)
_WORDS = {
    native.QOS: tuple(demands.Qos),
    native.CEILING: ("50", "80"),
    native.POLICY: ("binpack", "spread"),
    native.FENCE: native.FENCES,
    native.MODELS: ("A100", "!A100"),
    native.UUIDS: ("a", "!a"),
    native.CARDS: ("all", "one"),
    spread_groups.SPREAD: ("owner", "all"),
    grant_record.GRANT: ("1", "2"),
    "partage.dev/slip": ("",),
    gaia.CEILING: ("50", "80"),
    gaia.NODE: ("n1", "n2"),
    qgpu.CLASS: tuple(qgpu._CLASSES),
    hami.USE_MODEL: ("A100", "H100"),
    hami.NOT_MODEL: ("A100", "H100"),
    hami.USE_UUID: ("a", "b"),
    hami.NOT_UUID: ("a", "b"),
    hami.NODES_BY: ("binpack", "spread"),
    hami.CARDS_BY: ("binpack", "spread"),
    hami.NUMA: ("true", ""),
    hami.MODE: ("hami-core", "mig"),
    hami_records.ALLOCATED: ("x", "y"),
    aliyun.INDEX: ("0", "1"),
    aliyun.ALLOCATION: ("{}", ""),
    aliyun.CONTAINER_UNITS: ("1", "2"),
    "elasticgpu.io/container-main": ("0", "1"),
    "example.com/note": ("0", "1"),
}
_ANNOTATIONS = st.lists(st.sampled_from(sorted(_WORDS)), max_size=3, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: st.sampled_from(_WORDS[name]) for name in names})
)


def _containers(amounts: st.SearchStrategy[Any], names: str) -> st.SearchStrategy[Any]:
    return st.builds(
        pods.Container,
        name=st.sampled_from(names),
        resources=st.builds(pods.Resources, limits=amounts, requests=st.just({}) | _ANY),
        restart_policy=st.sampled_from(("", "Always")),
    )


_PODS = st.builds(
    pods.Pod,
    metadata=st.builds(
        pods.Metadata,
        name=st.sampled_from("ab"),
        uid=st.sampled_from("uv"),
        annotations=_ANNOTATIONS,
        namespace=st.sampled_from("mn"),
        labels=st.dictionaries(
            st.sampled_from((aliyun.COUNT, "app", t9k.GROUP_LABEL)), st.sampled_from("12x")
        ),
        owner_references=st.lists(
            st.builds(pods.Owner, uid=st.sampled_from(("", *"vw")), controller=st.booleans()),
            max_size=2,
        ).map(tuple),
    ),
    spec=st.builds(
        pods.Spec,
        containers=st.tuples(_containers(_ALLOWED, "m"))
        | st.lists(_containers(_ALLOWED | _ANY, "mn"), min_size=1, max_size=2).map(tuple),
        init_containers=st.just(()) | st.tuples(_containers(_ANY, "ij")),
        node_name=st.sampled_from(("", "n1")),
        overhead=st.just({}) | _ANY,
    ),
)


def _plain(reading: templates.Reading) -> tuple[Any, ...]:
    error = reading.error
    fields = None if error is None else (error.field, error.problem, error.instead)
    return reading.demand, reading.load, fields


def _alike(pod: pods.Pod, other: pods.Pod) -> list[pods.Pod]:
    """The pod with one part of the other each, which a key that leaves it out would mix up."""
    replace = msgspec.structs.replace
    parts = [
        replace(pod, metadata=replace(pod.metadata, **{field: getattr(other.metadata, field)}))
        for field in ("name", "uid", "annotations", "labels", "namespace", "owner_references")
    ]
    parts += [
        replace(pod, spec=replace(pod.spec, **{field: getattr(other.spec, field)}))
        for field in ("containers", "init_containers", "node_name", "overhead")
    ]
    return [pod, *parts, other, pod]


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(pod=_PODS, other=_PODS, unit=st.sampled_from((1, 1024)))
def test_remembering_equals_reading(pod: pods.Pod, other: pods.Pod, unit: int) -> None:
    """For any pods in any order, those that differ in one part only among them."""
    remembered = templates.Templates()
    settings = contract.Settings(memory_unit_mib=unit)
    for variant in _alike(pod, other):
        assert _plain(remembered.reading(variant, settings)) == _plain(
            templates.read(variant, settings)
        )


@pytest.mark.parametrize("word", sorted(_WORDS))
def test_each_word_counts(word: str) -> None:
    """Pods that differ in one annotation are told apart, if it makes a difference to any family."""
    remembered, settings = templates.Templates(), contract.Settings()
    for limits in _REQUESTS:
        for value in (*_WORDS[word], "", "nonsense", *_WORDS[word]):
            pod = _asking(limits, {word: value})
            assert _plain(remembered.reading(pod, settings)) == _plain(
                templates.read(pod, settings)
            )


def test_all_words_are_tried() -> None:
    """Whatever a dialect calls a name of an annotation."""
    named = {
        value
        for module in (aliyun, elastic, gaia, hami, hami_records, native, qgpu, t9k)
        for value in vars(module).values()
        if isinstance(value, str) and value.startswith(registry.names().annotation_prefixes)
    }
    assert named - {word for word in named if word in _RESOURCES or word.endswith("-")} <= {
        *_WORDS,
        *registry.names().record_annotations,
        native.ENFORCED_LABEL,
        native.DOMAIN,
        hami.WEIGHTS,
        hami_records.REGISTER,
        qgpu.POLICY,
        elastic.ASSUMED,
    }


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(pod=_PODS)
def test_reading_equals_the_registry(pod: pods.Pod) -> None:
    """The demand is the registry's, and so is the error."""
    reading = templates.read(pod, contract.Settings())
    if reading.error is not None:
        with pytest.raises(errors.DemandError, match=re.escape(str(reading.error))):
            registry.demand(pod, contract.Settings())
        return
    demand = registry.demand(pod, contract.Settings())
    if reading.demand is None:
        assert demand is None
    else:
        assert msgspec.structs.replace(reading.demand, cpu_milli=0, main_mib=0) == demand


def test_numbers_that_nobody_can_print() -> None:
    """They are read each time, and nothing fails."""
    endless = pods.Resources(limits={aliyun.MEMORY: "4", "cpu": 10**5000})
    pod = pods.Pod(spec=pods.Spec(containers=(pods.Container("main", endless),)))
    remembered = templates.Templates()
    for _ in range(2):
        demand = remembered.reading(pod, contract.Settings()).demand
        assert demand is not None
        assert demand.containers[0].demand.memory_mib == 4096


def test_other_settings_are_another_reading() -> None:
    """The unit of a cluster may turn out to be another one."""
    pod = _asking(_gib("4"))
    remembered = templates.Templates()
    for unit in (1024, 1, 1024):
        demand = remembered.reading(pod, contract.Settings(memory_unit_mib=unit)).demand
        assert demand is not None
        assert demand.containers[0].demand.memory_mib == 4 * unit


def test_pods_of_one_template_are_read_once() -> None:
    """Whatever they are called, wherever they are bound, and with whichever record."""
    remembered, settings = templates.Templates(), contract.Settings()
    first = remembered.reading(_asking(_gib("4"), {grant_record.GRANT: "1"}), settings)
    for name, record in itertools.product(("x", "y"), ("2", "3")):
        other = _asking(_gib("4"), {grant_record.GRANT: record}, name=name)
        assert remembered.reading(other, settings) is first


def test_pods_of_one_group_are_read_once() -> None:
    """Those without an owner are in one by their label."""
    remembered, settings = templates.Templates(), contract.Settings()
    grouped = _asking(_gib("4"), {spread_groups.SPREAD: spread_groups.OWNER})
    metadata = msgspec.structs.replace(grouped.metadata, labels={t9k.GROUP_LABEL: "g"})
    pod = msgspec.structs.replace(grouped, metadata=metadata)
    assert remembered.reading(pod, settings) is remembered.reading(pod, settings)


def test_what_is_remembered_is_bounded() -> None:
    """Tenants can write as many templates as they like, and as long ones."""
    remembered, settings = templates.Templates(), contract.Settings()
    for number in range(3000):
        remembered.reading(_asking(_gib(str(number))), settings)
    remembered.reading(_asking(_gib("1"), {"partage.dev/models": "x" * 100_000}), settings)
    assert len(remembered._readings) == 1024
    assert max(map(len, remembered._readings)) < 4096


def _asking(
    limits: dict[str, str], annotations: dict[str, str] | None = None, name: str = "x"
) -> pods.Pod:
    return pods.Pod(
        metadata=pods.Metadata(name=name, uid=name, annotations=annotations or {}),
        spec=pods.Spec(containers=(pods.Container("main", pods.Resources(limits=limits)),)),
    )


def _gib(amount: str) -> dict[str, str]:
    return {aliyun.MEMORY: amount}
