"""The guard: policies of the API server by which pods stay inside their fences.

A tenant's fence is put up around what the agent gives to a container. A pod's author could go past
that: name cards in the environment of NVIDIA's runtime, mount device files or the folders with
everybody's limits, run with rights that unmount the fence, bind the pod past every scheduler, or
forge the record of a grant. Each is a rule here, written once, for pods (denied) and for the
templates of workloads (warned of).

Everything is a ValidatingAdmissionPolicy: no webhook has to be up, so none can be waited for, and a
cluster without a running Partage is guarded all the same. A namespace with the label
``partage.dev/guard: off`` is excepted from the rules, and so are some by name: that in which the
agent runs, which mounts what nobody else may. Nobody is excepted from those about records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from partage.admission import submitted, webhooks
from partage.dialects import registry

LABEL, OFF = "partage.dev/guard", "off"
NAME, TEMPLATES, RECORDS = "partage-guard", "partage-guard-templates", "partage-records"
_GROUP = "admissionregistration.k8s.io"
_NAMESPACE = "kubernetes.io/metadata.name"  # a label with its name that every namespace has

# Folders of the host, each with all that is in it: the kubelet's with its sockets and its record of
# devices, those with everybody's limits and specifications, and devices.
_FOLDERS = (
    *("/dev", "/etc/cdi", "/run/cdi", "/run/partage", "/var/lib/kubelet", "/var/lib/partage"),
    *("/var/run/cdi", "/var/run/partage", "/proc"),
)
# Devices that have nothing to do with cards, and that people mount.
_HARMLESS_DEVICES = (
    "/dev/shm",
    "/dev/null",
    "/dev/log",
    "/dev/fuse",
    "/dev/kvm",
    "/dev/infiniband",
)
_RIGHTS = ("ALL", "SYS_ADMIN", "SYS_CHROOT", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT")
_NO_CARD = ("", "none", "void")  # values of NVIDIA_VISIBLE_DEVICES that show none


# Folders of the host that the pod's volumes name, each written in one way.
_PATHS = (
    "variables.spec.?volumes.orValue([]).filter(v, has(v.hostPath)).map(v, "
    "'/' + v.hostPath.path.split('/').filter(s, s != '' && s != '.').join('/'))"
)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod must not be, as an expression that is true where it is not."""

    name: str
    allowed: str
    problem: str  # what the message says the pod does
    instead: str
    cards_only: bool = False  # whether it is about pods that ask for cards alone
    created_only: bool = False  # whether it is about the moment in which a pod is made


RULES = (
    Rule(
        name="visible-devices",
        allowed=(
            "variables.containers.all(c, c.?env.orValue([]).all(e, "
            "e.name != 'NVIDIA_VISIBLE_DEVICES' || "
            f"(!has(e.valueFrom) && e.?value.orValue('') in {list(_NO_CARD)})))"
        ),
        problem="a container sets NVIDIA_VISIBLE_DEVICES, which takes cards that nobody granted",
        instead="remove it, and ask for cards in limits",
    ),
    Rule(
        name="mps",
        allowed=(
            "variables.containers.all(c, c.?env.orValue([])"
            ".all(e, !e.name.startsWith('CUDA_MPS_')))"
        ),
        problem="a container sets a variable of MPS, which would replace its share",
        instead="remove it: Partage sets the share",
    ),
    Rule(
        name="host-paths",
        allowed=(
            f"variables.paths.all(p, {list(_HARMLESS_DEVICES)}.exists(d, p == d || "
            f"p.startsWith(d + '/')) || (p != '/' && {list(_FOLDERS)}.all(f, p != f && "
            "!p.startsWith(f + '/') && !f.startsWith(p + '/'))))"
        ),
        problem="a hostPath volume leads to devices, or to folders of the kubelet or of Partage",
        instead="remove the volume",
    ),
    Rule(
        name="privileged",
        allowed=(
            "variables.containers.all(c, !c.?securityContext.privileged.orValue(false) && "
            "c.?securityContext.capabilities.add.orValue([]).all(r, "
            f"!(r in {list(_RIGHTS)})))"
        ),
        problem="a container is privileged, or adds SYS_ADMIN or SYS_CHROOT, and could take its "
        "fence away",
        instead="remove it from securityContext",
        cards_only=True,
    ),
    Rule(
        name="host-processes",
        allowed="!variables.spec.?hostPID.orValue(false)",
        problem="hostPID shows the processes and the files of other tenants",
        instead="remove hostPID",
        cards_only=True,
    ),
    Rule(
        name="node-name",
        allowed="variables.spec.?nodeName.orValue('') == '' || "
        "request.userInfo.username.startsWith('system:node:')",
        problem="spec.nodeName goes past the scheduler, so that no card is granted",
        instead="use nodeSelector or nodeAffinity",
        cards_only=True,
        created_only=True,
    ),
)


