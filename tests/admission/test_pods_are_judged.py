"""What can never work is refused when it is submitted, and what surprises is a warning."""

from __future__ import annotations

from typing import Any

import pytest

from partage.admission import known_cards, reviews, wire
from partage.dialects import contract, memory_units, namespaces
from tests.admission import review_bodies


def _message(reviewer: reviews.Reviews, pod: dict[str, Any]) -> str:
    """Why a pod is refused; empty if it is not."""
    answer = review_bodies.response(reviewer.judge(review_bodies.body(pod)))
    assert answer["allowed"] == ("status" not in answer)
    if answer["allowed"]:
        return ""
    assert answer["status"]["code"] == 422
    message: str = answer["status"]["message"]
    return message


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        ({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 33}, "not a multiple of 5"),
        ({"aliyun.com/gpu-core.percentage": 30}, "compute is asked for without memory"),
        ({"tke.cloud.tencent.com/qgpu-core": 33, "tke.cloud.tencent.com/qgpu-memory": 5}, "5"),
        ({"aliyun.com/gpu-mem": 2, "tensorstack.dev/nvidia-gpu": 1}, "another dialect"),
        ({"tencent.com/vcuda-core": 150}, "100"),
        ({"tensorstack.dev/nvidia-gpu-percent": 120}, "not between 1 and 100"),
        ({"partage.dev/memory": 3}, "there is no such resource"),
        ({"aliyun.com/gpu-mem": "4Gi"}, "without a suffix"),
        ({"aliyun.com/gpu-mem": 17}, "the largest card of node n1 has 16384 MiB"),
        ({"nvidia.com/gpu": 3}, "asks for 3 cards; node n1 has 2"),
    ],
)
def test_a_request_that_can_never_work_is_refused_with_its_rule(
    reviewer: reviews.Reviews, limits: dict[str, object], rule: str
) -> None:
    """The text names the pod, and the rule of the dialect it is written in."""
    message = _message(reviewer, review_bodies.pod(limits))

    assert message.startswith("pod p: ")
    assert rule in message


SPREAD = {"annotations": {"partage.dev/spread": "owner"}}


def test_a_pod_that_wants_other_cards_than_its_owners_pods_has_an_owner(
    reviewer: reviews.Reviews,
) -> None:
    """Or a group. The text says what to do; a pod of a controller comes in."""
    limits: dict[str, object] = {"aliyun.com/gpu-mem": 2}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}

    message = _message(reviewer, review_bodies.pod(limits, metadata=SPREAD))
    owned = review_bodies.pod(limits, metadata={**SPREAD, "ownerReferences": [owner]})

    assert "metadata.annotations[partage.dev/spread]: the pod has no owner and no group" in message
    assert "let a Job, a StatefulSet or a Deployment make the pod" in message
    assert _message(reviewer, owned) == ""


@pytest.mark.parametrize(("value", "is_wrong"), [("owner", False), ("node", True)])
def test_a_template_is_judged_as_pods_that_have_an_owner(
    reviewer: reviews.Reviews, value: str, is_wrong: bool
) -> None:
    """The workload itself will be it, so only another value is a mistake."""
    metadata = {"annotations": {"partage.dev/spread": value}}
    template = {"metadata": metadata, "spec": review_bodies.pod({"nvidia.com/gpu": 1})["spec"]}
    body = review_bodies.body({"spec": {"template": template}}, kind="Job")

    warnings = review_bodies.response(reviewer.advise(body)).get("warnings", [])

    assert [("write owner" in text) for text in warnings] == [True] * is_wrong


def test_the_whole_node_is_asked_for_once(reviewer: reviews.Reviews) -> None:
    """A pod cannot be on two nodes."""
    pod = review_bodies.pod({"tensorstack.dev/nvidia-gpu-node": 1})
    pod["spec"]["containers"].append({**pod["spec"]["containers"][0], "name": "second"})

    assert "takes the whole node" in _message(reviewer, pod)


