"""The policy of claims: a pod that names a claim reaches the agent, or does not come in.

The kubelet asks a device plugin only about containers that name its resource. The webhooks write
``partage.dev/claim: 1`` into a container for which an annotation names a claim. Where they are not
installed, the annotation alone would bring a pod past everybody: it would run without a card, and
nobody would say so. This policy comes with the definitions of claims, and the API server enforces
it by itself, on pods as they are after all webhooks.
"""

from __future__ import annotations

from typing import Any

from partage.admission import guard, webhooks
from partage.dialects import pod_claims

NAME = "partage-claims"
_ANNOTATIONS = (
    "object.metadata.?annotations.orValue({}).filter(a, "
    + " || ".join(f"a.startsWith('{prefix}')" for prefix in pod_claims.PREFIXES)
    + ")"
)
# The container that an annotation names; in a pod with one container it can only be that.
_NAMED = "a" + "".join(f".replace('{prefix}', '')" for prefix in pod_claims.PREFIXES)
_IS_MEANT = f"(size(variables.containers) == 1 || c.name == {_NAMED})"
_VARIABLES = {
    "annotations": _ANNOTATIONS,
    "containers": "object.spec.?containers.orValue([]) + object.spec.?initContainers.orValue([])",
    "astray": f"variables.annotations.filter(a, !variables.containers.exists(c, {_IS_MEANT}))",
    "ineffective": f"variables.annotations.filter(a, variables.containers.exists(c, {_IS_MEANT} && "
    f"!('{pod_claims.CLAIM}' in c.?resources.limits.orValue({{}}))))",
}


def policies() -> list[dict[str, Any]]:
    """The policy, and that it holds everywhere."""
    return [guard.policy(NAME, _specification()), guard.binding(NAME, ["Deny"], {})]


def _specification() -> dict[str, Any]:
    variables = [{"name": name, "expression": text} for name, text in _VARIABLES.items()]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [webhooks.rule("", ["pods"], ["CREATE"])]},
        "matchConditions": [{"name": "names-a-claim", "expression": f"size({_ANNOTATIONS}) > 0"}],
        "variables": variables,
        "validations": [
            _validation(
                "astray",
                "names a claim for a container that the pod does not have; write the name of one "
                "of its containers",
            ),
            _validation(
                "ineffective",
                f"names a claim, but its container does not have {pod_claims.CLAIM} in its limits "
                "and would run without a card; install Partage's admission, which adds it "
                f"(docs/admission.md), or write {pod_claims.CLAIM}: 1 into them",
            ),
        ],
    }


def _validation(variable: str, problem: str) -> dict[str, Any]:
    return {
        "expression": f"size(variables.{variable}) == 0",
        "messageExpression": f'"the annotation " + variables.{variable}[0] + " {problem}"',
        "reason": "Forbidden",
    }
