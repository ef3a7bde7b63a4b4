"""The rules that hold for every family: whole positive amounts, in limits, in one language."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors
from partage.dialects import pods, registry
from tests.dialects import dialect_pods

RESOURCES = sorted({name for dialect in registry.DIALECTS for name in dialect.resources})
ZERO_ALLOWED = {"nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/priority"}


BAD_AMOUNTS: dict[str, pods.Amount] = {
    "thousandths": "500m",
    "negative text": "-1",
    "negative": -1,
    "half": 0.5,
    "half as text": "0.5",
    "a word": "many",
    "empty": "",
    "two numbers": "1 0",
    "absurd": 1e30,
    "absurd beyond printing": 10**5000,
}


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("amount", BAD_AMOUNTS.values(), ids=BAD_AMOUNTS)
def test_an_amount_is_a_whole_number_in_range(resource: str, amount: pods.Amount) -> None:
    """Fractions, negative numbers, text and absurd amounts are refused at the limit itself."""
    error = dialect_pods.refusal(dialect_pods.single({resource: amount}))
    assert error.field == f"spec.containers[0].resources.limits[{resource}]"
    assert error.instead


@pytest.mark.parametrize("resource", sorted(set(RESOURCES) - ZERO_ALLOWED))
def test_nothing_is_asked_for_by_leaving_it_out(resource: str) -> None:
    """An amount of zero is refused wherever it would be a request for nothing."""
    assert "not between 1" in dialect_pods.refusal(dialect_pods.single({resource: 0})).problem


@pytest.mark.parametrize("zero", [0, "0", 0.0], ids=repr)
def test_no_nvidia_cards_is_no_request(zero: pods.Amount) -> None:
    """Charts write nvidia.com/gpu: 0 for their CPU variant, and such pods want nothing."""
    assert (
        registry.demand(dialect_pods.single({"nvidia.com/gpu": zero}), dialect_pods.SETTINGS)
        is None
    )


def test_a_container_with_no_nvidia_cards_is_left_out() -> None:
    """Beside a container that wants cards, one that wants none is not listed."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {"nvidia.com/gpu": 0}),
        dialect_pods.container("b", {"nvidia.com/gpu": 1}),
    )
    assert [c.name for c in dialect_pods.demand(pod).containers] == ["b"]


def test_gigabytes_are_refused_with_the_unit_that_is_counted() -> None:
    """The commonest mistake gets the answer that helps; 4Gi would be one more mistake."""
    error = dialect_pods.refusal(dialect_pods.single({"tke.cloud.tencent.com/qgpu-memory": "4GB"}))
    assert error.problem == "'4GB' is not a quantity"
    assert error.instead == "write a number of GiB, without a suffix"


def test_a_suffix_where_units_are_counted_is_refused() -> None:
    """4Gi of GiB is four thousand million; the way out says to leave the suffix away."""
    error = dialect_pods.refusal(dialect_pods.single({"aliyun.com/gpu-mem": "4Gi"}))
    assert "4Gi is not between 1 and 10000000" in error.problem
    assert "a number of GiB" in error.instead
    assert "without a suffix" in error.instead


@pytest.mark.parametrize("amount", [3, "3", 3.0, "3e0", "3000m"], ids=repr)
def test_an_amount_may_be_written_as_kubernetes_allows(amount: pods.Amount) -> None:
    """Numbers and texts of the same value mean the same."""
    demand = dialect_pods.demand(dialect_pods.single({"aliyun.com/gpu-mem": amount}))
    assert demand.containers[0].demand.memory_mib == 3072


def test_a_resource_only_in_requests_is_refused() -> None:
    """Extended resources go into limits."""
    pod = dialect_pods.pod(dialect_pods.container("a", requests={"aliyun.com/gpu-mem": 3}))
    error = dialect_pods.refusal(pod)
    assert error.field == "spec.containers[0].resources.requests[aliyun.com/gpu-mem]"
    assert "not in limits" in error.problem


def test_requests_equal_limits() -> None:
    """Requests may repeat the limit in another spelling, but not differ from it."""
    limits = {"aliyun.com/gpu-mem": 3}
    equal = dialect_pods.pod(
        dialect_pods.container("a", limits, requests={"aliyun.com/gpu-mem": "3"})
    )
    assert dialect_pods.demand(equal).containers[0].demand.memory_mib == 3072
    other = dialect_pods.pod(
        dialect_pods.container("a", limits, requests={"aliyun.com/gpu-mem": 2})
    )
    error = dialect_pods.refusal(other)
    assert error.field == "spec.containers[0].resources.requests[aliyun.com/gpu-mem]"
    assert "differs from the limit" in error.problem


def test_init_containers_are_named_as_such() -> None:
    """The field of an error leads to the init container it is about."""
    pod = dialect_pods.pod(init=(dialect_pods.container("fetch", {"nvidia.com/gpu": -1}),))
    assert (
        dialect_pods.refusal(pod).field == "spec.initContainers[0].resources.limits[nvidia.com/gpu]"
    )


MIXTURES = [
    ("aliyun.com/gpu-mem", "nvidia.com/gpu"),
    ("tke.cloud.tencent.com/qgpu-core", "nvidia.com/gpu"),
    ("tencent.com/vcuda-core", "tke.cloud.tencent.com/qgpu-core"),
    ("elasticgpu.io/gpu-memory", "tensorstack.dev/nvidia-gpu"),
    ("partage.dev/cards", "nvidia.com/gpumem"),
]