def test_a_pod_that_has_to_wait_is_welcome(
    reviewer: reviews.Reviews, cluster: known_cards.KnownCards
) -> None:
    """Room is a matter of time; so is a node that is not there yet, before any is known."""
    nobody = reviews.Reviews(
        known_cards.KnownCards(memory_units.Unit(contract.Settings())), reviews.Options()
    )

    assert _message(reviewer, review_bodies.pod({"aliyun.com/gpu-mem": 16})) == ""
    assert _message(nobody, review_bodies.pod({"aliyun.com/gpu-mem": 99})) == ""
    cluster.drop("n1")
    assert _message(reviewer, review_bodies.pod({"aliyun.com/gpu-mem": 99})) == ""


def test_where_nodes_are_made_on_demand_a_large_pod_is_warned_of(
    cluster: known_cards.KnownCards,
) -> None:
    """An autoscaler may bring the card that is missing."""
    reviewer = reviews.Reviews(cluster, reviews.Options(refuse_never=False))

    answer = reviewer.judge(review_bodies.body(review_bodies.pod({"aliyun.com/gpu-mem": 17})))

    (warning,) = review_bodies.response(answer)["warnings"]
    assert "no node of this cluster can ever take it" in warning


def _limit(cluster: known_cards.KnownCards, **most: str) -> None:
    """Give the namespace a total."""
    written = {f"partage.dev/most-{what}": text for what, text in most.items()}
    metadata = namespaces.Metadata(review_bodies.NAMESPACE, written)
    cluster.totals.put(namespaces.Namespace(metadata))


@pytest.mark.parametrize(
    ("limits", "total", "text"),
    [
        ({"aliyun.com/gpu-mem": 5}, "4Gi", "may have 4 GiB of card memory; this pod alone asks"),
        ({"nvidia.com/gpu": 1}, "8Gi", "8 GiB of card memory; this pod alone asks for 16 GiB"),
        ({"tensorstack.dev/nvidia-gpu-percent": 60}, "8Gi", "this pod alone asks for 9830 MiB"),
    ],
)
def test_what_the_namespace_may_never_have_is_refused(
    reviewer: reviews.Reviews,
    cluster: known_cards.KnownCards,
    limits: dict[str, object],
    total: str,
    text: str,
) -> None:
    """With the numbers; a whole card counts with all it has, on the smallest card there is."""
    _limit(cluster, memory=total)

    message = _message(reviewer, review_bodies.pod(limits))

    assert message.startswith(f"pod p: namespace {review_bodies.NAMESPACE} ")
    assert text in message
    cluster.totals.drop(review_bodies.NAMESPACE)
    assert _message(reviewer, review_bodies.pod(limits)) == ""


def test_what_fits_into_the_total_by_itself_comes_in(
    reviewer: reviews.Reviews, cluster: known_cards.KnownCards
) -> None:
    """Whether others have used it up is not known here; the pod waits in the queue then."""
    _limit(cluster, memory="4Gi", cards="1")

    assert _message(reviewer, review_bodies.pod({"aliyun.com/gpu-mem": 4})) == ""
    assert "may have 1 card; this pod alone asks for 2" in _message(
        reviewer, review_bodies.pod({"partage.dev/cards": 2, "partage.dev/memory-mib": 1000})
    )


def test_a_total_that_cannot_be_read_is_a_warning(
    reviewer: reviews.Reviews, cluster: known_cards.KnownCards
) -> None:
    """The pod is right, and can be bound when the namespace is."""
    _limit(cluster, memory="4GB")

    body = review_bodies.body(review_bodies.pod({"aliyun.com/gpu-mem": 4}))
    answer = review_bodies.response(reviewer.judge(body))

    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert "gets no more cards: partage.dev/most-memory: '4GB' is not a quantity" in warning


