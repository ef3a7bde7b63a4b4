"""The objects of claims: every spelling is read, and a share is recorded and read back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import grants
from partage.dialects import grant_record
from partage.dialects.claims import definitions, objects

NODE = "node-a"
UID = "6f1c"


def decoded(form: type[Any], **fields: Any) -> Any:
    """An object as it comes from the API server."""
    return msgspec.json.decode(msgspec.json.encode(fields), type=form)


def claim(**spec: Any) -> objects.ElasticGPUClaim:
    """A claim c of namespace lab."""
    metadata = {"name": "c", "namespace": "lab", "uid": UID, "managedFields": []}
    made: objects.ElasticGPUClaim = decoded(
        objects.ElasticGPUClaim, metadata=metadata, spec=spec, kind="ElasticGPUClaim"
    )
    return made


def gpu_class(**fields: Any) -> objects.ElasticGPUClass:
    """A class of qGPU."""
    fields = {"provisioner": "elasticgpu.io/qgpu", **fields}
    made: objects.ElasticGPUClass = decoded(
        objects.ElasticGPUClass, metadata={"name": "fast"}, **fields
    )
    return made


def grant(*shares: grants.Share, node: str = NODE) -> grants.Grant:
    """The grant of what is made for the claim."""
    return grants.Grant(
        pod=objects.owner(objects.elastic_gpu_name(UID), "lab/c"),
        node=node,
        containers=(grants.ContainerGrant(name="", shares=shares),),
        dialect="claims",
    )


def share(index: int = 0, **changes: Any) -> grants.Share:
    """A share of card GPU-<index>."""
    amounts = {"memory_mib": 4096, "compute_percent": 10, **changes}
    return grants.Share(uuid=f"GPU-{index}", index=index, **amounts)


SHARE = grant(share(1))
WHOLE = grant(*(share(i, memory_mib=16384, compute_percent=100, exclusive=True) for i in range(2)))


def made(given_share: grants.Grant = SHARE, **class_fields: Any) -> dict[str, Any]:
    """The ElasticGPU that is created, and then gets its shares, as JSON."""
    written = objects.unallocated(claim(), gpu_class(**class_fields))
    added = objects.allocated(read(written), given_share)
    annotations = written["metadata"]["annotations"] | added["metadata"]["annotations"]
    return {
        **written,
        "metadata": written["metadata"] | {"annotations": annotations},
        "spec": written["spec"] | added["spec"],
    }


def read(written: dict[str, Any]) -> objects.ElasticGPU:
    """The same as it comes back."""
    elastic_gpu: objects.ElasticGPU = decoded(objects.ElasticGPU, **written)
    return elastic_gpu


class TestSpellings:
    """All that are in circulation."""

    @pytest.mark.parametrize("field", ["elasticGPUClassName", "egpuClassName", "storageClassName"])
    def test_the_class_of_a_claim(self, field: str) -> None:
        """By each of its names; without one it has none."""
        assert claim(**{field: "fast"}).class_name == "fast"
        assert claim().class_name == ""

    @pytest.mark.parametrize("field", ["egpuBindingMode", "eGPUBindingMode"])
    def test_the_binding_mode_of_a_class(self, field: str) -> None:
        """By both; without one its claims are bound at once."""
        waiting = gpu_class(**{field: "WaitForFirstConsumer"})
        assert waiting.binding_mode is objects.BindingMode.FIRST_CONSUMER
        assert gpu_class().binding_mode is objects.BindingMode.IMMEDIATE

    def test_what_nobody_wrote(self) -> None:
        """One pod at a time, and nothing is kept."""
        plain = gpu_class()
        assert (plain.reclaim_policy, plain.shared) == (objects.ReclaimPolicy.DELETE, False)
        assert claim().status.phase is objects.ClaimPhase.PENDING

    def test_every_spelling_is_in_the_definitions(self) -> None:
        """A field that is not would be dropped in silence."""
        schemas = {
            made["spec"]["names"]["kind"]: made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            for made in definitions.all_of_them()
        }
        for form, schema in (
            (objects.ElasticGPUClass, schemas["ElasticGPUClass"]),
            (objects.ClaimSpec, schemas["ElasticGPUClaim"]["properties"]["spec"]),
            (objects.ClaimStatus, schemas["ElasticGPUClaim"]["properties"]["status"]),
            (objects.Spec, schemas["ElasticGPU"]["properties"]["spec"]),
            (objects.Status, schemas["ElasticGPU"]["properties"]["status"]),
        ):
            fields = {field.encode_name for field in msgspec.structs.fields(form)} - {"metadata"}
            assert fields == set(schema["properties"])


class TestNames:
    """Paths, and whose a grant is."""

    def test_paths(self) -> None:
        """As the API server has them."""
        root = "/apis/elasticgpu.io/v1alpha1"
        assert objects.claim_path("lab", "c", "status") == (
            f"{root}/namespaces/lab/elasticgpuclaims/c/status"
        )
        assert objects.elastic_gpu_path("e") == f"{root}/elasticgpus/e"

    def test_the_name_of_what_is_made_is_known_before(self) -> None:
        """By the claim's uid, so that a lost answer can be told from nothing."""
        assert objects.elastic_gpu_name(UID) == "egpu-6f1c"
        owner = objects.owner("egpu-6f1c", "lab/c")
        assert owner == grants.Pod("elasticgpu/egpu-6f1c", "lab", "c")
        assert objects.owned_name(owner.uid) == "egpu-6f1c"
        assert objects.owned_name("1b2c-a-pod") == ""

    def test_cards_are_named_as_their_objects(self) -> None:
        """With two digits at least."""
        assert (objects.gpu_name("n", 3), objects.gpu_name("n", 100)) == ("n-03", "n-100")


