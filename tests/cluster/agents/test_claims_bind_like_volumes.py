"""Claims on real nodes: from the published manifests to a container that is held to its share."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import api, objects
from cluster.node import container_image
from cluster.node import node as node_module
from cluster.node.node import Node
from partage.admission import webhooks
from partage.fence.store import tenants
from tests.cluster import admitting, claiming, making, submitting, test_claim_objects
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site
from tests.leaving_out import leave_out

KINDS = (claiming.CLAIM, claiming.ELASTIC_GPU, claiming.CLASS)


@pytest.fixture(scope="module")
def whole_site(
    nodes: tuple[Node, Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site that knows the kinds from the start, with webhooks that are asked."""
    plane = nodes[0].plane
    with claiming.defined(plane):
        made = Site(nodes, tmp_path_factory.mktemp("site"))
        try:
            made.start()
            with admitting.admission(plane, tmp_path_factory.mktemp("admission")):
                yield made
                node_module.clear(nodes)
                _clear(made)
        finally:
            made.close()


@pytest.fixture(autouse=True)
def clean(site: Site) -> Iterator[None]:
    """No claim of one test is there in the next; and nothing is left of it in the fleet."""
    yield
    node_module.clear(site.nodes)
    site.start()
    _clear(site)


def test_the_published_manifests_in_order(site: Site, images: None) -> None:
    """As they are printed; the container sees its share of the card and is held to it."""
    for text in (test_claim_objects.PUBLISHED_CLASS, test_claim_objects.PUBLISHED_CLAIM):
        _apply_text(site, text)
    claim = _phase(site, claiming.CLAIM, "qgpu-egpuc", "Bound")
    held = site.client.get(claiming.ELASTIC_GPU, claim["spec"]["elasticGPUName"], "")
    assert held["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert held["spec"]["capacity"] == {claiming.CORE: "10", claiming.MEMORY: "3815Mi"}  # 4 GB
    _apply_text(site, test_claim_objects.PUBLISHED_POD)
    (pod,) = site.running("qgpu-pod")
    [seen_mib] = site.cards("qgpu-pod", container="test").values()
    assert seen_mib == 3815
    tenant = tenants.read(site.root(pod["spec"]["nodeName"]), f"elasticgpu.{_name(held)}")
    [limit] = tenant.limits.cards
    assert limit.share_millionths == 100_000  # 10 percent
    assert site.exec("qgpu-pod", "gpu", "try", "3900", container="test").returncode != 0
    site.said("qgpu-pod", "gpu", "try", "3000", container="test")
    _phase(site, claiming.ELASTIC_GPU, _name(held), "Bound")


@pytest.fixture
def images(site: Site) -> Iterator[None]:
    """An administrator's policy, by which containers without an image have one."""
    kinds = site.client.call("GET", "/apis/admissionregistration.k8s.io/v1")["resources"]
    if "mutatingadmissionpolicies" not in {kind["name"] for kind in kinds}:
        leave_out("the published pod", "this Kubernetes has no MutatingAdmissionPolicy")
    path, image = "/spec/containers/0/image", container_image.NAME
    operations = (
        f'[JSONPatch{{op: "add", path: "{path}", value: "{image}"}}, '
        f'JSONPatch{{op: "add", path: "{path}PullPolicy", value: "Never"}}, '
        'JSONPatch{op: "add", path: "/spec/automountServiceAccountToken", value: false}]'
    )
    policy = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [webhooks.rule("", ["pods"], ["CREATE"])]},
        "matchConditions": [
            {"name": "without", "expression": "!has(object.spec.containers[0].image)"}
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": operations}}],
    }
    bound = {"policyName": "images"}
    made = {"MutatingAdmissionPolicy": policy, "MutatingAdmissionPolicyBinding": bound}
    for kind, spec in made.items():
        version = "admissionregistration.k8s.io/v1"
        about = {"apiVersion": version, "kind": kind, "metadata": {"name": "images"}}
        site.client.create(about | {"spec": spec})
    bare = objects.pod("bare")
    del bare["spec"]["containers"][0]["image"]
    making.eventually(lambda: _is_accepted(site, bare))
    yield
    for kind in made:
        site.client.delete(kind, "images", "")


def _is_accepted(site: Site, pod: api.Object) -> bool:
    try:
        site.client.call("POST", f"{api.path('Pod')}?dryRun=All", pod)
    except api.ApiError:
        return False
    return True


