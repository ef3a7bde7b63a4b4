"""Claims, classes and what they are bound to, on a real API server with the webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import admission_process
from tests.cluster import admitting, claiming, installing, making, service_accounts, submitting
from tests.docs import blocks

GROUP = "/apis/elasticgpu.io"
# As they are published, byte for byte: the version, the spellings, the amount, the placeholder.
PUBLISHED_CLASS, PUBLISHED_CLAIM, PUBLISHED_POD = (
    path.read_text() for path in sorted((Path(__file__).parent / "published_claims").iterdir())
)
NODE = {"required": {"nodeSelectorTerms": [
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
]}}  # fmt: skip


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster that knows the kinds, as long as these tests last."""
    with claiming.defined(control_plane):
        yield control_plane


@pytest.fixture
def plane(defined: ControlPlane, clean_cluster: ControlPlane) -> ControlPlane:
    """The same without objects of these kinds."""
    for kind in claiming.KINDS:
        defined.client.call("DELETE", api.path(kind))
    return defined


@pytest.fixture
def admission(plane: ControlPlane, tmp_path: Path) -> Iterator[admission_process.Admission]:
    """Webhooks that are asked."""
    with admitting.admission(plane, tmp_path) as process:
        yield process


def _applied(plane: ControlPlane, text: str, where: str) -> submitting.Answer:
    """What `kubectl apply --server-side` does with a file."""
    return submitting.submit(
        plane, "PATCH", f"{where}?fieldManager=person", text, content_type=submitting.APPLY
    )


def _published(plane: ControlPlane) -> tuple[submitting.Answer, submitting.Answer]:
    claims = f"{GROUP}/v1alpha/namespaces/default/elasticgpuclaims/qgpu-egpuc"
    gpu_class = _applied(plane, PUBLISHED_CLASS, f"{GROUP}/v1alpha/elasticgpuclasses/qgpu-class")
    return gpu_class, _applied(plane, PUBLISHED_CLAIM, claims)


def _claim(name: str = "c", **spec: Any) -> api.Object:
    requests = {"elasticgpu.io/gpu-core": 10, "elasticgpu.io/gpu-memory": "4Gi"}
    return claiming.made(
        "ElasticGPUClaim", name, spec={"resources": {"requests": requests}, **spec}
    )


