"""Definitions: what the API server is told of the objects of Elastic GPU.

Two versions are served, that of the original definitions and that of published examples; they have
one schema and are stored as one. Fields have the original names. All spellings in circulation are
in the schema, since a field that is not would be dropped in silence; where two of them contradict
each other, the object is refused. A field with two spellings has no default here: it would
contradict what was written in the other.
"""

from __future__ import annotations

import enum
import itertools
from typing import Any

from partage.dialects.claims import amounts, objects

Schema = dict[str, Any]

_LONGEST_NAME = 253
# Entries of maps and lists: rules look at all of them, and the API server adds that up.
_MOST = amounts.MOST
_STRING: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "maxLength": _LONGEST_NAME}


def all_of_them() -> list[dict[str, Any]]:
    """The four definitions."""
    return [_class(), _claim(), _elastic_gpu(), _gpu()]


def _class() -> dict[str, Any]:
    schema = _object(
        {
            "provisioner": {**_NAME, "minLength": 1},
            "parameters": _map(_STRING),
            "reclaimPolicy": _choice(objects.ReclaimPolicy, objects.ReclaimPolicy.DELETE),
            "egpuBindingMode": _choice(objects.BindingMode),
            "eGPUBindingMode": _choice(objects.BindingMode),
            "shared": {"type": "boolean", "default": False},
        },
        required=["provisioner"],
        rules=[
            _agree("egpuBindingMode", "eGPUBindingMode"),
            _fixed("provisioner", "it is what made the shares of its claims"),
        ],
    )
    columns = [
        _column("Provisioner", ".provisioner"),
        _column("Reclaim", ".reclaimPolicy"),
        _column("Binding", ".egpuBindingMode"),
        _column("Shared", ".shared", kind="boolean"),
        _AGE,
    ]
    return _definition("ElasticGPUClass", "elasticgpuclasses", "egpuclass", schema, columns)


def _claim() -> dict[str, Any]:
    spec = _object(
        {
            "resources": _object({"requests": _AMOUNTS, "limits": _AMOUNTS}),
            "elasticGPUName": _NAME,
            **dict.fromkeys(_CLASS_FIELDS, _NAME),
        },
        rules=[_agree(*pair) for pair in itertools.combinations(_CLASS_FIELDS, 2)],
    )
    status = _status(objects.ClaimPhase, {"capacity": _AMOUNTS, "nodeName": _NAME}, reasons=False)
    schema = _object({"spec": spec, "status": status}, required=["spec"], rules=_BOUND_CLAIMS_STAY)
    columns = [
        _column("Status", ".status.phase"),
        _column("ElasticGPU", ".spec.elasticGPUName"),
        _column("Class", ".spec.elasticGPUClassName"),
        _column("Core(%)", _path(".status.capacity", objects.CORE)),
        _column("Memory", _path(".status.capacity", objects.MEMORY)),
        _column("Node", ".status.nodeName"),
        _AGE,
    ]
    return _definition(
        "ElasticGPUClaim", "elasticgpuclaims", "egpuc", schema, columns, namespaced=True
    )


def _elastic_gpu() -> dict[str, Any]:
    sources = {
        "qGPU": _object({"gpuName": _NAME, "deviceName": _NAME, "paths": _list(_NAME)}),
        "physicalGPU": _object({"gpuNames": _list(_NAME)}, required=["gpuNames"]),
        "gpuShare": _object({"gpuName": _NAME}),
    }
    has = ", ".join(f"has(self.{source})" for source in sources)
    spec = _object(
        {
            "capacity": _AMOUNTS,
            **sources,
            "claimRef": _CLAIM_REF,
            "nodeAffinity": _NODE_AFFINITY,
            "elasticGPUClassName": _NAME,
            "reclaimPolicy": _choice(objects.ReclaimPolicy, objects.ReclaimPolicy.RETAIN),
        },
        rules=[
            {
                "rule": f"[{has}].filter(s, s).size() <= 1",
                "message": f"there can be one source only: one of {', '.join(sources)}",
            },
            *(
                _settled(field, "make another ElasticGPU instead")
                for field in ("capacity", *sources, "nodeAffinity")
            ),
        ],
    )
    schema = _object(
        {"spec": spec, "status": _status(objects.Phase, {}, reasons=True)}, required=["spec"]
    )
    node = ".spec.nodeAffinity.required.nodeSelectorTerms[0].matchFields[0].values[0]"
    columns = [
        _column("Core(%)", _path(".spec.capacity", objects.CORE)),
        _column("Memory", _path(".spec.capacity", objects.MEMORY)),
        _column("Status", ".status.phase"),
        _column("Namespace", ".spec.claimRef.namespace"),
        _column("Claim", ".spec.claimRef.name"),
        _column("Class", ".spec.elasticGPUClassName"),
        _column("Reclaim", ".spec.reclaimPolicy"),
        _column("Reason", ".status.reason"),
        _column("Node", node),
        _AGE,
    ]
    return _definition("ElasticGPU", "elasticgpus", "egpu", schema, columns)