def test_an_immediate_claim_holds_its_share_before_any_pod(site: Site) -> None:
    """Nobody else can have it, also after everything was killed."""
    _class(site)
    for number, mib in enumerate(sorted(_card_sizes(site), reverse=True)):
        _claim(site, f"c{number}", mib - 1000)
        _phase(site, claiming.CLAIM, f"c{number}", "Bound")
    site.extender.kill()
    for node in site.nodes:
        site.agent(node.name).kill()
        node.restart_kubelet()
    site.plane.kill_apiserver()
    site.plane.start_apiserver()
    site.start()
    site.create(
        objects.running_pod("large", objects.container(limits={"partage.dev/memory-mib": 2000}))
    )
    making.eventually(lambda: _explains(site, "large", "1000 short"))
    site.client.delete(claiming.CLAIM, "c0")
    site.running("large")


def test_a_claim_that_waits_is_bound_where_its_first_pod_goes(site: Site) -> None:
    """Until then it says so; the pod runs where the share was made."""
    _class(site, egpuBindingMode="WaitForFirstConsumer")
    _claim(site, "later", 2000)
    making.eventually(lambda: _reason(site, "later") == "WaitForFirstConsumer")
    assert site.client.list_all(claiming.ELASTIC_GPU) == []
    _run(site, "first", {"elasticgpu.io/egpuc-main": "later"})
    claim = _phase(site, claiming.CLAIM, "later", "Bound")
    assert claim["status"]["nodeName"] == site.pod("first")["spec"]["nodeName"]


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_what_becomes_of_a_share_whose_claim_is_deleted(site: Site, policy: str) -> None:
    """Kept as Released, or gone; but not while a pod uses it."""
    _class(site, reclaimPolicy=policy)
    _claim(site, "c", 2000)
    name = _phase(site, claiming.CLAIM, "c", "Bound")["spec"]["elasticGPUName"]
    _run(site, "user", {"egpuc.elasticgpu.io/main": "c"})
    site.client.delete(claiming.CLAIM, "c")
    assert site.client.get(claiming.CLAIM, "c")["metadata"]["deletionTimestamp"]
    site.said("user", "gpu", "try", "1000")
    site.gone("user")
    making.eventually(lambda: site.client.list_all(claiming.CLAIM) == [])
    if policy == "Retain":
        _phase(site, claiming.ELASTIC_GPU, name, "Released")
    else:
        making.eventually(lambda: site.client.list_all(claiming.ELASTIC_GPU) == [])


def test_pods_that_cannot_have_their_claim_wait_and_are_told(site: Site) -> None:
    """A claim that is not there, and one that another pod uses; then it is their turn."""
    _class(site)
    _claim(site, "c", 2000)
    _phase(site, claiming.CLAIM, "c", "Bound")
    _run(site, "first", {"elasticgpu.io/egpuc-main": "c"})
    for name, claim in (("second", "c"), ("third", "missing")):
        site.create(_pod(name, {"elasticgpu.io/egpuc-main": claim}))
    making.eventually(lambda: _explains(site, "second", "is used by pod default/first"))
    making.eventually(
        lambda: _explains(site, "third", "there is no ElasticGPUClaim default/missing")
    )
    making.told(site.plane, "second", "is used by pod default/first")
    making.told(site.plane, "third", "there is no ElasticGPUClaim default/missing")
    site.gone("first")
    site.running("second")


def test_a_pod_that_is_there_before_its_claim_runs_when_that_comes(site: Site) -> None:
    """Though nothing else than the pod's next try says where the claim can be bound."""
    site.create(_pod("early", {"elasticgpu.io/egpuc-main": "later"}))
    making.told(site.plane, "early", "there is no ElasticGPUClaim default/later")
    _class(site, egpuBindingMode="WaitForFirstConsumer")
    _claim(site, "later", 2000)
    site.running("early")


def test_a_class_that_begins_to_share_lets_the_next_pod_in(site: Site) -> None:
    """It has waited for the end of the first one, which goes on."""
    _class(site)
    _claim(site, "c", 2000)
    _run(site, "first", {"elasticgpu.io/egpuc-main": "c"})
    site.create(_pod("second", {"elasticgpu.io/egpuc-main": "c"}))
    making.told(site.plane, "second", "is used by pod default/first")
    [gpu_class] = site.client.list_all(claiming.CLASS)
    site.client.patch(claiming.CLASS, gpu_class["metadata"]["name"], {"shared": True}, namespace="")
    site.running("first", "second")