def _elastic_gpu(**spec: Any) -> api.Object:
    capacity = {"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "4096Mi"}
    source = {"gpuShare": {"gpuName": "n1-00"}}
    return claiming.made(
        "ElasticGPU", "e", spec={"capacity": capacity, "nodeAffinity": NODE, **source, **spec}
    )


def _refusal(plane: ControlPlane, made: api.Object) -> str:
    with pytest.raises(api.ApiError) as caught:
        plane.client.create(made)
    return str(caught.value)


def _phase(plane: ControlPlane, kind: str, name: str, **status: Any) -> api.Object:
    return plane.client.patch(kind, name, {"status": status}, subresource="status")


def _table(plane: ControlPlane, kind: str) -> dict[str, Any]:
    """The only row that `kubectl get` prints, by column."""
    answer = submitting.submit(plane, "GET", api.path(kind), accept=submitting.TABLE).made
    (row,) = answer["rows"]
    names = (column["name"] for column in answer["columnDefinitions"])
    return dict(zip(names, row["cells"], strict=True))


class TestPublishedManifests:
    """What is printed in articles and READMEs."""

    def test_the_class_and_the_claim_apply_as_they_are_printed(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """They are stored in the spelling of the definitions, and 4GB is told."""
        gpu_class, claim = _published(plane)

        assert (gpu_class.warnings, gpu_class.status) == ([], 201), gpu_class.body
        (warning,) = claim.warnings
        assert "4GB is read as 4G, which is 3815 MiB; write 4Gi for 4096 MiB" in warning
        stored = plane.client.get("ElasticGPUClass", "qgpu-class")
        assert stored["apiVersion"] == "elasticgpu.io/v1alpha1"
        fields = {name: stored[name] for name in sorted(stored) if name not in _COMMON}
        assert fields == {
            "egpuBindingMode": "Immediate",
            "provisioner": "elasticgpu.io/qgpu",
            "reclaimPolicy": "Retain",
            "shared": False,
        }
        assert plane.client.get("ElasticGPUClaim", "qgpu-egpuc")["spec"] == {
            "elasticGPUClassName": "qgpu-class",
            "resources": {
                "requests": {
                    "tke.cloud.tencent.com/qgpu-core": 10,
                    "tke.cloud.tencent.com/qgpu-memory": "4G",
                }
            },
        }

    def test_they_may_be_applied_again_after_the_claim_was_bound(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """What differs in its spelling only is not a change."""
        _published(plane)
        _phase(plane, "ElasticGPUClaim", "qgpu-egpuc", phase="Bound")

        for answer in _published(plane):
            assert answer.status == 200, answer.body

    def test_they_come_in_while_admission_is_down(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """As they are written, with nothing of it lost; the controller reads every spelling."""
        admission.kill()
        gpu_class, claim = _published(plane)

        assert gpu_class.made["eGPUBindingMode"] == "Immediate"
        assert claim.made["spec"]["storageClassName"] == "qgpu-class"
        amounts = claim.made["spec"]["resources"]["requests"]
        assert amounts["tke.cloud.tencent.com/qgpu-memory"] == "4GB"

    def test_the_pod_lacks_an_image_and_nothing_else(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """No pod can be without one. Its placeholder stands for the only container."""
        where = api.path("Pod", "qgpu-pod")

        refused = _applied(plane, PUBLISHED_POD, where)
        answer = _applied(plane, PUBLISHED_POD + "   image: x\n", where)

        (cause,) = refused.body["details"]["causes"]
        assert (cause["field"], cause["message"]) == (
            "spec.containers[0].image",
            "Required value",
        )
        resources = answer.made["spec"]["containers"][0]["resources"]
        assert resources["limits"] == resources["requests"] == {"partage.dev/claim": "1"}
        annotations = answer.made["metadata"]["annotations"]
        assert annotations == {"elasticgpu.io/egpuc-test": "qgpu-egpuc"}
        (warning,) = answer.warnings
        assert "is stored as elasticgpu.io/egpuc-test" in warning

    def test_the_other_spelling_of_the_annotation_does_the_same(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """Its example names what is not a container."""
        pod = objects.pod("p", annotations={"egpuc.elasticgpu.io/anything": "c"})

        limits = plane.client.create(pod)["spec"]["containers"][0]["resources"]["limits"]

        assert limits == {"partage.dev/claim": "1"}


_COMMON = {"apiVersion", "kind", "metadata"}


class TestDefinitions:
    """What the API server stores and refuses by itself."""

    @pytest.mark.parametrize("version", ["v1alpha1", "v1alpha"])
    def test_every_field_comes_back(self, plane: ControlPlane, version: str) -> None:
        """By either version."""
        for full, status in _FULL:
            kind, name = full["kind"], full["metadata"]["name"]
            made = full | {"apiVersion": f"elasticgpu.io/{version}"}
            where = api.path(kind, version=made["apiVersion"])
            plane.client.call("POST", f"{where}?fieldValidation=Strict", made)
            if status:
                _phase(plane, kind, name, **status)
            read = plane.client.get(kind, name)
            assert read["apiVersion"] == "elasticgpu.io/v1alpha1"
            assert read.get("status", {}) == status
            assert {k: v for k, v in read.items() if k not in {*_COMMON, "status"}} == {
                k: v for k, v in made.items() if k not in _COMMON
            }

    @pytest.mark.parametrize("kind", ["ElasticGPU", "ElasticGPUClaim"])
    def test_a_phase_that_there_is_not_is_refused(self, plane: ControlPlane, kind: str) -> None:
        """The original definitions took any text."""
        made = _elastic_gpu() if kind == "ElasticGPU" else _claim()
        plane.client.create(made)
        with pytest.raises(api.ApiError, match="Unsupported value"):
            _phase(plane, kind, made["metadata"]["name"], phase="Happy")

    def test_an_elastic_gpu_has_one_source(self, plane: ControlPlane) -> None:
        """Or none, as long as its shares are not decided."""
        two = _elastic_gpu(qGPU={"gpuName": "n1-00"})
        assert "there can be one source only" in _refusal(plane, two)
        plane.client.create(claiming.made("ElasticGPU", "later", spec={}))
        plane.client.patch("ElasticGPU", "later", {"spec": _elastic_gpu()["spec"]})

    def test_spellings_that_contradict_each_other_are_refused(self, plane: ControlPlane) -> None:
        """Nobody could say which one is meant."""
        claim = _claim(storageClassName="a", egpuClassName="b")
        gpu_class = claiming.made(
            "ElasticGPUClass",
            "c",
            provisioner="elasticgpu.io/qgpu",
            egpuBindingMode="Immediate",
            eGPUBindingMode="WaitForFirstConsumer",
        )
        for made in (claim, gpu_class):
            assert "they differ; write one of them" in _refusal(plane, made)
        plane.client.create(_claim(storageClassName="a", egpuClassName="a"))

    @pytest.mark.parametrize("amount", ["4 GB", "-1", "four", "4Gb", ""])
    def test_what_is_not_an_amount_is_refused(self, plane: ControlPlane, amount: str) -> None:
        """Also without the webhook."""
        claim = _claim(resources={"requests": {"elasticgpu.io/gpu-memory": amount}})
        assert "should match" in _refusal(plane, claim)

    @pytest.mark.parametrize("amount", [4096, "512", "4Gi", "4GiB", "4GB", "4KB", "1e3", "0.5Gi"])
    def test_amounts_are_taken_as_people_write_them(
        self, plane: ControlPlane, amount: str | int
    ) -> None:
        """Numbers, quantities, and bytes with their B."""
        claim = _claim(resources={"requests": {"elasticgpu.io/gpu-memory": amount}})
        stored = plane.client.create(claim)
        assert stored["spec"]["resources"]["requests"] == {"elasticgpu.io/gpu-memory": amount}

    @pytest.mark.parametrize(
        ("spec", "text"),
        [
            ({"elasticGPUClassName": "b"}, "the class of a claim that was bound"),
            (
                {"resources": {"requests": {"elasticgpu.io/gpu-core": 20}}},
                "the resources of a claim that was bound",
            ),
            ({"elasticGPUName": "other"}, "stays with its ElasticGPU"),
        ],
        ids=["class", "resources", "object"],
    )
    def test_a_claim_that_was_bound_stays_as_it_is(
        self, plane: ControlPlane, spec: dict[str, Any], text: str
    ) -> None:
        """What waits may be changed; what is bound may have its class in another spelling."""
        plane.client.create(_claim("waits", elasticGPUClassName="a"))
        plane.client.create(_claim("bound", elasticGPUClassName="a", elasticGPUName="e"))
        _phase(plane, "ElasticGPUClaim", "waits", phase="Pending")
        _phase(plane, "ElasticGPUClaim", "bound", phase="Bound")
        plane.client.patch("ElasticGPUClaim", "waits", {"spec": spec})
        with pytest.raises(api.ApiError, match=text):
            plane.client.patch("ElasticGPUClaim", "bound", {"spec": spec})
        spelling = {"spec": {"elasticGPUClassName": None, "storageClassName": "a"}}
        plane.client.patch("ElasticGPUClaim", "bound", spelling)

    @pytest.mark.parametrize(
        "spec",
        [
            {"capacity": {"elasticgpu.io/gpu-core": "20"}},
            {"gpuShare": {"gpuName": "n1-01"}},
            {"gpuShare": None, "qGPU": {"gpuName": "n1-00"}},
            {"nodeAffinity": None},
        ],
        ids=["capacity", "card", "source", "node"],
    )
    def test_what_an_elastic_gpu_is_stays(self, plane: ControlPlane, spec: dict[str, Any]) -> None:
        """Its grant says the same; who has it may change."""
        plane.client.create(_elastic_gpu(claimRef={"namespace": "default", "name": "c"}))
        with pytest.raises(api.ApiError, match="cannot be changed"):
            plane.client.patch("ElasticGPU", "e", {"spec": spec})
        plane.client.patch("ElasticGPU", "e", {"spec": {"claimRef": None}})

    def test_short_names(self, plane: ControlPlane) -> None:
        """As people type them."""
        served = plane.client.call("GET", f"{GROUP}/v1alpha1")["resources"]
        short = {kind["name"]: kind.get("shortNames") for kind in served if "/" not in kind["name"]}
        assert short == {
            "elasticgpus": ["egpu"],
            "elasticgpuclaims": ["egpuc"],
            "elasticgpuclasses": ["egpuclass"],
            "gpus": None,
        }

    def test_tables_show_what_a_person_wants_to_see(self, plane: ControlPlane) -> None:
        """`kubectl get egpuc`, `egpu`, `gpu` and `egpuclass`."""
        for made, status in _FULL:
            plane.client.create(made)
            if status:
                _phase(plane, made["kind"], made["metadata"]["name"], **status)

        tables = {kind: _table(plane, kind) for kind in claiming.KINDS}

        ages = [str(table.pop("Age")) for table in tables.values()]
        assert all(age.endswith("s") for age in ages), ages
        assert tables == {
            "ElasticGPUClass": {
                "Name": "full",
                "Provisioner": "elasticgpu.io/qgpu",
                "Reclaim": "Retain",
                "Binding": "WaitForFirstConsumer",
                "Shared": True,
            },
            "ElasticGPUClaim": {
                "Name": "full",
                "Status": "Bound",
                "ElasticGPU": "egpu-1",
                "Class": "full",
                "Core(%)": "10",
                "Memory": "4096Mi",
                "Node": "n1",
            },
            "ElasticGPU": {
                "Name": "full",
                "Core(%)": "10",
                "Memory": "4096Mi",
                "Status": "Bound",
                "Namespace": "default",
                "Claim": "full",
                "Class": "full",
                "Reclaim": "Retain",
                "Reason": "Provisioned",
                "Node": "n1",
            },
            "GPU": {
                "Name": "n1-00",
                "Node": "n1",
                "Index": 0,
                "Model": "Tesla T4",
                "Memory(MiB)": "16384",
                "Tenants": 1,
                "Free Core(%)": "90",
                "Free Memory(MiB)": "12288",
                "State": "Healthy",
            },
        }


_AMOUNTS = {"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "4096Mi"}
_CONDITION = {
    "type": "Bound",
    "status": "True",
    "reason": "Provisioned",
    "message": "a share of n1-00",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "observedGeneration": 1,
}
# One object of each kind with all its fields in the canonical spelling, and its status.
_FULL: list[tuple[api.Object, dict[str, Any]]] = [
    (
        claiming.made(
            "ElasticGPUClass",
            "full",
            provisioner="elasticgpu.io/qgpu",
            parameters={"a": "b"},
            reclaimPolicy="Retain",
            egpuBindingMode="WaitForFirstConsumer",
            shared=True,
        ),
        {},
    ),
    (
        claiming.made(
            "ElasticGPUClaim",
            "full",
            spec={
                "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
                "elasticGPUName": "egpu-1",
                "elasticGPUClassName": "full",
            },
        ),
        {"phase": "Bound", "capacity": _AMOUNTS, "nodeName": "n1", "conditions": [_CONDITION]},
    ),
    (
        claiming.made(
            "ElasticGPU",
            "full",
            spec={
                "capacity": _AMOUNTS,
                "qGPU": {"gpuName": "n1-00", "deviceName": "GPU-1", "paths": ["/dev/nvidia0"]},
                "claimRef": {
                    "apiVersion": "elasticgpu.io/v1alpha1",
                    "kind": "ElasticGPUClaim",
                    "namespace": "default",
                    "name": "full",
                    "uid": "1",
                },
                "nodeAffinity": NODE,
                "elasticGPUClassName": "full",
                "reclaimPolicy": "Retain",
            },
        ),
        {
            "phase": "Bound",
            "reason": "Provisioned",
            "message": "a share of n1-00",
            "conditions": [_CONDITION],
        },
    ),
    (
        claiming.made(
            "GPU",
            "n1-00",
            spec={
                "index": 0,
                "uuid": "GPU-1",
                "model": "Tesla T4",
                "path": "/dev/nvidia0",
                "memory": 17179869184,
                "nodeName": "n1",
            },
        ),
        {
            "state": "Healthy",
            "capacity": {"elasticgpu.io/gpu-core": "100", "elasticgpu.io/gpu-memory": "16384"},
            "allocatable": {"elasticgpu.io/gpu-core": "90", "elasticgpu.io/gpu-memory": "12288"},
            "allocated": {
                "uid-1": {
                    "namespace": "default",
                    "pod": "p",
                    "containers": [
                        {"container": "main", "resource": _AMOUNTS},
                        {"container": "other", "elasticGPU": "full"},
                    ],
                }
            },
            "tenants": 1,
        },
    ),
]


class TestWithoutWebhooks:
    """Where nobody completes a pod, the annotation alone is not enough to reach the agent."""

    @pytest.mark.parametrize("prefix", ["elasticgpu.io/egpuc-", "egpuc.elasticgpu.io/"])
    def test_a_pod_that_would_run_without_its_card_is_refused(
        self, plane: ControlPlane, prefix: str
    ) -> None:
        """It says what to write, or to install."""
        said = claiming.policy_refuses(plane, f"{prefix}main")
        assert f"the annotation {prefix}main names a claim" in said
        assert "write partage.dev/claim: 1 into them" in said

    @pytest.mark.parametrize("named", ["main", "first"])
    def test_a_pod_that_reaches_the_agent_comes_in(self, plane: ControlPlane, named: str) -> None:
        """By the container that the annotation names, which may be one that runs first."""
        pod = objects.pod("p", annotations={f"{claiming.CLAIM_OF}{named}": "c"})
        spec = pod["spec"]
        spec["initContainers"] = [{"name": "first", "image": "x"}]
        assert "would run without a card" in _refusal(plane, pod)
        for container in (*spec["initContainers"], *spec["containers"]):
            if container["name"] == named:
                container["resources"] = {"limits": {"partage.dev/claim": 1}}
        plane.client.create(pod)
        plane.client.create(objects.pod("without-claims"))


class TestAdmission:
    """What the webhooks refuse and warn of."""

    def test_a_request_that_can_never_be_read_is_refused(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """Before its class is there; and by the rules of its class once that is known."""
        unknown = _claim(resources={"requests": {"example.com/gpu": 1}})
        assert "a claim cannot ask for this resource" in _refusal(plane, unknown)
        _published(plane)
        odd = _claim(
            elasticGPUClassName="qgpu-class",
            resources={
                "requests": {
                    "tke.cloud.tencent.com/qgpu-core": 33,
                    "tke.cloud.tencent.com/qgpu-memory": 4,
                }
            },
        )
        text = making.eventually(lambda: _refusal_if_any(plane, odd), why=admission.log)
        assert "33 is not a multiple of 5; write 30 or 35" in text

    def test_a_class_that_is_not_there_is_a_warning(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """Manifests may be applied in any order."""
        claim = json.dumps(_claim(elasticGPUClassName="later"))
        where = f"{api.path('ElasticGPUClaim')}?dryRun=All"

        # Nothing is said before all classes have been read.
        answer = making.eventually(
            lambda: (a := submitting.submit(plane, "POST", where, claim)).warnings and a,
            why=admission.log,
        )

        (warning,) = answer.warnings
        assert answer.status == 201
        assert "class later is not there yet" in warning

    def test_pods_whose_claims_can_never_work_are_refused(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """With what to write instead."""
        both = objects.pod(
            "both", {objects.MEMORY: 3}, annotations={"elasticgpu.io/egpuc-main": "c"}
        )
        text = _refusal(plane, both)
        assert "cards are asked for by a claim and by amounts" in text
        astray = objects.pod("astray", annotations={"elasticgpu.io/egpuc-other": "c"})
        astray["spec"]["containers"].append({"name": "second", "image": "x"})
        assert "for a container that the pod does not have" in _refusal(plane, astray)
        elsewhere = objects.pod("elsewhere", annotations={"elasticgpu.io/egpuc-main": "lab/c"})
        assert "not a claim of the pod's own namespace" in _refusal(plane, elsewhere)

    def test_a_pod_with_a_claim_is_guarded_as_one_with_cards(
        self, admission: admission_process.Admission, plane: ControlPlane
    ) -> None:
        """A container that is privileged could take its fence away."""
        installing.apply(plane, installing.manifests("guard.yaml"))
        pod = objects.pod("bold", annotations={"elasticgpu.io/egpuc-main": "c"})
        pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
        try:
            text = making.eventually(lambda: _refusal_if_any(plane, pod))
        finally:
            for manifest in installing.manifests("guard.yaml"):
                plane.client.delete(manifest["kind"], manifest["metadata"]["name"], "")
        assert "a container is privileged" in text


def _refusal_if_any(plane: ControlPlane, made: api.Object) -> str:
    """Why an object would be refused; empty if it would not."""
    try:
        plane.client.call("POST", f"{api.path(made['kind'])}?dryRun=All", made)
    except api.ApiError as error:
        return str(error)
    return ""


def test_accounts_have_the_rights_that_claims_need(plane: ControlPlane) -> None:
    """And agents no more than to read what a claim has."""
    for name in ("extender.yaml", "agent.yaml", "admission.yaml"):
        installing.apply(plane, installing.manifests(name))
    may = service_accounts.may
    group = "elasticgpu.io"
    for verb, resource in (
        ("create", "elasticgpus"),
        ("delete", "elasticgpus"),
        ("patch", "elasticgpuclaims/status"),
        ("watch", "elasticgpuclasses"),
    ):
        assert may(plane, "partage-extender", verb, resource, group=group)
    assert may(plane, "partage-agent", "get", "elasticgpus", group=group)
    assert not may(plane, "partage-agent", "patch", "elasticgpus", group=group)
    assert may(plane, "partage-admission", "watch", "elasticgpuclasses", group=group)
    assert not may(plane, "partage-admission", "list", "elasticgpuclaims", group=group)


def test_the_example_of_the_page_works_as_it_is_printed(
    admission: admission_process.Admission, plane: ControlPlane
) -> None:
    """Nothing is warned of, and the pod reaches the agent."""
    example = next(block for block in blocks.of("yaml") if block.page == "docs/claims.md")
    for written in yaml.safe_load_all(example.text):
        answer = submitting.submit(plane, "POST", api.path(written["kind"]), json.dumps(written))
        assert (answer.status, answer.warnings) == (201, []), answer.body
    (container,) = plane.client.get("Pod", "notebook")["spec"]["containers"]
    assert container["resources"]["limits"] == {"partage.dev/claim": "1"}


def test_people_of_a_namespace_may_claim_there(plane: ControlPlane) -> None:
    """As they may have volumes: those who edit make claims, those who view see them."""
    added = [_of_people(plane, role) for role in ("admin", "edit", "view")]
    assert added[0] == added[1] == {"partage-claims-edit", "partage-claims-view"}
    assert added[2] == {"partage-claims-view"}
    bound = [plane.client.create(_bound_role(account)) for account in ("edit", "view")]
    every = {"get", "list", "watch", "create", "update", "patch", "delete"}
    allowed = {
        account: {verb for verb in every if _may(plane, account, verb, "elasticgpuclaims")}
        for account in ("edit", "view")
    }
    assert allowed == {
        "edit": every - {"get", "list", "watch"},
        "view": {"get", "list", "watch"},
    }
    for resource in ("elasticgpuclaims/status", "elasticgpus", "elasticgpuclasses", "gpus"):
        assert not _may(plane, "edit", "patch", resource)
    assert not _may(plane, "edit", "create", "elasticgpuclaims", namespace="kube-system")
    for binding in bound:
        plane.client.delete("RoleBinding", binding["metadata"]["name"])


def _of_people(plane: ControlPlane, role: str) -> set[str]:
    """The roles for claims that a role of Kubernetes gets, by what it says of itself."""
    aggregation = plane.client.get("ClusterRole", role)["aggregationRule"]
    selectors = [
        ",".join(f"{label}={value}" for label, value in rule["matchLabels"].items())
        for rule in aggregation["clusterRoleSelectors"]
    ]
    return {
        made["metadata"]["name"]
        for selector in selectors
        for made in plane.client.list_all("ClusterRole", selector=selector)
        if made["metadata"]["name"].startswith("partage-claims-")
    }


def _bound_role(account: str) -> api.Object:
    """An account of the namespace has one of the roles for claims."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"claims-{account}", "namespace": api.DEFAULT},
        "roleRef": {
            "apiGroup": group,
            "kind": "ClusterRole",
            "name": f"partage-claims-{account}",
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": api.DEFAULT}],
    }


def _may(
    plane: ControlPlane, account: str, verb: str, resource: str, namespace: str = api.DEFAULT
) -> bool:
    return service_accounts.may(
        plane,
        account,
        verb,
        resource,
        namespace=namespace,
        group="elasticgpu.io",
        home=api.DEFAULT,
    )