class TestProvisioned:
    """What is created for a claim."""

    def test_a_share(self) -> None:
        """The claim by its uid, the capacity, the node and the card."""
        written = made(reclaimPolicy="Retain")
        assert written["metadata"]["name"] == "egpu-6f1c"
        assert written["metadata"]["finalizers"] == [objects.ELASTIC_GPU_FINALIZER]
        assert written["spec"] == {
            "capacity": {"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "4096Mi"},
            "qGPU": {"gpuName": "node-a-01", "deviceName": "GPU-1"},
            "claimRef": {
                "apiVersion": "elasticgpu.io/v1alpha1",
                "kind": "ElasticGPUClaim",
                "namespace": "lab",
                "name": "c",
                "uid": UID,
            },
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [NODE]}
                            ]
                        }
                    ]
                }
            },
            "elasticGPUClassName": "fast",
            "reclaimPolicy": "Retain",
        }

    def test_it_has_nothing_before_its_shares_are_decided(self) -> None:
        """It is the claim's, and is not anywhere."""
        elastic_gpu = read(objects.unallocated(claim(), gpu_class()))
        assert objects.recorded(elastic_gpu) is None
        assert (elastic_gpu.node_name, elastic_gpu.gpu_names) == ("", ())
        assert elastic_gpu.claim_key == "lab/c"

    @pytest.mark.parametrize("provisioner", ["elasticgpu.io/gpushare", "elasticgpu.io/vcuda"])
    def test_the_source_follows_the_provisioner(self, provisioner: str) -> None:
        """Whole cards are physical ones, whoever gives them."""
        assert made(provisioner=provisioner)["spec"]["gpuShare"] == {"gpuName": "node-a-01"}
        whole = made(WHOLE, provisioner=provisioner)["spec"]
        assert whole["physicalGPU"] == {"gpuNames": ["node-a-00", "node-a-01"]}
        assert whole["capacity"] == {
            "nvidia.com/gpu": "2",
            "elasticgpu.io/gpu-core": "200",
            "elasticgpu.io/gpu-memory": "32768Mi",
        }

    @pytest.mark.parametrize("given_share", [SHARE, WHOLE], ids=["share", "whole"])
    def test_it_is_read_back(self, given_share: grants.Grant) -> None:
        """The same grant, under the name of the object."""
        elastic_gpu = read(made(given_share))
        assert objects.recorded(elastic_gpu) == given_share
        assert (elastic_gpu.node_name, elastic_gpu.claim_key) == (NODE, "lab/c")

    def test_the_claim_tells_what_it_has(self) -> None:
        """Capacity and node, for those who look at it."""
        assert objects.bound_status(read(made())) == {
            "phase": "Bound",
            "capacity": {"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "4096Mi"},
            "nodeName": NODE,
        }


def edited(**changes: Any) -> str:
    """The record of the share after somebody edited it."""
    return grant_record.encode(msgspec.structs.replace(SHARE, **changes))


def other_share(**changes: Any) -> str:
    """The record of another share."""
    return grant_record.encode(grant(share(1, **changes)))


DAMAGES = {
    "less memory": (other_share(memory_mib=1), "differs from spec.capacity"),
    "more compute": (other_share(compute_percent=90), "differs from spec.capacity"),
    "a whole card": (other_share(exclusive=True), "differs from spec.capacity"),
    "another card": (grant_record.encode(grant(share(2))), "not those of the object's source"),
    "another node": (edited(node="node-b"), "spec.nodeAffinity names another"),
    "another object": (
        edited(pod=objects.owner("egpu-other", "lab/c")),
        "it belongs to another object",
    ),
    "a pod's": (edited(pod=grants.Pod("uid-1", "lab", "c")), "it belongs to another object"),
    "two shares": (edited(containers=SHARE.containers * 2), "not the record of one share"),
    "not JSON": ("{", "not the expected JSON"),
    "of the future": ('{"version": 2}', "only version 1 is supported"),
    "absurd": (other_share(memory_mib=-1), "out of range"),
    "too long": ("x" * (1 << 19), "too long"),
}


class TestDamage:
    """Records that somebody edited: values, never exceptions."""

    @pytest.mark.parametrize(("text", "problem"), DAMAGES.values(), ids=DAMAGES)
    def test_an_edited_record_is_noticed(self, text: str, problem: str) -> None:
        """The spec cannot be changed, so the record is what is wrong."""
        written = made()
        written["metadata"]["annotations"][grant_record.GRANT] = text
        damage = objects.recorded(read(written))
        assert isinstance(damage, grants.Damage)
        assert damage.field == "metadata.annotations[partage.dev/grant]"
        assert problem in damage.problem
        assert "pod so that it is placed" not in damage.instead

    @pytest.mark.parametrize("missing", ["nodeAffinity", "capacity"])
    def test_a_record_without_what_it_is_compared_with_is_not_believed(self, missing: str) -> None:
        """As an administrator may have written the object by hand."""
        written = made()
        del written["spec"][missing]
        assert isinstance(objects.recorded(read(written)), grants.Damage)

    def test_capacities_may_be_written_in_any_words(self) -> None:
        """An administrator's own, for an object that was not made for a claim."""
        written = made()
        written["spec"]["capacity"] = {
            "tke.cloud.tencent.com/qgpu-core": 10,
            "tke.cloud.tencent.com/qgpu-memory": 4,
        }
        assert objects.recorded(read(written)) == SHARE
        cards = made(WHOLE)
        cards["spec"]["capacity"] = {"nvidia.com/gpu": 2}
        assert objects.recorded(read(cards)) == WHOLE
        cards["spec"]["capacity"] = {"nvidia.com/gpu": 1}
        assert isinstance(objects.recorded(read(cards)), grants.Damage)

    def test_without_a_record_it_has_nothing_yet(self) -> None:
        """As one that an administrator wrote."""
        written = made()
        del written["metadata"]["annotations"]
        assert objects.recorded(read(written)) is None

    @given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(repr))
    def test_whatever_is_written_there_is_a_value(self, text: str) -> None:
        """People edit annotations."""
        written = made()
        written["metadata"]["annotations"][grant_record.GRANT] = text
        assert isinstance(objects.recorded(read(written)), grants.Damage)

    @given(
        st.lists(
            st.builds(
                share,
                st.integers(0, 9),
                memory_mib=st.integers(1, 1 << 20),
                compute_percent=st.integers(0, 99),
            ),
            min_size=1,
            max_size=1,
        )
    )
    def test_every_share_that_can_be_granted_is_read_back(self, shares: list[grants.Share]) -> None:
        """Through the API server's JSON."""
        given_share = grant(*shares)
        assert objects.recorded(read(made(given_share))) == given_share


@pytest.mark.parametrize(
    ("requirement", "node"),
    [
        ({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}, "n"),
        ({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n", "m"]}, ""),
        ({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n"]}, ""),
        ({"key": "zone", "operator": "In", "values": ["n"]}, ""),
    ],
    ids=["hostname", "two", "not", "zone"],
)
def test_the_node_of_an_affinity_is_one(requirement: dict[str, Any], node: str) -> None:
    """As people write it for local volumes; anything else does not name one."""
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    assert read({"spec": {"nodeAffinity": affinity}}).node_name == node