@pytest.mark.parametrize(("one", "other"), MIXTURES)
@pytest.mark.parametrize("apart", [False, True], ids=["one container", "two containers"])
def test_a_pod_speaks_one_dialect(one: str, other: str, apart: bool) -> None:
    """Two families in a container, or in a pod, are refused, and both places are named."""
    together = dialect_pods.single({one: 100, other: 100})
    separate = dialect_pods.pod(
        dialect_pods.container("a", {one: 100}), dialect_pods.container("b", {other: 100})
    )
    error = dialect_pods.refusal(separate if apart else together)
    assert {one, other} == {
        name for name in (one, other) if f"[{name}]" in error.field or f"[{name}]" in error.also
    }
    assert error.field in str(error)
    assert error.also in str(error)
    assert f"[{one}]" not in error.field or f"[{other}]" not in error.field


def test_an_annotation_for_all_cards_does_not_mix_either() -> None:
    """The native annotation beside another family's resource is a second language."""
    pod = dialect_pods.single({"nvidia.com/gpu": 1}, annotations={"partage.dev/cards": "all"})
    assert "metadata.annotations[partage.dev/cards]" in dialect_pods.refusal(pod).also


@pytest.mark.parametrize(
    "limits",
    [{}, {"cpu": 1, "memory": "1Gi"}, {"aliyun.com/gpu-count": 1}, {"nvidia.com/mig-1g.5gb": 1}],
    ids=["nothing", "cpu", "only a gpushare count", "an unknown name"],
)
def test_a_pod_without_a_known_request_has_no_demand(limits: dialect_pods.Limits) -> None:
    """What no family knows is left to others, and so is gpushare's bare count."""
    assert registry.demand(dialect_pods.single(limits), dialect_pods.SETTINGS) is None


def test_a_count_beside_nvidia_cards_is_not_a_mixture() -> None:
    """gpushare's count is a plain number, so it does not turn the pod into an Aliyun one."""
    limits = {"aliyun.com/gpu-count": 1, "nvidia.com/gpu": 1}
    assert dialect_pods.demand(dialect_pods.single(limits)).dialect == "nvidia"


AMOUNTS = st.one_of(
    st.integers(), st.floats(), st.text(max_size=20), st.integers(0, 400), st.integers(0, 40)
)
REQUEST_ANNOTATIONS = [
    "partage.dev/cards",
    "partage.dev/models",
    "partage.dev/qos",
    "partage.dev/compute-ceiling",
    "partage.dev/policy",
    "tke.cloud.tencent.com/app-class",
    "tencent.com/vcuda-core-limit",
    "nvidia.com/use-gputype",
    "nvidia.com/vgpu-mode",
    "hami.io/gpu-scheduler-policy",
]
VALUES = st.one_of(
    st.text(max_size=20), st.sampled_from(["all", "online", "offline", "50", "spread", "mutex"])
)


@given(
    limits=st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=3),
    requests=st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=1),
    annotations=st.dictionaries(st.sampled_from(REQUEST_ANNOTATIONS), VALUES, max_size=3),
    count=st.one_of(st.none(), st.text(max_size=5), st.sampled_from(["1", "2", "3"])),
)
def test_any_request_is_a_demand_or_a_refusal(
    limits: dict[str, pods.Amount],
    requests: dict[str, pods.Amount],
    annotations: dict[str, str],
    count: str | None,
) -> None:
    """Whatever is written, reading ends in a demand, in nothing, or in the one error for people."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", limits, requests=requests),
        dialect_pods.container("b", limits),
        annotations=annotations,
        labels={} if count is None else {"aliyun.com/gpu-count": count},
    )
    with contextlib.suppress(errors.DemandError):
        demand = registry.demand(pod, dialect_pods.SETTINGS)
        registry.warnings(pod, dialect_pods.SETTINGS)
        assert demand is None or demand.containers


def test_a_pod_decodes_from_what_the_api_server_sends() -> None:
    """Camel case, unknown fields and numbers as text or as numbers are all read."""
    pod = msgspec.json.decode(
        b"""{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "lab", "uid": "u", "creationTimestamp": null,
          "annotations": {"a": "b"}, "labels": {"c": "d"}},
        "spec": {"nodeName": "n", "schedulerName": "s",
          "initContainers": [{"name": "i", "restartPolicy": "Always", "image": "x"}],
          "containers": [{"name": "c", "resources":
            {"limits": {"nvidia.com/gpu": "1", "cpu": 0.5}, "requests": {"nvidia.com/gpu": 1}}}]},
        "status": {"phase": "Pending"}}""",
        type=pods.Pod,
    )
    assert pod == pods.Pod(
        pods.Metadata("web", "lab", "u", {"a": "b"}, {"c": "d"}),
        pods.Spec(
            (
                dialect_pods.container(
                    "c", {"nvidia.com/gpu": "1", "cpu": 0.5}, requests={"nvidia.com/gpu": 1}
                ),
            ),
            (dialect_pods.container("i", restart_policy="Always"),),
            "s",
            "n",
        ),
        pods.Status("Pending"),
    )
    assert dialect_pods.demand(pod).containers[0].demand.cards == 1


def test_more_containers_than_anybody_needs_are_refused() -> None:
    """What one pod can make a scheduler do is bounded."""
    many = [dialect_pods.container(f"c{i}", {"nvidia.com/gpu": 1}) for i in range(65)]
    with pytest.raises(errors.DemandError, match="more than 64 containers ask for cards"):
        dialect_pods.demand(dialect_pods.pod(*many))


@pytest.mark.parametrize("names", [("a", "a"), ("a", "")], ids=["twice", "none"])
def test_containers_have_names_of_their_own(names: tuple[str, str]) -> None:
    """Grants are recorded by them."""
    named = [dialect_pods.container(name, {"nvidia.com/gpu": 1}) for name in names]
    with pytest.raises(errors.DemandError, match="give every container a name of its own"):
        dialect_pods.demand(dialect_pods.pod(*named))
