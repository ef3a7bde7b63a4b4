"""What users mean and need not write is added to a pod; nothing that they wrote is changed."""

from __future__ import annotations

from typing import Any

import pytest

from partage.admission import additions, known_cards, reviews
from tests.admission import review_bodies

TAINT_KEY = "sched.tensorstack.dev/xgn-mode"
TOLERATION = {"key": TAINT_KEY, "value": "true", "effect": "NoSchedule"}


def _limits(pod: dict[str, Any], i: int = 0) -> dict[str, Any]:
    limits: dict[str, Any] = pod["spec"]["containers"][i]["resources"]["limits"]
    return limits


def _completed(reviewer: reviews.Reviews, pod: dict[str, Any]) -> dict[str, Any]:
    return review_bodies.patched(pod, reviewer.complete(review_bodies.body(pod)))


@pytest.mark.parametrize(
    ("written", "added"),
    [
        ({"nvidia.com/gpumem": 3000}, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpumem-percentage": 50}, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpucores": 30}, {"nvidia.com/gpu": "1"}),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}, {}),
        ({"partage.dev/memory-mib": 3000}, {"partage.dev/cards": "1"}),
        ({"partage.dev/compute-percent": 30}, {"partage.dev/cards": "1"}),
        ({"partage.dev/cards": 2, "partage.dev/memory-mib": 3000}, {}),
        ({"partage.dev/cards": 1}, {}),
        ({"aliyun.com/gpu-mem": 3}, {}),
        ({"nvidia.com/priority": 0}, {}),
    ],
)
def test_a_share_without_a_number_of_cards_is_a_share_of_one(
    reviewer: reviews.Reviews, written: dict[str, object], added: dict[str, str]
) -> None:
    """The kubelet gives devices by the resource that is written."""
    assert _limits(_completed(reviewer, review_bodies.pod(written))) == {**written, **added}


SECOND = "partage-scheduler"


@pytest.fixture
def moving(cluster: known_cards.KnownCards) -> reviews.Reviews:
    """Where a second scheduler is for pods with cards."""
    return reviews.Reviews(cluster, reviews.Options(scheduler_name=SECOND))


@pytest.mark.parametrize(
    ("limits", "named", "scheduler"),
    [
        ({"aliyun.com/gpu-mem": 3}, None, SECOND),
        ({"aliyun.com/gpu-mem": 3}, "default-scheduler", SECOND),
        ({"aliyun.com/gpu-mem": 3}, "volcano", "volcano"),
        ({"cpu": 1}, "default-scheduler", "default-scheduler"),
        ({"nvidia.com/gpu": 0}, None, None),
        ({"amd.com/gpu": 1}, "default-scheduler", "default-scheduler"),
    ],
)
def test_pods_with_cards_go_to_the_scheduler_that_asks_partage(
    moving: reviews.Reviews, limits: dict[str, object], named: str | None, scheduler: str | None
) -> None:
    """Unless they name another one; pods without cards stay where they are."""
    spec = {} if named is None else {"schedulerName": named}

    completed = _completed(moving, review_bodies.pod(limits, spec=spec))

    assert completed["spec"].get("schedulerName") == scheduler


def test_a_pod_with_a_claim_goes_there_too(moving: reviews.Reviews) -> None:
    """It has a card by its claim."""
    claim = {"annotations": {"partage.dev/claim": "my-claim"}}
    by_claim = review_bodies.pod({"partage.dev/claim": 1}, metadata=claim)

    assert _completed(moving, by_claim)["spec"]["schedulerName"] == SECOND


def test_each_container_is_completed_by_itself(reviewer: reviews.Reviews) -> None:
    """Init containers as well, and containers without a share not at all."""
    pod = review_bodies.pod({"nvidia.com/gpumem": 3000})
    pod["spec"]["containers"].append({"name": "side", "image": "x"})
    pod["spec"]["initContainers"] = [
        {"name": "init", "resources": {"limits": {"nvidia.com/gpucores": 10}}}
    ]

    completed = _completed(reviewer, pod)

    assert _limits(completed)["nvidia.com/gpu"] == "1"
    assert "resources" not in completed["spec"]["containers"][1]
    init = completed["spec"]["initContainers"][0]
    assert init["resources"]["limits"] == {"nvidia.com/gpucores": 10, "nvidia.com/gpu": "1"}


def test_what_stands_in_requests_only_is_a_limit_too(reviewer: reviews.Reviews) -> None:
    """Kubernetes refuses it otherwise; an old page of T9k's has it so."""
    pod = review_bodies.pod({})
    pod["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1", "tensorstack.dev/nvidia-gpu-percent": 30}
    }

    completed = _completed(reviewer, pod)

    assert _limits(completed) == {"tensorstack.dev/nvidia-gpu-percent": "30"}


@pytest.mark.parametrize(
    ("resource", "tolerations"),
    [
        ("tensorstack.dev/nvidia-gpu", [TOLERATION]),
        ("tensorstack.dev/nvidia-gpu-node", [TOLERATION]),
        ("tensorstack.dev/nvidia-gpu-percent", None),
        ("aliyun.com/gpu-mem", None),
    ],
)
def test_tolerations_follow_from_the_resource(
    reviewer: reviews.Reviews, resource: str, tolerations: list[dict[str, str]] | None
) -> None:
    """T9k's users never write them; pods of shared nodes need none."""
    completed = _completed(reviewer, review_bodies.pod({resource: 1}))

    assert completed["spec"].get("tolerations") == tolerations


