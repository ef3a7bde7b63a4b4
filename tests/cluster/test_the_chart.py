"""The chart, rendered by Helm: what it makes of many values, and which values it refuses."""

from __future__ import annotations

import functools
import json
import shlex
import tomllib
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from cluster.chart import helm, plain_manifests
from image import settings as image_settings
from partage.admission import settings as admission_settings
from partage.agent import settings as agent_settings
from partage.cli.cluster.adoption import systems
from partage.cli.cluster.adoption.plans import vendor_plan
from partage.cli.commands import agent as agent_command
from partage.scheduler import settings as extender_settings
from tests.cluster import rendering

pytestmark = pytest.mark.usefixtures("helm_program")

VERSIONS = ("1.30", "1.37")  # the oldest that the chart is for, and the newest
NOT_OF_KUBERNETES = {"PodMonitor"}
SELECTING = ("Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor")
GIVEN = helm.CHART / "ci" / "given-certificates-values.yaml"
EXISTING = helm.CHART / "ci" / "existing-scheduler-values.yaml"
EVERYTHING = helm.CHART / "ci" / "everything-values.yaml"
LEAST = helm.CHART / "ci" / "least-values.yaml"
PRIVATE = helm.CHART / "ci" / "private-image-values.yaml"

every_file = pytest.mark.parametrize("values", rendering.FILES, ids=lambda path: path.name)


def test_plain_manifests_are_what_the_chart_renders() -> None:
    """There is one source: who changes the chart runs `make manifests`."""
    assert plain_manifests.outdated() == []


@every_file
def test_helm_has_no_complaint(values: Path) -> None:
    """Nor a warning, which is an error here."""
    helm.run("lint", "--strict", helm.CHART, "--values", values)


@every_file
def test_objects_are_valid_in_old_and_new_versions_of_kubernetes(values: Path) -> None:
    """By the schemas of these versions, without a field that they do not know."""
    for version in VERSIONS:
        for made in rendering.objects(values, "--kube-version", version):
            if made["kind"] not in NOT_OF_KUBERNETES:
                _validate(json.dumps(made, sort_keys=True), version)


@every_file
def test_every_object_has_the_recommended_labels(values: Path) -> None:
    """By which people and tools find what belongs together."""
    names = {"name", "instance", "component", "part-of", "version", "managed-by"}
    for made in rendering.objects(values):
        labels = made["metadata"]["labels"]
        assert {f"app.kubernetes.io/{name}" for name in names} <= labels.keys(), made["metadata"]


@every_file
def test_objects_are_in_the_namespace_of_the_release(values: Path) -> None:
    """But for rights on the lists of unhealthy cards, which are gpushare's and in kube-system."""
    homes = {
        (made["kind"], made["metadata"]["namespace"])
        for made in rendering.objects(values)
        if "namespace" in made["metadata"]
    }
    elsewhere = {kind for kind, namespace in homes if namespace != rendering.NAMESPACE}
    assert elsewhere == {"Role", "RoleBinding"}


@every_file
def test_pods_have_the_least_of_rights(values: Path) -> None:
    """None is root but the agent and who tidies up after it; none can get more than it has."""
    for name, spec in rendering.pod_specs(rendering.objects(values)).items():
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"]["drop"] == ["ALL"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        if not name.endswith(("-agent", "-node-cleanup")):
            assert spec["securityContext"]["runAsUser"] == 65532


