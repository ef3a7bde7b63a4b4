"""Webhooks: the configurations by which the API server asks us, and whom it believes there.

The API server itself looks at each pod first (``matchConditions``), so that we are asked about pods
with cards only. For those the answer is needed: without one the pod is refused. So a pod with cards
never comes in unseen, and while nobody answers here every other pod is created as ever. Workloads
are only warned about, and come in without an answer, too. So do claims of Elastic GPU and their
classes, which are stored in one spelling: what reads them reads every spelling.

An expression that fails counts as a refusal, of any pod. So the expressions ask for nothing that
may be missing.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from partage.admission import submitted
from partage.dialects import registry
from partage.dialects.claims import objects
from partage.kube import api as kube

NAME = "partage-admission"
COMPLETE, JUDGE, ADVISE = "/admission/complete", "/admission/judge", "/admission/advise"
SPELL, CHECK = "/admission/claims/spell", "/admission/claims/check"
_GROUP = "admissionregistration.k8s.io"
_TIMEOUT_S = 5  # of the 30 that a request to the API server may take
KINDS = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


class Service(msgspec.Struct, frozen=True):
    """How the API server reaches us."""

    name: str = NAME
    namespace: str = "kube-system"
    url: str = ""  # in place of a Service: for a program outside of the cluster

    def client(self, path: str) -> dict[str, Any]:
        """As a webhook has it."""
        if self.url:
            return {"url": f"{self.url}{path}"}
        return {"service": {"name": self.name, "namespace": self.namespace, "path": path}}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the host that the certificate is for."""
        return (f"{self.name}.{self.namespace}.svc",)


def configurations(service: Service) -> list[dict[str, Any]]:
    """The objects, without an authority: the service fills that in (:func:`trust`)."""
    complete = _webhook("complete.pods.partage.dev", service.client(COMPLETE), _ON_PODS)
    spell = _webhook("spell.claims.partage.dev", service.client(SPELL), _ON_CLAIMS)
    check = _webhook("check.claims.partage.dev", service.client(CHECK), _ON_CLAIMS)
    judge = _webhook("judge.pods.partage.dev", service.client(JUDGE), _ON_PODS)
    advise = [
        _webhook(f"advise.{what}.partage.dev", service.client(ADVISE), _on_templates(kinds, path))
        for what, kinds, path in (
            ("workloads", tuple(kind for kind in submitted.WORKLOADS if kind != "CronJob"), ""),
            ("cronjobs", ("CronJob",), "jobTemplate.spec."),
        )
    ]
    return [
        _configuration("MutatingWebhookConfiguration", [complete, spell]),
        _configuration("ValidatingWebhookConfiguration", [judge, *advise, check]),
    ]


async def trust(api: kube.Api, authority_pem: bytes) -> None:
    """Tell the configurations whom to believe, if they do not know it."""
    authority = base64.b64encode(authority_pem).decode()
    for plural in KINDS.values():
        path = f"/apis/{_GROUP}/v1/{plural}/{NAME}"
        present = await api.get(path, _Configuration)
        unaware = [w.name for w in present.webhooks if w.client_config.ca_bundle != authority]
        if unaware:
            changes = [{"name": name, "clientConfig": {"caBundle": authority}} for name in unaware]
            await api.patch(path, {"webhooks": changes}, kind=kube.Patch.STRATEGIC)


def asks(spec: str, metadata: str) -> str:
    """The expression (CEL) that is true for pods that ask for cards, or speak of us."""
    return (
        f"({_containers(spec)}).exists(c, "
        "[c.?resources.limits.orValue({}), c.?resources.requests.orValue({})]"
        f".exists(m, m.exists(r, {_known('r')}))) || "
        f"{_annotated(metadata, _domain(), *registry.names().asking_annotations)}"
    )


def names_cards(spec: str, metadata: str) -> str:
    """The expression that is true for pods that name a resource of a dialect, or a claim."""
    limits = "c.?resources.limits.orValue({})"
    return (
        f"({_containers(spec)}).exists(c, {limits}.exists(r, {_known('r')})) || "
        f"{_annotated(metadata, *registry.names().asking_annotations)}"
    )


def rule(
    group: str,
    resources: Sequence[str],
    operations: Sequence[str],
    *,
    versions: Sequence[str] = ("v1",),
    scope: str = "Namespaced",
) -> dict[str, Any]:
    """What is asked about, as configurations and policies have it."""
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
        "operations": list(operations),
        "resources": list(resources),
        "scope": scope,
    }


class _Client(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    client_config: _Client = _Client()


class _Configuration(msgspec.Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] = ()


def _containers(spec: str) -> str:
    return f"{spec}.?containers.orValue([]) + {spec}.?initContainers.orValue([])"


def _annotated(metadata: str, *prefixes: str) -> str:
    """Whether an annotation's name begins with one of these."""
    distinct = [p for p in prefixes if not any(p != q and p.startswith(q) for q in prefixes)]
    begins = " || ".join(f"a.startsWith({_quoted(prefix)})" for prefix in distinct)
    return f"{metadata}.?annotations.orValue({{}}).exists(a, {begins})"


def _known(variable: str) -> str:
    resources = ", ".join(map(_quoted, sorted(registry.names().resources)))
    return f"{variable} in [{resources}] || {variable}.startsWith({_quoted(_domain())})"


def _domain() -> str:
    return registry.names().own_prefix


def _quoted(text: str) -> str:
    return f"'{text}'"


_ON_PODS: dict[str, Any] = {
    "rules": [rule("", ["pods"], ["CREATE"])],
    "matchConditions": [
        {"name": "asks-for-cards", "expression": asks("object.spec", "object.metadata")}
    ],
    "failurePolicy": "Fail",
}


# Claims change their status, their finalizers and what they are bound to without us.
_ON_CLAIMS: dict[str, Any] = {
    "rules": [
        rule(
            objects.GROUP,
            ["elasticgpuclaims", "elasticgpuclasses"],
            ["CREATE", "UPDATE"],
            versions=(objects.VERSION, objects.OLD_VERSION),
            scope="*",
        )
    ],
    "matchConditions": [
        {
            "name": "says-something-new",
            "expression": "request.operation == 'CREATE' || !has(object.spec) || "
            "!has(oldObject.spec) || object.spec != oldObject.spec",
        }
    ],
    "failurePolicy": "Ignore",
}


def _on_templates(kinds: Sequence[str], path: str) -> dict[str, Any]:
    resources: dict[str, list[str]] = {}
    for kind in kinds:
        group, plural = submitted.WORKLOADS[kind]
        resources.setdefault(group, []).append(plural)
    template = f"object.spec.{path}template"
    return {
        "rules": [
            rule(group, plurals, ["CREATE", "UPDATE"]) for group, plurals in resources.items()
        ],
        "matchConditions": [
            # What a controller made of a template was warned of when the template came.
            {"name": "made-by-a-person", "expression": "!has(object.metadata.ownerReferences)"},
            {
                "name": "asks-for-cards",
                "expression": asks(f"{template}.spec", f"{template}.?metadata"),
            },
        ],
        "failurePolicy": "Ignore",
    }


def _webhook(name: str, client: dict[str, Any], when: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_S,
        "clientConfig": client,
        **when,
    }


def _configuration(kind: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": NAME, "labels": {"app": "partage"}},
        "webhooks": webhooks,
    }