def policies(
    accounts: Sequence[str], *, excepted: Any, actions: Any = ("Deny",)
) -> list[dict[str, Any]]:
    """All objects of the guard.

    ``accounts`` write records: that of the extender when it binds, those of agents when containers
    have their cards. ``excepted`` are the names of namespaces that the rules leave out without a
    label, and ``actions`` what becomes of a pod that breaks a rule: lists, or what the chart has in
    their place.
    """
    templates = [rule for rule in RULES if not rule.created_only]
    return [
        *_guard(NAME, _on_pods(), RULES, actions, excepted),
        *_guard(TEMPLATES, _on_templates(), templates, ["Warn", "Audit"], excepted),
        *_records(accounts),
    ]


def policy(name: str, specification: dict[str, Any]) -> dict[str, Any]:
    """A policy of ours."""
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {"app": "partage"}},
        "spec": specification,
    }


def binding(name: str, actions: Any, where: dict[str, Any]) -> dict[str, Any]:
    """Where a policy holds, and what becomes of what breaks it."""
    specification: dict[str, Any] = {"policyName": name, "validationActions": actions}
    if where:
        specification["matchResources"] = where
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {"app": "partage"}},
        "spec": specification,
    }


def _guard(
    name: str, on: dict[str, Any], rules: Sequence[Rule], actions: Any, excepted: Any
) -> Iterator[dict[str, Any]]:
    yield policy(name, on | {"validations": [_validation(rule) for rule in rules]})
    left_out = {LABEL: [OFF], _NAMESPACE: excepted}
    expressions = [
        {"key": key, "operator": "NotIn", "values": values} for key, values in left_out.items()
    ]
    yield binding(name, actions, {"namespaceSelector": {"matchExpressions": expressions}})


def _validation(rule: Rule) -> dict[str, Any]:
    spared = "!variables.cards || " if rule.cards_only else ""
    spared += "request.operation != 'CREATE' || " if rule.created_only else ""
    expression = f"{spared}({rule.allowed})" if spared else rule.allowed
    text = (
        f"{rule.problem}; {rule.instead}; an administrator can allow it: kubectl label namespace "
    )
    label = f" {LABEL}={OFF}"
    return {
        "expression": expression,
        "messageExpression": f'"{text}" + request.namespace + "{label}"',
        "reason": "Forbidden",
    }


def _on_pods() -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                webhooks.rule("", ["pods"], ["CREATE"]),
                webhooks.rule("", ["pods/ephemeralcontainers"], ["UPDATE"]),
            ]
        },
        "variables": _variables("object.spec", "object.metadata"),
    }


def _on_templates() -> dict[str, Any]:
    resources: dict[str, list[str]] = {}
    for group, plural in submitted.WORKLOADS.values():
        resources.setdefault(group, []).append(plural)
    spec, metadata = (
        f"request.kind.kind == 'CronJob' ? object.spec.?jobTemplate.spec.template.{part}"
        f".orValue({{}}) : object.spec.?template.{part}.orValue({{}})"
        for part in ("spec", "metadata")
    )
    rules = [
        webhooks.rule(group, plurals, ["CREATE", "UPDATE"]) for group, plurals in resources.items()
    ]
    return {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [
            {"name": "made-by-a-person", "expression": "!has(object.metadata.ownerReferences)"}
        ],
        "variables": _variables(spec, metadata),
    }


def _variables(spec: str, metadata: str) -> list[dict[str, str]]:
    containers = " + ".join(
        f"variables.spec.?{kind}.orValue([])"
        for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    return [
        {"name": "spec", "expression": spec},
        {"name": "metadata", "expression": metadata},
        {"name": "containers", "expression": containers},
        {"name": "paths", "expression": _PATHS},
        {
            "name": "cards",
            "expression": webhooks.names_cards("variables.spec", "variables.metadata"),
        },
    ]


def _records(accounts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Records of grants are written by Partage's own programs, and by nobody else."""
    records = sorted(registry.names().record_annotations)
    annotations = "object.metadata.?annotations.orValue({})"
    before = "(oldObject == null ? {} : oldObject.metadata.?annotations.orValue({}))"
    on = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                webhooks.rule("", ["pods", "pods/binding", "bindings"], ["CREATE"]),
                webhooks.rule(
                    "",
                    ["pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"],
                    ["UPDATE"],
                ),
            ]
        },
        "matchConditions": [
            {
                "name": "by-others",
                "expression": f"!(request.userInfo.username in {list(accounts)})",
            }
        ],
        "variables": [
            {"name": "now", "expression": annotations},
            {"name": "before", "expression": before},
            {
                "name": "forged",
                "expression": f"{records}.filter(a, "
                "variables.now[?a].orValue('') != variables.before[?a].orValue(''))",
            },
        ],
        "validations": [
            {
                "expression": "size(variables.forged) == 0",
                "messageExpression": '"the annotation " + variables.forged[0] + " records which '
                "cards a pod has, and only Partage's own programs write it; remove it from what "
                'you submit, or leave it as it is"',
                "reason": "Forbidden",
            }
        ],
    }
    yield policy(RECORDS, on)
    yield binding(RECORDS, ["Deny"], {})