def test_the_control_plane_outlives_a_node() -> None:
    """Two replicas of each on different nodes, and no drain takes both of those that answer."""
    made = rendering.objects()
    for deployment in (o for o in made if o["kind"] == "Deployment"):
        spec = deployment["spec"]
        assert spec["replicas"] == 2
        (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert spread["labelSelector"] == spec["selector"]
        assert spec["template"]["spec"]["priorityClassName"] == "system-cluster-critical"
    budgets = {o["metadata"]["name"] for o in made if o["kind"] == "PodDisruptionBudget"}
    assert budgets == {
        "partage-admission",
        "partage-scheduler",
    }  # decisions/0020 says why not of all


@every_file
def test_selectors_find_the_pods_that_they_are_for(values: Path) -> None:
    """Services, budgets, network policies and monitors select pods of the chart, never nobody."""
    made = rendering.objects(values)
    pods = [
        o["spec"]["template"]["metadata"]["labels"] for o in made if o["kind"] in rendering.MAKERS
    ]
    selectors = [_selector(o) for o in made if o["kind"] in SELECTING]
    assert selectors
    for selector in selectors:
        assert sum(selector.items() <= labels.items() for labels in pods) == 1, selector


def test_two_packages_are_the_same(tmp_path: Path) -> None:
    """Byte for byte, so that a package can be made again and compared."""
    packages = []
    for name in ("first", "second"):
        helm.run("package", helm.CHART, "--destination", tmp_path / name)
        (package,) = (tmp_path / name).iterdir()
        packages.append(package.read_bytes())
    assert packages[0] == packages[1]


def test_the_guard_leaves_its_own_agents_alone() -> None:
    """They mount what nobody else may; the namespace of the release is excepted by its name."""
    made = rendering.objects(EXISTING)
    binding = rendering.named(made, "ValidatingAdmissionPolicyBinding", "partage-guard")
    selector = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    (by_name,) = [e for e in selector if e["key"] == "kubernetes.io/metadata.name"]
    assert by_name["operator"] == "NotIn"
    assert by_name["values"] == [rendering.NAMESPACE, "kube-system", "monitoring"]
    assert binding["spec"]["validationActions"] == ["Deny"]


def test_records_are_written_by_the_accounts_of_the_release() -> None:
    """Of whatever namespace and name; without the guard's other rules, too."""
    policy = rendering.named(
        rendering.objects(LEAST), "ValidatingAdmissionPolicy", "partage-records"
    )
    assert "system:serviceaccount:partage-system:partage-extender" in str(policy)
    policy = rendering.named(
        rendering.objects(PRIVATE), "ValidatingAdmissionPolicy", "partage-records"
    )
    assert "system:serviceaccount:partage-system:gpu-sharing-agent" in str(policy)


def test_the_scheduler_has_the_version_of_the_cluster() -> None:
    """Without what a provider appends to it, as nobody publishes such an image."""
    version = ("--kube-version", "v1.33.5-eks-1a2b3c")
    spec = rendering.pod_specs(rendering.objects(rendering.DEFAULT, *version))["partage-scheduler"]
    assert spec["containers"][0]["image"].endswith("/kube-scheduler:v1.33.5")


def test_an_image_is_named_by_its_digest_if_there_is_one() -> None:
    """Then the tag is not made up."""
    spec = rendering.pod_specs(rendering.objects(PRIVATE))["gpu-sharing-extender"]
    image, _, digest = spec["containers"][0]["image"].partition("@")
    assert image == "registry.example:5000/team/partage"
    assert digest.startswith("sha256:0123")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_kube_scheduler_is_not_asked_about_what_others_serve() -> None:
    """NVIDIA's resources stay out while its plugin serves some nodes."""
    made = rendering.named(rendering.objects(EVERYTHING), "ConfigMap", "partage-scheduler")
    (extender,) = yaml.safe_load(made["data"]["scheduler-config.yaml"])["extenders"]
    names = {resource["name"] for resource in extender["managedResources"]}
    assert not any(name.startswith("nvidia.com/") for name in names)
    assert "aliyun.com/gpu-mem" in names


def test_the_shipped_configuration_asks_about_the_same_resources() -> None:
    """deploy/scheduler-config.yaml, for a scheduler that is there, and the chart's own."""
    made = rendering.named(rendering.objects(), "ConfigMap", "partage-scheduler")
    (extender,) = yaml.safe_load(made["data"]["scheduler-config.yaml"])["extenders"]
    shipped = yaml.safe_load((plain_manifests.FOLDER / "scheduler-config.yaml").read_text())
    differ = {"urlPrefix", "tlsConfig"}
    assert _without(extender, differ) == _without(shipped["extenders"][0], differ)


def test_definitions_stay_unless_the_administrator_says_otherwise() -> None:
    """Claims would go with them."""
    for values, kept in ((rendering.DEFAULT, True), (GIVEN, False)):
        made = [o for o in rendering.objects(values) if o["kind"] == "CustomResourceDefinition"]
        assert len(made) == 4
        for definition in made:
            policy = definition["metadata"]["annotations"].get("helm.sh/resource-policy")
            assert (policy == "keep") is kept


@pytest.mark.parametrize(
    "values", [rendering.DEFAULT, GIVEN, LEAST, plain_manifests.VALUES], ids=lambda p: p.name
)
def test_the_programs_take_their_settings(values: Path, tmp_path: Path) -> None:
    """The programs' own code reads what the ConfigMaps have, and refuses what it does not know."""
    made = rendering.objects(values)
    file = tmp_path / "extender.toml"
    file.write_text(_settings(made, "extender"))
    extender = extender_settings.load(str(file), {}, {})
    assert extender.leader.elect
    assert extender.leader.namespace == rendering.NAMESPACE
    if values != LEAST:
        file.write_text(_settings(made, "admission"))
        admission = admission_settings.load(str(file), {})
        assert admission.service.namespace == rendering.NAMESPACE


def test_settings_follow_from_values() -> None:
    """Each value is where the program looks for it."""
    made = rendering.objects(EXISTING)
    extender = tomllib.loads(_settings(made, "extender"))
    assert extender["decisions"] == {
        "policy": "spread",
        "nodes": 4,
        "memory_unit": "MiB",
        "qgpu_max_cards": 4,
        "tflops": {"*A100*": 19.5, "*T4*": 8},
    }
    assert extender["nodes"] == {"taints": False}
    assert extender["scheduler"] == {"http_timeout_s": 20}
    assert extender["binds"] == {"most_in_flight": 64}
    assert extender["leader"]["lease_s"] == 30
    pods = tomllib.loads(_settings(made, "admission"))["pods"]
    assert pods["scheduler_name"] == "gpu-scheduler"
    assert pods["runtime_class"] == "nvidia"
    assert pods["larger_than_any_card"] == "warn"


@every_file
def test_the_agent_takes_its_flags(values: Path) -> None:
    """By its own command line, which refuses what it does not know."""
    specs = rendering.pod_specs(rendering.objects(values))
    for spec in (spec for name, spec in specs.items() if name.endswith("-agent")):
        program, name, *flags = spec["containers"][0]["args"]
        assert (program, name) == ("partage", "agent")
        context = agent_command.agent.make_context("agent", [*flags, "--node", "n"])
        agent_settings.chosen(context.params)


REFUSED = {
    "a slip": (["extender.replcas=2"], "additional properties 'replcas' not allowed"),
    "an unknown group": (["extnder.replicas=2"], "additional properties 'extnder' not allowed"),
    "no replica": (["extender.replicas=0"], "/extender/replicas': minimum: got 0, want 1"),
    "a tag with a space": (["image.tag=a b"], "/image/tag': 'a b' does not match"),
    "half a digest": (["image.digest=sha256:12"], "/image/digest': 'sha256:12' does not match"),
    "an action": (["agent.outside=kill"], "must be one of 'tell', 'pause', 'end'"),
    "a source of files": (["agent.driverFiles=csi"], "must be one of 'auto', 'cdi', 'runtime'"),
    "a dialect": (["agent.dialects={nvidai}"], "/agent/dialects/0': value must be one of"),
    "a class": (["agent.computeClasses={batch}"], "/agent/computeClasses/0': 'batch' does not"),
    "a unit": (["requests.memoryUnit=GB"], "must be one of 'auto', 'GiB', 'MiB'"),
    "a mode": (["scheduler.mode=both"], "must be one of 'own', 'existing'"),
    "a resource": (["scheduler.unmanagedResources={nvidia.com/gup}"], "'nvidia.com/gpu'"),
    "text for a switch": (["crds.keep=maybe"], "/crds/keep': got string, want boolean"),
    "no name to set": (
        ["scheduler.mode=existing", "admission.setSchedulerName=true"],
        "set scheduler.name to the profile that asks the extender",
    ),
    "the cluster's name": (["scheduler.name=default-scheduler"], "two of one name"),
    "the cluster's name among others": (
        ["scheduler.otherNames={t9k-scheduler,default-scheduler}"],
        "scheduler.otherNames: default-scheduler is the cluster's own",
    ),
    "what agents offer and nobody decides": (
        ["scheduler.unmanagedResources={nvidia.com/gpu}"],
        "the agents offer nvidia.com/gpu in the dialect nvidia, and nobody would decide about it",
    ),
    "the same in a dialect that was chosen": (
        ["scheduler.unmanagedResources={nvidia.com/gpucores}", "agent.dialects={partage,hami}"],
        "or set agent.dialects, without hami",
    ),
    "nobody to set it": (
        ["admission.enabled=false", "admission.setSchedulerName=true"],
        "because admission.enabled is false",
    ),
    "taints that nobody tolerates": (
        ["admission.enabled=false", "extender.taints=true"],
        "nobody adds tolerations to pods",
    ),
    "an authority of nothing": (["admission.caBundle=LS0t"], "set admission.certificates=given"),
    "a certificate without authority": (
        ["admission.certificates=given"],
        "has to be told whom to believe",
    ),
    "claims that would be lost": (
        ["crds.install=false", "crds.keep=false"],
        "would delete the definitions, and with them all claims",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_values_that_cannot_be_are_refused(what: str) -> None:
    """With the value, what is wrong with it, and what may stand there."""
    chosen, text = REFUSED[what]
    options = [word for value in chosen for word in ("--set", value)]
    with pytest.raises(helm.Refused) as refusal:
        helm.template(*options, namespace=rendering.NAMESPACE)
    assert text in str(refusal.value)


@pytest.mark.parametrize("name", [systems.HAMI, systems.NVIDIA])
def test_the_values_that_a_take_over_names_are_taken(name: str) -> None:
    """First nvidia.com/gpu is the others', in the end Partage's; claims are served all the time."""
    meanwhile = _served(vendor_plan.values_meanwhile())
    afterwards = _served(vendor_plan.values_afterwards(systems.SYSTEMS[name]))
    assert not {"nvidia", "hami"} & meanwhile.keys()
    assert name in afterwards
    assert "claims" in meanwhile.keys() & afterwards.keys()


def _served(options: str) -> dict[str, None]:
    """The dialects of the agents of a chart with these options of Helm."""
    made = rendering.objects(rendering.DEFAULT, *shlex.split(options))
    flags = rendering.pod_specs(made)["partage-agent"]["containers"][0]["args"]
    (dialects,) = [flag for flag in flags if flag.startswith("--dialects=")]
    return dict.fromkeys(dialects.partition("=")[2].split(","))


def test_an_old_cluster_is_refused() -> None:
    """Where the guard's policies do not exist."""
    with pytest.raises(helm.Refused, match="chart requires kubeVersion"):
        helm.template("--kube-version", "1.29", namespace=rendering.NAMESPACE)


def test_a_policy_for_agents_is_there_where_tokens_name_their_node() -> None:
    """From 1.32 on; before, it would refuse all agents."""
    for version, present in (("1.31", False), ("1.32", True)):
        made = rendering.objects(rendering.DEFAULT, "--kube-version", version)
        policies = [o["metadata"]["name"] for o in made if o["kind"] == "ValidatingAdmissionPolicy"]
        assert ("partage-agent" in policies) is present


@functools.cache
def _validate(text: str, version: str) -> None:
    """It takes long, and most objects are the same whatever the values."""
    kubernetes_validate.validate(json.loads(text), version, strict=True)


def _settings(made: tuple[rendering.Object, ...], program: str) -> str:
    text: str = rendering.named(made, "ConfigMap", f"partage-{program}")["data"][f"{program}.toml"]
    return text


def _selector(made: rendering.Object) -> dict[str, str]:
    spec = made["spec"]
    selector = spec.get("podSelector", spec.get("selector"))
    labels: dict[str, str] = selector if made["kind"] == "Service" else selector["matchLabels"]
    return labels


def _without(made: rendering.Object, fields: set[str]) -> rendering.Object:
    return {field: value for field, value in made.items() if field not in fields}


def test_leaving_can_be_left_to_people() -> None:
    """Who wants no hooks, as some tools for GitOps have none of this kind."""
    hooks = [o for o in rendering.objects() if _hook(o) == "post-delete"]
    kinds = {made["kind"] for made in hooks}
    assert {"DaemonSet", "Job", "ClusterRole", "Role", "ServiceAccount"} <= kinds
    sleeper = rendering.pod_specs(tuple(hooks))["partage-node-cleanup"]["containers"][0]
    assert sleeper["args"][0] == f"python{image_settings.PYTHON}"
    without = rendering.objects(rendering.DEFAULT, "--set", "cleanup.enabled=false")
    assert {_hook(o) for o in without} == {"", "test"}
    assert len(without) == len(rendering.objects()) - len(hooks)


def _hook(made: rendering.Object) -> str:
    hook: str = (made["metadata"].get("annotations") or {}).get("helm.sh/hook", "")
    return hook