def test_pods_of_a_shared_class_share_one_quota(site: Site) -> None:
    """Both run at once, and together have what the claim has."""
    _class(site, shared=True)
    _claim(site, "c", 2000)
    for name in ("one", "two"):
        _run(site, name, {"elasticgpu.io/egpuc-main": "c"}, "gpu", "hold", "500")
    making.eventually(lambda: site.exec("one", "gpu", "try", "1000").returncode != 0)


def test_a_claim_is_lost_with_its_node_and_comes_back(site: Site) -> None:
    """Its share waits for the node; the claim says what is missing."""
    _class(site)
    _claim(site, "c", 2000)
    claim = _phase(site, claiming.CLAIM, "c", "Bound")
    node = site.client.get("Node", claim["status"]["nodeName"])
    site.agent(node["metadata"]["name"]).kill()
    site.client.delete("Node", node["metadata"]["name"], "")
    _phase(site, claiming.CLAIM, "c", "Lost")
    _phase(site, claiming.ELASTIC_GPU, claim["spec"]["elasticGPUName"], "Failed")
    kept = {name: node["metadata"][name] for name in ("name", "labels", "annotations")}
    site.client.create({**node, "metadata": kept})
    site.start()
    _phase(site, claiming.CLAIM, "c", "Bound")
    _run(site, "user", {"elasticgpu.io/egpuc-main": "c"})


def test_a_claim_is_lost_with_its_card_and_comes_back(site: Site) -> None:
    """The pod that has it runs on; another one waits, and is told of the card."""
    _class(site, shared=True)
    _claim(site, "c", 2000)
    _run(site, "before", {"elasticgpu.io/egpuc-main": "c"})
    claim = _phase(site, claiming.CLAIM, "c", "Bound")
    node = site.node(claim["status"]["nodeName"])
    [card] = sites.shares(site.pod("before")).values()
    sites.simsmi(node, "lose", str(card["index"]))
    try:
        lost = _phase(site, claiming.CLAIM, "c", "Lost")
        assert "is unhealthy" in lost["status"]["conditions"][0]["message"]
        name = claim["spec"]["elasticGPUName"]
        _phase(site, claiming.ELASTIC_GPU, name, "Failed")
        making.eventually(lambda: _events(site, "is unhealthy") == {"c", name})
        site.create(_pod("after", {"elasticgpu.io/egpuc-main": "c"}))
        making.eventually(lambda: _explains(site, "after", "is unhealthy"))
        making.told(site.plane, "after", "is unhealthy")
        assert site.pod("before")["status"]["phase"] == "Running"
    finally:
        sites.simsmi(node, "reset")
    _phase(site, claiming.CLAIM, "c", "Bound")
    site.running("after")
    assert sites.shares(site.pod("after")) == sites.shares(site.pod("before"))


def test_a_share_that_an_administrator_made_is_taken_by_the_claim_that_names_it(
    site: Site,
) -> None:
    """It is Available with a share of the card that was written; then it is the claim's."""
    made = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": claiming.ELASTIC_GPU,
        "metadata": {"name": "by-hand"},
        "spec": {
            "capacity": {claiming.MEMORY: "2Gi"},
            "gpuShare": {"gpuName": f"{site.nodes[1].name}-01"},
        },
    }
    _apply(site, made)
    _phase(site, claiming.ELASTIC_GPU, "by-hand", "Available")
    claim = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": claiming.CLAIM,
        "metadata": {"name": "c"},
        "spec": {"elasticGPUName": "by-hand", "resources": {"requests": {claiming.MEMORY: "2Gi"}}},
    }
    _apply(site, claim)
    assert _phase(site, claiming.CLAIM, "c", "Bound")["status"]["nodeName"] == site.nodes[1].name
    _run(site, "user", {"elasticgpu.io/egpuc-main": "c"})
    assert list(site.cards("user").values()) == [2048]