def test_what_surprises_is_a_warning(reviewer: reviews.Reviews) -> None:
    """The pod comes in; kubectl prints the text."""
    pod = review_bodies.pod({"tensorstack.dev/nvidia-gpu": 1})

    answer = review_bodies.response(reviewer.judge(review_bodies.body(pod)))

    assert answer["allowed"]
    assert "meant for t9k-scheduler" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("scheduler", "warned"),
    [
        ("partage-scheduler", False),
        ("t9k-scheduler", False),
        ("volcano", True),
    ],
)
def test_a_scheduler_that_may_not_ask_partage_is_a_warning(
    cluster: known_cards.KnownCards, scheduler: str, warned: bool
) -> None:
    """Where pods with cards have a scheduler of their own; a profile of T9k's comes with it."""
    moving = reviews.Reviews(cluster, reviews.Options(scheduler_name="partage-scheduler"))
    pod = review_bodies.pod({"aliyun.com/gpu-mem": 3}, spec={"schedulerName": scheduler})
    template = {"kind": "Job", "spec": {"template": {"spec": pod["spec"]}}}

    answers = (
        moving.judge(review_bodies.body(pod)),
        moving.advise(review_bodies.body(template, kind="Job")),
    )

    for answer in answers:
        warnings = review_bodies.response(answer).get("warnings", [])
        assert any("remove the field, or write partage-scheduler" in w for w in warnings) == warned


def test_a_template_for_the_default_scheduler_is_not_warned_of(
    cluster: known_cards.KnownCards,
) -> None:
    """Its pods will be moved."""
    moving = reviews.Reviews(cluster, reviews.Options(scheduler_name="partage-scheduler"))
    pod = review_bodies.pod({"aliyun.com/gpu-mem": 3}, spec={"schedulerName": "default-scheduler"})
    template = {"kind": "Job", "spec": {"template": {"spec": pod["spec"]}}}

    answer = review_bodies.response(moving.advise(review_bodies.body(template, kind="Job")))

    assert "warnings" not in answer
    assert "patch" not in answer


def test_pods_without_a_name_are_named_by_their_prefix(reviewer: reviews.Reviews) -> None:
    """Names are generated after admission."""
    pod = review_bodies.pod({"nvidia.com/gpu": 3}, metadata={"generateName": "train-"})
    del pod["metadata"]["name"]

    assert _message(reviewer, pod).startswith("pod train-*: ")


def test_plain_pods_are_none_of_our_business(reviewer: reviews.Reviews) -> None:
    """Even if they come here, since somebody changed the configuration."""
    assert _message(reviewer, review_bodies.pod({"cpu": 1})) == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "1"}}',
        review_bodies.body({"spec": {"containers": 5}}),
    ],
)
def test_a_question_that_cannot_be_read_has_no_answer(
    reviewer: reviews.Reviews, body: bytes
) -> None:
    """HTTP says so; the API server then refuses the pod."""
    for review in (reviewer.judge, reviewer.complete):
        with pytest.raises(wire.Unreadable):
            review(body)


def test_a_pod_of_a_mebibyte_is_judged_as_any_other(reviewer: reviews.Reviews) -> None:
    """Annotations fill it; kubectl's own copy of a manifest is one."""
    filler = {"note": "x" * (1 << 20)}
    pod = review_bodies.pod({"nvidia.com/gpu": 3}, metadata={"annotations": filler})

    assert "asks for 3 cards" in _message(reviewer, pod)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", "spec.template"),
        ("StatefulSet", "spec.template"),
        ("DaemonSet", "spec.template"),
        ("Job", "spec.template"),
        ("CronJob", "spec.jobTemplate.spec.template"),
    ],
)
def test_a_template_whose_pods_would_be_refused_is_a_warning(
    reviewer: reviews.Reviews, kind: str, path: str
) -> None:
    """People should not have to look for the events of a ReplicaSet."""
    template = {"metadata": {}, "spec": review_bodies.pod({"nvidia.com/gpu": 3})["spec"]}
    workload: dict[str, Any] = {"spec": {"template": template}}
    if kind == "CronJob":
        workload = {"spec": {"jobTemplate": workload}}

    answer = review_bodies.response(reviewer.advise(review_bodies.body(workload, kind=kind)))

    assert answer["allowed"]
    (warning,) = answer["warnings"]
    assert warning.startswith(f"{path}: its pods will be refused: ")
    assert "asks for 3 cards" in warning


def test_a_template_is_judged_as_its_pods_will_be(reviewer: reviews.Reviews) -> None:
    """They are completed before they are judged."""
    template = {"spec": review_bodies.pod({"partage.dev/memory-mib": 3000})["spec"]}

    body = review_bodies.body({"spec": {"template": template}}, kind="Deployment")

    assert "warnings" not in review_bodies.response(reviewer.advise(body))
