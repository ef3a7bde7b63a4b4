"""Pods that have their cards by claims: which container has which, and what cannot be meant."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors, grants
from partage.dialects import bound_pods, grant_record, pod_claims, pods, registry, templates
from tests.dialects import dialect_pods

CLAIM = "partage.dev/claim"
SEED, README = "elasticgpu.io/egpuc-", "egpuc.elasticgpu.io/"
NODE = dialect_pods.node(16384, 16384)


def pod(
    *names: str,
    limits: dict[str, pods.Amount] | None = None,
    annotations: dict[str, str] | None = None,
) -> pods.Pod:
    """A pod with these containers, each with the resource unless ``limits`` says otherwise."""
    amounts: dict[str, pods.Amount] = {CLAIM: 1} if limits is None else limits
    containers = [dialect_pods.container(name, amounts) for name in names]
    return dialect_pods.pod(*containers, annotations=annotations)


def claims(asking: pods.Pod) -> dict[str, str]:
    """What each container asks for."""
    demand = dialect_pods.demand(asking)
    assert (demand.dialect, demand.by_claim) == ("claims", True)
    return {container.name: container.demand.claim for container in demand.containers}


class TestRequests:
    """Annotations and the resource beside them."""

    @pytest.mark.parametrize("prefix", [SEED, README])
    def test_an_annotation_names_the_container(self, prefix: str) -> None:
        """In both spellings; claims are of the pod's namespace."""
        asking = pod("a", "b", annotations={f"{prefix}a": "c1", f"{prefix}b": "c2"})
        assert claims(asking) == {"a": "lab/c1", "b": "lab/c2"}

    @pytest.mark.parametrize("prefix", [SEED, README])
    def test_one_container_is_meant_by_any_name(self, prefix: str) -> None:
        """As in the published example, whose name is not its container's."""
        assert claims(pod("main", annotations={f"{prefix}x": "c"})) == {"main": "lab/c"}

    def test_both_spellings_may_say_the_same(self) -> None:
        """And nothing else."""
        both = {f"{SEED}a": "c", f"{README}a": "c"}
        assert claims(pod("a", annotations=both)) == {"a": "lab/c"}
        error = dialect_pods.refusal(pod("a", annotations=both | {f"{README}a": "d"}))
        assert "container a has another claim already, c" in error.problem
        assert error.also == f"metadata.annotations[{SEED}a]"

    def test_init_containers_have_claims_too(self) -> None:
        """By their names."""
        asking = dialect_pods.pod(
            dialect_pods.container("main"),
            init=(dialect_pods.container("prepare", {CLAIM: 1}),),
            annotations={f"{SEED}prepare": "c"},
        )
        assert claims(asking) == {"prepare": "lab/c"}

    def test_containers_are_listed_once_however_many_annotations_there_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever may create pods would stop admission with ten thousand of both."""
        listed: list[str] = []

        def spots(asking: pods.Pod) -> Iterator[pods.Spot]:
            listed.append(asking.metadata.name)
            return original(asking)

        original = pods.spots
        monkeypatch.setattr(pods, "spots", spots)
        names = [f"c{number}" for number in range(100)]
        asking = pod(*names, annotations={f"{SEED}{name}": "claim" for name in names})
        for read in (pod_claims.of, pod_claims.containers, pod_claims.respelled):
            listed.clear()
            read(asking)
            assert len(listed) == 1

    REFUSED = {  # noqa: RUF012
        "no such container": (
            pod("a", "b", annotations={f"{SEED}x": "c"}),
            f"metadata.annotations[{SEED}x]",
            "the pod has no container 'x'",
            f"{SEED}a or {SEED}b",
        ),
        "another namespace": (
            pod("a", annotations={f"{SEED}a": "prod/c"}),
            f"metadata.annotations[{SEED}a]",
            "not a claim of the pod's own namespace",
            "create that claim where the pod is",
        ),
        "no name": (
            pod("a", annotations={f"{SEED}a": ""}),
            f"metadata.annotations[{SEED}a]",
            "not the name of an object",
            "write the name of an ElasticGPUClaim",
        ),
        "not a name": (
            pod("a", annotations={f"{SEED}a": "My Claim"}),
            f"metadata.annotations[{SEED}a]",
            "not the name of an object",
            "write the name of an ElasticGPUClaim",
        ),
        "the resource without a claim": (
            pod("a", "b", annotations={f"{SEED}a": "c"}),
            f"spec.containers[1].resources.limits[{CLAIM}]",
            "no claim is named for it",
            f"add the annotation {SEED}b",
        ),
        "the resource alone": (
            pod("a"),
            f"spec.containers[0].resources.limits[{CLAIM}]",
            "no claim is named for it",
            f"add the annotation {SEED}a",
        ),
        "the annotation alone": (
            pod("a", limits={}, annotations={f"{SEED}a": "c"}),
            f"metadata.annotations[{SEED}a]",
            f"container a does not have {CLAIM}",
            "install it (docs/admission.md)",
        ),
        "two of it": (
            pod("a", limits={CLAIM: 2}, annotations={f"{SEED}a": "c"}),
            f"spec.containers[0].resources.limits[{CLAIM}]",
            "2 is not between 1 and 1",
            "1, for a container with a claim",
        ),
        "claims and amounts": (
            pod(
                "a", limits={CLAIM: 1, "elasticgpu.io/gpu-memory": 5}, annotations={f"{SEED}a": "c"}
            ),
            f"spec.containers[0].resources.limits[{CLAIM}]",
            "by a claim and by amounts",
            "remove the amounts",
        ),
        "an annotation beside amounts": (
            pod("a", limits={"aliyun.com/gpu-mem": 5}, annotations={f"{README}a": "c"}),
            f"metadata.annotations[{README}a]",
            "by a claim and by amounts",
            "remove the amounts",
        ),
        "claims and our own words": (
            pod("a", limits={CLAIM: 1, "partage.dev/cards": 1}, annotations={f"{SEED}a": "c"}),
            f"spec.containers[0].resources.limits[{CLAIM}]",
            "by a claim and by amounts",
            "remove the amounts",
        ),
    }

    @pytest.mark.parametrize(
        ("asking", "field", "problem", "instead"), REFUSED.values(), ids=REFUSED
    )
    def test_what_cannot_be_meant_is_refused(
        self, asking: pods.Pod, field: str, problem: str, instead: str
    ) -> None:
        """With what to do."""
        error = dialect_pods.refusal(asking)
        assert error.field == field
        assert problem in error.problem
        assert instead in error.instead

    def test_a_pod_of_another_namespace_asks_for_another_claim(self) -> None:
        """Though all that it writes is the same, and such pods are read once."""
        remembered = templates.Templates()
        first = pod("a", annotations={f"{SEED}a": "c"})
        metadata = msgspec.structs.replace(first.metadata, namespace="prod")
        for asking in (first, msgspec.structs.replace(first, metadata=metadata)):
            reading = remembered.reading(asking, dialect_pods.SETTINGS)
            assert reading == templates.read(asking, dialect_pods.SETTINGS)

    @given(st.dictionaries(st.sampled_from([f"{SEED}a", f"{README}b", f"{SEED}z"]), st.text()))
    def test_any_annotation_is_read_or_refused(self, annotations: dict[str, str]) -> None:
        """And what is read are names of objects."""
        try:
            named = pod_claims.of(pod("a", "b", annotations=annotations))
        except errors.DemandError:
            return
        assert set(named) <= {"a", "b"}
        assert all(claim == claim.strip().lower() and "/" not in claim for claim in named.values())

    def test_what_a_pod_says_is_what_its_containers_need(self) -> None:
        """The resource, by container; nothing where it cannot be told."""
        assert registry.implied_in(pod("a", "b", limits={}, annotations={f"{README}b": "c"})) == {
            "b": {CLAIM: 1}
        }
        assert registry.implied_in(pod("a", "b", limits={}, annotations={f"{README}x": "c"})) == {}
        assert registry.implied_in(pod("a", limits={})) == {}

    def test_other_annotations_of_the_domain_are_not_claims(self) -> None:
        """Elastic GPU writes some itself."""
        asking = pod(
            "a",
            limits={"elasticgpu.io/gpu-memory": 5},
            annotations={"elasticgpu.io/assumed": "true"},
        )
        assert dialect_pods.demand(asking).dialect == "elastic"


class TestBoundPods:
    """What a pod has by a claim is counted with the claim."""

    ASKING = pod("main", annotations={f"{SEED}main": "c"})

    def granted(self, asking: pods.Pod, grant: grants.Grant) -> grants.Grant | grants.Damage | None:
        """What a bound pod has by its record."""
        record = {grant_record.GRANT: grant_record.encode(grant)}
        return bound_pods.granted(dialect_pods.bound(asking, record), NODE, dialect_pods.SETTINGS)

    def test_its_record_is_believed_whatever_the_shares_are(self) -> None:
        """They are the object's, and take nothing from the card."""
        grant = dialect_pods.grant(self.ASKING, NODE, 1)
        (container,) = grant.containers
        shares = (grants.Share(uuid="GPU-1", index=1, memory_mib=5000, compute_percent=7),)
        grant = msgspec.structs.replace(
            grant, containers=(msgspec.structs.replace(container, shares=shares),)
        )
        assert self.granted(self.ASKING, grant) == grant
        assert grants.takings(grant) == {}

    def test_a_claim_is_in_the_demand_and_in_the_record_or_in_neither(self) -> None:
        """Else a tenant could write that its share is counted elsewhere."""
        by_amount = dialect_pods.single({"elasticgpu.io/gpu-memory": 5})
        forged = dialect_pods.grant(by_amount, NODE, 0)
        (container,) = forged.containers
        forged = msgspec.structs.replace(
            forged, containers=(msgspec.structs.replace(container, elastic_gpu="egpu-1"),)
        )
        assert isinstance(self.granted(by_amount, forged), grants.Damage)
        grant = dialect_pods.grant(self.ASKING, NODE, 0)
        (container,) = grant.containers
        plain = msgspec.structs.replace(container, elastic_gpu=msgspec.UNSET)
        grant = msgspec.structs.replace(grant, containers=(plain,))
        assert isinstance(self.granted(self.ASKING, grant), grants.Damage)

    def test_who_removes_the_annotation_takes_no_card_from_others(self) -> None:
        """The pod is damaged, and the worst that it can have is what its claim has."""
        bare = pod("main", limits={CLAIM: 1, "nvidia.com/gpu": 0})
        grant = dialect_pods.grant(self.ASKING, NODE, 0)
        assert isinstance(self.granted(bare, grant), grants.Damage)
        bound = dialect_pods.bound(bare, {})
        assert grants.takings(bound_pods.worst(bound, NODE, dialect_pods.SETTINGS)) == {}

    def test_amounts_beside_a_claim_are_counted(self) -> None:
        """Of a pod that came in where nobody judged it."""
        mixed = pod("main", limits={CLAIM: 1, "elasticgpu.io/gpu-memory": 5})
        worst = bound_pods.worst(dialect_pods.bound(mixed, {}), NODE, dialect_pods.SETTINGS)
        assert set(grants.takings(worst)) == {"GPU-0", "GPU-1"}

    def test_without_the_resource_a_pod_has_nothing(self) -> None:
        """The kubelet gives no device to a container that names none."""
        stray = dialect_pods.bound(pod("main", limits={}, annotations={f"{SEED}main": "c"}), {})
        assert bound_pods.granted(stray, NODE, dialect_pods.SETTINGS) is None
