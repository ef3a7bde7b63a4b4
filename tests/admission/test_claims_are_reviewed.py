"""Claims and classes at submission: stored in one spelling, warned of, refused if unreadable."""

from __future__ import annotations

from typing import Any

import pytest

from partage.admission import claim_reviews, known_cards, known_classes, reviews
from partage.dialects import namespaces
from partage.dialects.claims import objects
from tests.admission import conftest, review_bodies

QCORE, QMEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
MEMORY, TFLOPS = "elasticgpu.io/gpu-memory", "elasticgpu.io/tflops"
CLAIM, CLASS = "ElasticGPUClaim", "ElasticGPUClass"


@pytest.fixture
def classes() -> known_classes.KnownClasses:
    """One class of qGPU, and one of somebody else."""
    sink = known_classes.KnownClasses(lambda: True)
    for name, provisioner in (("fast", "elasticgpu.io/qgpu"), ("theirs", "example.com/gpu")):
        sink.put(objects.ElasticGPUClass(objects.Metadata(name), provisioner))
    return sink


@pytest.fixture
def reviewer(
    classes: known_classes.KnownClasses, cluster: known_cards.KnownCards
) -> claim_reviews.ClaimReviews:
    """As it is in a cluster with these classes."""
    return claim_reviews.ClaimReviews(classes, cluster)