def test_what_a_person_sees(site: Site, programs: Path) -> None:
    """`kubectl get egpuc,egpu,gpu` in the words of the server's own tables; `partage claims`."""
    _class(site)
    _claim(site, "c", 2000)
    claim = _phase(site, claiming.CLAIM, "c", "Bound")
    rows = _table(site, claiming.CLAIM)
    assert rows[0]["Status"] == "Bound"
    assert rows[0]["Memory"] == "2000Mi"
    assert rows[0]["Node"] == claim["status"]["nodeName"]
    making.eventually(lambda: _table(site, claiming.ELASTIC_GPU)[0]["Status"] == "Bound")
    making.eventually(lambda: any(row["Tenants"] == 1 for row in _table(site, claiming.GPU)))
    _run(site, "user", {"elasticgpu.io/egpuc-main": "c"})
    site.create(_pod("next", {"elasticgpu.io/egpuc-main": "c"}))
    [shown] = json.loads(sites.partage(site, "claims", "-o", "json").stdout)["claims"]
    assert (shown["memory_mib"], shown["used_by"]) == (2000, ["default/user"])
    assert "egpuc/c (user)" in sites.partage(site, "inspect").stdout
    assert "is used by pod default/user" in sites.partage(site, "explain", "next").stdout
    command = [str(programs / "kubectl"), "--kubeconfig", str(site.plane.kubeconfig)]
    command += ["get", "egpuc,egpu,gpu"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    words = ("elasticgpuclaim.elasticgpu.io/c", "Bound", "2000Mi", "FREE MEMORY(MIB)", "Healthy")
    assert [word for word in words if word not in done.stdout] == []


def _clear(site: Site) -> None:
    for kind in KINDS:
        for made in site.client.list_all(kind):
            meta = made["metadata"]
            with contextlib.suppress(api.ApiError):  # the controller deletes, too
                site.client.delete(kind, meta["name"], meta.get("namespace", ""))
        making.eventually(functools.partial(_none_left, site, kind))


def _none_left(site: Site, kind: str) -> bool:
    return site.client.list_all(kind) == []


def _apply(site: Site, made: api.Object) -> None:
    path = api.path(made["kind"], version=made["apiVersion"])
    site.client.call("POST", path, made)


def _apply_text(site: Site, text: str) -> None:
    """What `kubectl apply --server-side` does with a file."""
    made = yaml.safe_load(text)
    where = api.path(made["kind"], _name(made), version=made["apiVersion"])
    answer = submitting.submit(
        site.plane,
        "PATCH",
        f"{where}?fieldManager=person",
        text,
        content_type=submitting.APPLY,
    )
    assert answer.made


def _name(made: api.Object) -> str:
    return str(made["metadata"]["name"])


def _class(site: Site, **fields: Any) -> None:
    _apply(site, claiming.gpu_class(**fields))


def _claim(site: Site, name: str, mib: int) -> None:
    _apply(site, claiming.claim(name, mib))


def _pod(name: str, annotations: dict[str, str], *command: str) -> api.Object:
    container = objects.container(*command)
    return objects.running_pod(name, container, annotations=annotations)


def _run(site: Site, name: str, annotations: dict[str, str], *command: str) -> None:
    site.create(_pod(name, annotations, *command))
    site.running(name)


def _phase(site: Site, kind: str, name: str, phase: str) -> api.Object:
    return claiming.phase(site.plane, kind, name, phase)


def _reason(site: Site, claim: str) -> str:
    return claiming.reason(site.client.get(claiming.CLAIM, claim))


def _events(site: Site, text: str) -> set[str]:
    """The objects of claims of which an event says this."""
    events = [event for event in site.client.list_all("Event") if text in event["message"]]
    about = [event["involvedObject"] for event in events]
    return {ref["name"] for ref in about if ref["apiVersion"] == claiming.VERSION}


def _explains(site: Site, pod: str, pattern: str) -> bool:
    said = site.extender.get(f"/explain/default/{pod}")
    return re.search(pattern, str(said)) is not None


def _card_sizes(site: Site) -> list[int]:
    """The memory of each card of the cluster, in MiB."""
    nodes = [site.client.get("Node", node.name) for node in site.nodes]
    cards_of = [json.loads(node["metadata"]["annotations"]["partage.dev/cards"]) for node in nodes]
    return [card["memory_mib"] for cards in cards_of for card in cards["cards"]]


def _table(site: Site, kind: str) -> list[dict[str, Any]]:
    where = api.path(kind, namespace="")
    made = submitting.submit(site.plane, "GET", where, accept=submitting.TABLE).made
    names = [column["name"] for column in made["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in made["rows"]]