def _gpu() -> dict[str, Any]:
    spec = _object(
        {
            "index": {"type": "integer", "minimum": 0},
            "uuid": _STRING,
            "model": _STRING,
            "path": _STRING,
            "memory": {"type": "integer", "format": "int64", "minimum": 0},
            "nodeName": _NAME,
        },
        required=["index"],
    )
    container = _object({"container": _NAME, "elasticGPU": _NAME, "resource": _AMOUNTS})
    pod = _object({"namespace": _NAME, "pod": _NAME, "containers": _list(container)})
    status = _object(
        {
            "state": _STRING,
            "capacity": _AMOUNTS,
            "allocatable": _AMOUNTS,
            "allocated": {"type": "object", "additionalProperties": pod},
            "tenants": {"type": "integer", "minimum": 0},
        }
    )
    columns = [
        _column("Node", ".spec.nodeName"),
        _column("Index", ".spec.index", kind="integer"),
        _column("Model", ".spec.model"),
        _column("Memory(MiB)", _path(".status.capacity", objects.MEMORY)),
        _column("Tenants", ".status.tenants", kind="integer"),
        _column("Free Core(%)", _path(".status.allocatable", objects.CORE)),
        _column("Free Memory(MiB)", _path(".status.allocatable", objects.MEMORY)),
        _column("State", ".status.state"),
        _AGE,
    ]
    schema = _object({"spec": spec, "status": status}, required=["spec"])
    return _definition("GPU", "gpus", "", schema, columns)


# A number, or text; upstream has quantities here, which "4GB" is not.
_AMOUNT: Schema = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "maxLength": amounts.LONGEST,
    "pattern": amounts.PATTERN,
}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values, "maxProperties": _MOST}


_AMOUNTS = _map(_AMOUNT)


def _object(
    properties: Schema, *, required: list[str] | None = None, rules: list[Schema] | None = None
) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "maxItems": _MOST}


def _choice(words: type[enum.StrEnum], default: enum.StrEnum | None = None) -> Schema:
    schema: Schema = {"type": "string", "enum": [str(word) for word in words]}
    return schema if default is None else {**schema, "default": str(default)}


# As in core/v1; upstream always writes it, empty where there is no claim.
_CLAIM_REF = _object(
    dict.fromkeys(
        ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion", "fieldPath"), _NAME
    )
)
_REQUIREMENT = _object(
    {"key": _NAME, "operator": _STRING, "values": _list(_NAME)}, required=["key", "operator"]
)
_TERM = _object({"matchExpressions": _list(_REQUIREMENT), "matchFields": _list(_REQUIREMENT)})
_NODE_AFFINITY = _object({"required": _object({"nodeSelectorTerms": _list(_TERM)})})

_CONDITION = _object(
    {
        "type": _NAME,
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": _STRING,
        "message": _STRING,
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer", "format": "int64"},
    },
    required=["type", "status"],
)


def _status(phases: type[enum.StrEnum], fields: Schema, *, reasons: bool) -> Schema:
    conditions = {
        **_list(_CONDITION),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    words = {"reason": _STRING, "message": _STRING} if reasons else {}
    return _object({"phase": _choice(phases), **words, **fields, "conditions": conditions})


def _agree(first: str, second: str) -> Schema:
    """Two spellings of one field say the same."""
    return {
        "rule": f"!has(self.{first}) || !has(self.{second}) || self.{first} == self.{second}",
        "message": f"{second} is another spelling of {first}, and they differ; write one of them",
    }


def _fixed(field: str, instead: str) -> Schema:
    """A field that is never changed, nor added or taken away."""
    return {"rule": _same(field), "message": f"{field} cannot be changed; {instead}"}


def _settled(field: str, instead: str) -> Schema:
    """A field that stays as it is once it is there: shares are decided after an object is made."""
    rule = f"!has(oldSelf.{field}) || (has(self.{field}) && self.{field} == oldSelf.{field})"
    return {"rule": rule, "message": f"{field} cannot be changed; {instead}"}


def _same(field: str) -> str:
    """Without ``orValue``, whose cost the API server cannot bound."""
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


def _kept(rule: str, message: str) -> Schema:
    """What holds for claims that are not Pending any more."""
    pending = (
        "!has(oldSelf.status) || !has(oldSelf.status.phase) || oldSelf.status.phase == 'Pending'"
    )
    return {"rule": f"{pending} || ({rule})", "message": message}


def _class_of(claim: str) -> str:
    """The class of a claim in whichever spelling, as an expression."""
    fields = (f"{claim}.spec.{field}" for field in reversed(_CLASS_FIELDS))
    expression = "''"
    for field in fields:
        expression = f"(has({field}) ? {field} : {expression})"
    return expression


_CLASS_FIELDS = ("elasticGPUClassName", "egpuClassName", "storageClassName")
_BOUND_CLAIMS_STAY = [
    _kept(
        f"{_class_of('self')} == {_class_of('oldSelf')}",
        "the class of a claim that was bound cannot be changed; make another claim",
    ),
    _kept(
        _same("spec.resources"),
        "the resources of a claim that was bound cannot be changed; make another claim",
    ),
    _kept(
        _same("spec.elasticGPUName"),
        "a claim that was bound stays with its ElasticGPU; make another claim",
    ),
]


def _path(of: str, resource: str) -> str:
    """The path of an amount in a map whose keys have dots."""
    return f"{of}.{resource.replace('.', chr(92) + '.')}"


def _column(name: str, path: str, *, kind: str = "string") -> Schema:
    return {"name": name, "type": kind, "jsonPath": path}


_AGE = _column("Age", ".metadata.creationTimestamp", kind="date")


def _definition(
    kind: str,
    plural: str,
    short: str,
    schema: Schema,
    columns: list[Schema],
    *,
    namespaced: bool = False,
) -> dict[str, Any]:
    versions = [
        {
            "name": version,
            "served": True,
            "storage": version == objects.VERSION,
            "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": columns,
            **({"subresources": {"status": {}}} if "status" in schema["properties"] else {}),
        }
        for version in (objects.VERSION, objects.OLD_VERSION)
    ]
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        **({"shortNames": [short]} if short else {}),
        "categories": ["partage"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{objects.GROUP}", "labels": {"app": "partage"}},
        "spec": {
            "group": objects.GROUP,
            "names": names,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": versions,
        },
    }