def claim(requested: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A claim c."""
    resources = {"requests": {MEMORY: 100} if requested is None else requested}
    return {"metadata": {"name": "c"}, "spec": {"resources": resources, **spec}}


def gpu_class(**fields: Any) -> dict[str, Any]:
    """A class."""
    return {"metadata": {"name": "fast"}, "provisioner": "elasticgpu.io/qgpu", **fields}


def spelled(
    reviewer: claim_reviews.ClaimReviews, kind: str, made: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The object as the API server would store it, and the warnings."""
    answer = reviewer.spell(review_bodies.body(made, kind=kind))
    warnings = review_bodies.response(answer).get("warnings", [])
    return review_bodies.patched(made, answer), warnings


def checked(
    reviewer: claim_reviews.ClaimReviews, made: dict[str, Any], kind: str = CLAIM
) -> dict[str, Any]:
    """The answer of the second review."""
    return review_bodies.response(reviewer.check(review_bodies.body(made, kind=kind)))


class TestSpelling:
    """What is stored."""

    @pytest.mark.parametrize("field", ["storageClassName", "egpuClassName", "elasticGPUClassName"])
    def test_the_class_of_a_claim(self, reviewer: claim_reviews.ClaimReviews, field: str) -> None:
        """Under one name, whichever was written."""
        stored, warnings = spelled(reviewer, CLAIM, claim(None, **{field: "fast"}))
        assert stored == claim(elasticGPUClassName="fast")
        assert warnings == []

    def test_spellings_that_agree_become_one(self, reviewer: claim_reviews.ClaimReviews) -> None:
        """Those that do not are left for the definition to refuse."""
        twice, _ = spelled(reviewer, CLAIM, claim(elasticGPUClassName="a", storageClassName="a"))
        assert twice == claim(elasticGPUClassName="a")
        contrary = claim(elasticGPUClassName="a", storageClassName="b")
        assert spelled(reviewer, CLAIM, contrary) == (contrary, [])

    def test_amounts_are_quantities(self, reviewer: claim_reviews.ClaimReviews) -> None:
        """Numbers stay, bytes lose their B, and 4GB is told."""
        stored, warnings = spelled(
            reviewer, CLAIM, claim({QCORE: 10, QMEMORY: "4GB", MEMORY: "4GiB"})
        )
        assert stored == claim({QCORE: 10, QMEMORY: "4G", MEMORY: "4Gi"})
        (warning,) = warnings
        assert warning == (
            f"spec.resources.requests[{QMEMORY}]: 4GB is read as 4G, which is 3815 MiB; "
            "write 4Gi for 4096 MiB"
        )

    @pytest.mark.parametrize(
        ("written", "mode"),
        [
            ({}, "Immediate"),
            ({"eGPUBindingMode": "WaitForFirstConsumer"}, "WaitForFirstConsumer"),
            ({"egpuBindingMode": "WaitForFirstConsumer"}, "WaitForFirstConsumer"),
            ({"egpuBindingMode": "Immediate", "eGPUBindingMode": "Immediate"}, "Immediate"),
        ],
        ids=["none", "seed", "canonical", "both"],
    )
    def test_the_binding_mode_of_a_class(
        self, reviewer: claim_reviews.ClaimReviews, written: dict[str, str], mode: str
    ) -> None:
        """Also where nobody wrote it, so that tables show it."""
        stored, _ = spelled(reviewer, CLASS, gpu_class(**written))
        assert stored == gpu_class(egpuBindingMode=mode)

    def test_what_is_stored_is_not_changed_again(
        self, reviewer: claim_reviews.ClaimReviews
    ) -> None:
        """A webhook is asked about its own words, too."""
        for kind, made in (
            (CLAIM, claim({QMEMORY: "4GB"}, storageClassName="fast")),
            (CLASS, gpu_class(eGPUBindingMode="Immediate")),
        ):
            stored, _ = spelled(reviewer, kind, made)
            assert spelled(reviewer, kind, stored) == (stored, [])

    @pytest.mark.parametrize("kind", [CLAIM, CLASS, "GPU"])
    @pytest.mark.parametrize("made", [{"spec": 1, "reclaimPolicy": "Keep"}, None], ids=str)
    def test_what_is_not_of_its_form_is_left_to_its_definition(
        self, reviewer: claim_reviews.ClaimReviews, kind: str, made: Any
    ) -> None:
        """Which says what is wrong with it."""
        body = review_bodies.body(made, kind=kind)
        for answer in (reviewer.spell(body), reviewer.check(body)):
            assert review_bodies.response(answer)["allowed"]


class TestChecks:
    """What is refused and what is warned of."""

    def test_a_claim_that_can_be_bound_comes_in(self, reviewer: claim_reviews.ClaimReviews) -> None:
        """Without a word."""
        answer = checked(reviewer, claim({QCORE: 10, QMEMORY: 4}, elasticGPUClassName="fast"))
        assert answer["allowed"]
        assert "warnings" not in answer

    def test_the_rules_of_the_class_hold(self, reviewer: claim_reviews.ClaimReviews) -> None:
        """In whichever spelling the class is named."""
        answer = checked(reviewer, claim({QCORE: 33, QMEMORY: 4}, storageClassName="fast"))
        assert answer["status"]["message"] == (
            f"claim c: spec.resources.requests[{QCORE}]: 33 is not a multiple of 5; write 30 or 35"
        )

    def test_what_no_card_can_ever_have_is_refused(
        self,
        reviewer: claim_reviews.ClaimReviews,
        classes: known_classes.KnownClasses,
        cluster: known_cards.KnownCards,
    ) -> None:
        """Or a warning, where the administrator chose that; a claim that has it is left alone."""
        text = "claim c: no node of this cluster can ever take it: "
        large = claim({QCORE: 10, QMEMORY: 17}, elasticGPUClassName="fast")
        answer = checked(reviewer, large)
        assert answer["status"]["message"].startswith(text)
        cards = claim({"nvidia.com/gpu": 3}, elasticGPUClassName="fast")
        assert not checked(reviewer, cards)["allowed"]
        lenient = claim_reviews.ClaimReviews(classes, cluster, refuse_never=False)
        answer = checked(lenient, large)
        assert answer["allowed"]
        assert answer["warnings"][0].startswith("no node of this cluster can ever take it")
        large["spec"]["elasticGPUName"] = "e"
        body = review_bodies.body(large, kind=CLAIM, operation="UPDATE")
        assert review_bodies.response(reviewer.check(body))["allowed"]

    @pytest.mark.parametrize(
        ("total", "requested", "said"),
        [
            ({"memory": "4Gi"}, {QCORE: 10, QMEMORY: 5}, "4 GiB of card memory; {} 5 GiB; "),
            ({"compute": "20"}, {QCORE: 25, QMEMORY: 1}, "20 % of compute; {} 25 %; "),
            ({"cards": "1"}, {"nvidia.com/gpu": 2}, "1 card; {} 2; "),
            ({"memory": "8Gi"}, {"nvidia.com/gpu": 1}, "8 GiB of card memory; {} 16 GiB; "),
        ],
    )
    def test_what_the_namespace_may_never_have_is_refused(
        self,
        reviewer: claim_reviews.ClaimReviews,
        classes: known_classes.KnownClasses,
        cluster: known_cards.KnownCards,
        *,
        total: dict[str, str],
        requested: dict[str, Any],
        said: str,
    ) -> None:
        """As a pod is: with the total, what is asked for, and what to do."""
        made = claim(requested, elasticGPUClassName="fast")
        assert checked(reviewer, made)["allowed"]
        _limit(cluster, **total)
        said = said.format("this claim alone asks for")
        raise_it = "ask for less, or let an administrator raise the total of the namespace"
        text = f"namespace {review_bodies.NAMESPACE} may have {said}{raise_it}"
        assert checked(reviewer, made)["status"]["message"] == f"claim c: {text}"
        lenient = claim_reviews.ClaimReviews(classes, cluster, refuse_never=False)
        assert checked(lenient, made)["warnings"] == [text]

    @pytest.mark.parametrize("model", ["NVIDIA RTX 6000 Ada Generation", "Tesla T4"])
    def test_the_total_is_told_whichever_model_would_do(
        self, classes: known_classes.KnownClasses, model: str
    ) -> None:
        """TFLOPS are another share on each model, also on those that the cluster does not have."""
        cluster = conftest.one_node(model)
        _limit(cluster, memory="1Gi")
        made = claim({TFLOPS: 4, MEMORY: 2048}, elasticGPUClassName="fast")
        answer = checked(claim_reviews.ClaimReviews(classes, cluster), made)
        assert "1 GiB of card memory; this claim alone" in answer["status"]["message"]

    def test_what_fits_into_the_total_by_itself_comes_in(
        self, reviewer: claim_reviews.ClaimReviews, cluster: known_cards.KnownCards
    ) -> None:
        """It waits until others end; where nobody can read the total, that is a warning."""
        _limit(cluster, memory="4Gi", compute="10")
        made = claim({QCORE: 10, QMEMORY: 4}, elasticGPUClassName="fast")
        assert "warnings" not in checked(reviewer, made)
        _limit(cluster, memory="4GB")
        (warning,) = checked(reviewer, made)["warnings"]
        assert "gets no more cards: partage.dev/most-memory: '4GB' is not a quantity" in warning
        assert warning.endswith("; the claim waits")

    def test_a_class_that_is_not_there_is_a_warning(
        self, reviewer: claim_reviews.ClaimReviews, classes: known_classes.KnownClasses
    ) -> None:
        """What can be read is read; what cannot is refused before the class is there."""
        classes.drop("fast")
        made = claim({QCORE: 33}, elasticGPUClassName="fast")
        answer = checked(reviewer, made)
        assert answer["allowed"]
        assert answer["warnings"] == [
            "class fast is not there yet; the claim waits until it is created"
        ]
        assert not checked(reviewer, claim({"cpu": 1}, elasticGPUClassName="fast"))["allowed"]

    def test_a_class_is_not_missed_before_all_are_known(
        self, cluster: known_cards.KnownCards
    ) -> None:
        """As just after a start."""
        reading = known_classes.KnownClasses(lambda: False)
        reviewer = claim_reviews.ClaimReviews(reading, cluster)
        assert "warnings" not in checked(reviewer, claim(elasticGPUClassName="fast"))

    def test_claims_of_others_are_left_alone(self, reviewer: claim_reviews.ClaimReviews) -> None:
        """Whatever they ask for."""
        answer = checked(reviewer, claim({"cpu": 1}, elasticGPUClassName="theirs"))
        assert answer["allowed"]
        assert "example.com/gpu, which Partage leaves alone" in answer["warnings"][0]

    def test_a_claim_for_an_object_that_is_there_need_not_say_what_it_wants(
        self, reviewer: claim_reviews.ClaimReviews
    ) -> None:
        """It gets what that has."""
        assert checked(reviewer, claim({}, elasticGPUName="egpu-1"))["allowed"]
        assert not checked(reviewer, claim({}))["allowed"]

    def test_a_class_of_an_unknown_provisioner_is_a_warning(
        self, reviewer: claim_reviews.ClaimReviews
    ) -> None:
        """It may be somebody else's, or a slip."""
        (warning,) = checked(reviewer, gpu_class(provisioner="elasticgpu.io/qpgu"), CLASS)[
            "warnings"
        ]
        assert "its own are elasticgpu.io/qgpu" in warning
        assert "warnings" not in checked(reviewer, gpu_class(), CLASS)


def _limit(cluster: known_cards.KnownCards, **most: str) -> None:
    """Give the namespace a total."""
    written = {f"partage.dev/most-{what}": text for what, text in most.items()}
    metadata = namespaces.Metadata(review_bodies.NAMESPACE, written)
    cluster.totals.put(namespaces.Namespace(metadata))


class TestPods:
    """Pods that name claims."""

    @pytest.fixture
    def reviewer(self, cluster: known_cards.KnownCards) -> reviews.Reviews:
        """As it is by default."""
        return reviews.Reviews(cluster, reviews.Options())

    @pytest.mark.parametrize("annotation", ["elasticgpu.io/egpuc-main", "egpuc.elasticgpu.io/x"])
    def test_a_container_with_a_claim_gets_the_resource(
        self, reviewer: reviews.Reviews, annotation: str
    ) -> None:
        """And comes in with it, whether or not the claim is there."""
        pod = review_bodies.pod({}, metadata={"annotations": {annotation: "c"}})
        stored = review_bodies.patched(pod, reviewer.complete(review_bodies.body(pod)))
        (container,) = stored["spec"]["containers"]
        assert container["resources"]["limits"] == {"partage.dev/claim": "1"}
        assert review_bodies.response(reviewer.judge(review_bodies.body(stored))) == {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": True,
        }

    @pytest.mark.parametrize("prefix", ["elasticgpu.io/egpuc-", "egpuc.elasticgpu.io/"])
    def test_a_placeholder_stands_for_the_only_container(
        self, reviewer: reviews.Reviews, prefix: str
    ) -> None:
        """Published examples have it, and Kubernetes takes no such name; in others it is wrong."""
        annotations = {f"{prefix}<container-name>": "c", "other": "stays"}
        pod = review_bodies.pod({}, metadata={"annotations": annotations})
        answer = reviewer.complete(review_bodies.body(pod))
        stored = review_bodies.patched(pod, answer)
        expected = {"elasticgpu.io/egpuc-main": "c", "other": "stays"}
        assert stored["metadata"]["annotations"] == expected
        (warning,) = review_bodies.response(answer)["warnings"]
        assert warning == f"{prefix}<container-name> is stored as elasticgpu.io/egpuc-main"
        pod["spec"]["containers"].append({"name": "second", "image": "x"})
        assert review_bodies.patched(pod, reviewer.complete(review_bodies.body(pod))) == pod

    def test_what_a_user_wrote_stays(self, reviewer: reviews.Reviews) -> None:
        """A pod that names the resource itself needs nothing."""
        metadata = {"annotations": {"elasticgpu.io/egpuc-main": "c"}}
        pod = review_bodies.pod({"partage.dev/claim": "1"}, metadata=metadata)
        assert review_bodies.patched(pod, reviewer.complete(review_bodies.body(pod))) == pod

    def test_other_containers_get_nothing(self, reviewer: reviews.Reviews) -> None:
        """One that the annotation does not name has no claim."""
        containers = [{"name": name, "image": "x"} for name in ("a", "b")]
        pod = review_bodies.pod(
            {},
            metadata={"annotations": {"elasticgpu.io/egpuc-b": "c"}},
            spec={"containers": containers},
        )
        # As the API server completes it before anybody is asked.
        for container in pod["spec"]["containers"]:
            container["resources"] = {}
        stored = review_bodies.patched(pod, reviewer.complete(review_bodies.body(pod)))
        limits = [c["resources"].get("limits") for c in stored["spec"]["containers"]]
        assert limits == [None, {"partage.dev/claim": "1"}]

    def test_a_template_with_a_claim_is_not_warned_of(self, reviewer: reviews.Reviews) -> None:
        """Its pods get the resource when they are made; one with amounts beside it is."""
        metadata = {"annotations": {"elasticgpu.io/egpuc-main": "c"}}
        warnings = []
        amounts: list[dict[str, object]] = [{}, {"aliyun.com/gpu-mem": 1}]
        for limits in amounts:
            template = review_bodies.pod(limits, metadata=metadata)
            made = {"metadata": {"name": "w"}, "spec": {"template": template}}
            answer = reviewer.advise(review_bodies.body(made, kind="Deployment"))
            warnings.append(review_bodies.response(answer).get("warnings", []))
        assert warnings[0] == []
        assert "by a claim and by amounts" in warnings[1][0]