@pytest.mark.parametrize(
    ("present", "count"),
    [
        ([{"key": "other", "operator": "Exists"}], 2),
        ([{"operator": "Exists"}], 1),
        ([{"key": TAINT_KEY, "operator": "Exists"}], 1),
        ([{"key": TAINT_KEY, "operator": "Equal", "value": "true"}], 1),
        ([{"key": TAINT_KEY, "value": "true", "effect": "NoExecute"}], 2),
        ([{"key": TAINT_KEY, "value": "false", "effect": "NoSchedule"}], 2),
    ],
)
def test_a_toleration_that_is_there_is_not_added_again(
    reviewer: reviews.Reviews, present: list[dict[str, str]], count: int
) -> None:
    """It is compared as Kubernetes compares it, and those of the user stay."""
    pod = review_bodies.pod({"tensorstack.dev/nvidia-gpu": 1}, spec={"tolerations": present})

    completed = _completed(reviewer, pod)

    assert completed["spec"]["tolerations"][: len(present)] == present
    assert len(completed["spec"]["tolerations"]) == count


WHOLE_NODE: dict[str, object] = {"tensorstack.dev/nvidia-gpu-node": 1}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
THEIRS = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {},
        {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}},
        {"podAffinity": {REQUIRED: [THEIRS]}, "podAntiAffinity": {}},
        {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        {"podAntiAffinity": {REQUIRED: []}},
        {"podAntiAffinity": {REQUIRED: [THEIRS]}},
    ],
)
def test_a_pod_with_a_whole_node_is_alone_there(
    reviewer: reviews.Reviews, affinity: dict[str, Any] | None
) -> None:
    """Whatever its user wrote about where it may be stays beside that."""
    spec = {} if affinity is None else {"affinity": affinity}
    pod = review_bodies.pod(WHOLE_NODE, spec=spec)

    completed = _completed(reviewer, pod)

    terms = completed["spec"]["affinity"]["podAntiAffinity"].pop(REQUIRED)
    before = (affinity or {}).get("podAntiAffinity", {}).get(REQUIRED, [])
    assert terms == [*before, additions.ALONE]
    for kind, written in (affinity or {}).items():
        rest = {key: text for key, text in written.items() if key != REQUIRED}
        kept = completed["spec"]["affinity"][kind]
        assert kept == (rest if kind == "podAntiAffinity" else written)


def test_only_pods_with_a_whole_node_are_alone(reviewer: reviews.Reviews) -> None:
    """Cards of their own, or a request that is refused anyway, are no reason."""
    others: list[dict[str, object]] = [
        {"tensorstack.dev/nvidia-gpu": 2},
        {"nvidia.com/gpu": 1},
        {**WHOLE_NODE, "tensorstack.dev/nvidia-gpu": 1},
    ]
    for limits in others:
        assert "affinity" not in _completed(reviewer, review_bodies.pod(limits))["spec"]


def test_a_whole_node_that_stands_in_requests_only_is_one_too(reviewer: reviews.Reviews) -> None:
    """Limits are completed first."""
    pod = review_bodies.pod({})
    pod["spec"]["containers"][0]["resources"] = {"requests": WHOLE_NODE}
    assert "podAntiAffinity" in _completed(reviewer, pod)["spec"]["affinity"]


@pytest.mark.parametrize(("written", "stored"), [(None, "nvidia"), ("kata", "kata")])
def test_pods_with_cards_get_the_runtime_class_that_was_chosen(
    cluster: known_cards.KnownCards, written: str | None, stored: str
) -> None:
    """Unless they name another."""
    reviewer = reviews.Reviews(cluster, reviews.Options(runtime_class="nvidia"))
    spec = {"runtimeClassName": written} if written else {}

    completed = _completed(reviewer, review_bodies.pod({"nvidia.com/gpu": 1}, spec=spec))

    assert completed["spec"]["runtimeClassName"] == stored


@pytest.mark.parametrize(
    "limits", [{"nvidia.com/gpumem": 3000, "tensorstack.dev/nvidia-gpu": 1}, WHOLE_NODE]
)
def test_a_pod_is_complete_once_it_was_completed(
    reviewer: reviews.Reviews, limits: dict[str, object]
) -> None:
    """The API server may ask twice, when another webhook has changed the pod."""
    pod = review_bodies.pod(limits)
    completed = _completed(reviewer, pod)

    answer = review_bodies.response(reviewer.complete(review_bodies.body(completed)))

    assert "patch" not in answer


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_only_new_pods_are_completed(reviewer: reviews.Reviews, operation: str) -> None:
    """What a running pod asks for cannot be changed any more."""
    pod = review_bodies.pod({"nvidia.com/gpumem": 3000})
    body = review_bodies.body(None if operation == "DELETE" else pod, operation=operation)

    assert "patch" not in review_bodies.response(reviewer.complete(body))
