"""Loads: CPU and main memory of a pod at its worst moment."""

from __future__ import annotations

import pytest

from partage.dialects import loads, pods


def _container(cpu: str = "", memory: str = "", *, always: bool = False) -> pods.Container:
    amounts: dict[str, pods.Amount] = {}
    if cpu:
        amounts["cpu"] = cpu
    if memory:
        amounts["memory"] = memory
    policy = "Always" if always else ""
    return pods.Container("c", pods.Resources({}, amounts), policy)


def test_apps_are_added_up_and_fractions_rounded_up() -> None:
    """In thousandths of a CPU, and in MiB."""
    pod = pods.Pod(spec=pods.Spec((_container("1500m", "1Gi"), _container("0.1234", "1500k"))))
    assert loads.of(pod) == loads.Load(1624, 1026)


def test_init_containers_count_at_their_moment_and_sidecars_always() -> None:
    """Each dimension by itself, as kube-scheduler does."""
    spec = pods.Spec(
        (_container("1", "1Gi"),),
        (_container("3", "100Mi"), _container("1", always=True), _container("1", "4Gi")),
    )
    assert loads.of(pods.Pod(spec=spec)) == loads.Load(3000, 4096)


def test_thousands_of_init_containers_are_gone_through_once() -> None:
    """The API server takes them; the last one is as quickly counted as the first."""
    many = (_container("1", always=True),) * 3000
    assert loads.of(pods.Pod(spec=pods.Spec((_container("1"),), many))).cpu_milli == 3_001_000


def test_a_limit_without_a_request_is_the_request_and_overhead_comes_on_top() -> None:
    """The API server fills in the first, a runtime class the second."""
    container = pods.Container("c", pods.Resources({"cpu": 2, "memory": "2Gi"}, {"cpu": "1"}))
    spec = pods.Spec((container,), overhead={"cpu": "250m", "memory": "64Mi"})
    assert loads.of(pods.Pod(spec=spec)) == loads.Load(1250, 2112)


@pytest.mark.parametrize("text", ["much", "", "0", "-1", "1e", "9" * 200])
def test_what_cannot_be_read_counts_as_nothing(text: str) -> None:
    """It must not stop the reading of a cluster."""
    spec = pods.Spec((pods.Container("c", pods.Resources({}, {"memory": text})),))
    assert loads.of(pods.Pod(spec=spec)).main_mib == 0
